# SPDX-License-Identifier: Apache-2.0
"""Pictures of collectors: pauses, cycles, events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise.plots.style import COLOURS, LINES, new_axes, picture, scale_of, time_scale_of
from spanwise.results.rows import AnyRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@picture
def pauses(rows: AnyRows, ax: Axes | None = None) -> Axes:
    """Draw the cumulative distribution of call times, one line per phase at the calls' start.

    `rows`: with columns `phase` and `ns`, as `CollectedHeap.pauses`.
    """
    ax = ax or new_axes()
    scale = _time_axis(ax, rows["ns"], "time of a call")
    for i, phase in enumerate(sorted(set(rows["phase"].tolist()))):
        times = np.sort(rows["ns"][rows["phase"] == phase].astype(float)) / scale
        share = np.arange(1, len(times) + 1) * 100 / len(times)
        label = f"{phase} ({len(times)})"
        ax.step(times, share, where="post", ls=LINES[i % len(LINES)], marker="o", ms=3, label=label)
    ax.set_ylabel("calls that took no longer, %")
    ax.set_title("calls that stop the program")
    ax.set_ylim(0, 105)
    if len(rows):
        ax.legend(title="began while")
    return ax


@picture
def cycles(rows: AnyRows, ax: Axes | None = None) -> Axes:
    """Draw the bytes that each cycle kept and freed, as stacked bars.

    `rows`: as `CollectedHeap.cycles`.
    """
    ax = ax or new_axes()
    parts = {"kept": "marked_bytes", "freed": "freed_bytes", "freed by hand": "pending_bytes"}
    names = rows.dtype.names or ()
    columns = {
        label: rows[name].astype(float) if name in names else np.zeros(0)
        for label, name in parts.items()
    }
    most = max((float(np.max(column, initial=0)) for column in columns.values()), default=0.0)
    scale, unit = scale_of(most)
    bottom = np.zeros(len(rows))
    for (label, column), hatch in zip(columns.items(), ("", "///", "..."), strict=False):
        if column.any():
            looks: dict[str, Any] = {"hatch": hatch, "edgecolor": "white", "linewidth": 0}
            ax.bar(rows["number"], column / scale, bottom=bottom, label=label, width=0.8, **looks)
            bottom += column / scale
    ax.set_xlabel("cycle")
    ax.set_ylabel(f"slots, {unit}")
    ax.set_title("what each cycle kept and freed")
    if bottom.any():
        ax.legend()
    return ax


@picture
def pause_histogram(rows: AnyRows, ax: Axes | None = None) -> Axes:
    """Draw the number of pauses by length, on a logarithmic axis.

    `rows`: with columns `from_ns`, `to_ns` and `calls`, as `spanwise.pause_histogram`.
    """
    ax = ax or new_axes()
    scale = _time_axis(ax, rows["to_ns"], "length of a pause")
    edges = np.r_[rows["from_ns"], rows["to_ns"][-1:]].astype(float) / scale
    if len(rows):
        ax.stairs(rows["calls"].astype(float), edges, fill=True)
        ax.set_xscale("log" if edges[0] > 0 else "linear")
    ax.set_ylabel("pauses")
    ax.set_title("pauses by their length")
    return ax


@picture
def utilisation(rows: AnyRows, ax: Axes | None = None) -> Axes:
    """Draw the minimum mutator utilisation by length of the window.

    `rows`: with columns `window_ns` and `utilisation`, as `spanwise.mutator_utilisation`.
    """
    ax = ax or new_axes()
    scale = _time_axis(ax, rows["window_ns"], "length of a window")
    ax.plot(rows["window_ns"] / scale, rows["utilisation"] * 100, marker="o", ms=3)
    if len(rows):
        ax.set_xscale("log")
    ax.set_ylim(0, 105)
    ax.set_ylabel("least left to the program, %")
    ax.set_title("what pauses leave to the program")
    return ax


LANE_NAMES = ("mutator", "assist", "mark", "sweep", "pause", "wait", "finalize", "cycle")
"""The lanes from top to bottom. A lane without events is omitted."""


@picture
def lanes(rows: AnyRows, mutator: AnyRows, ax: Axes | None = None) -> Axes:
    """Draw the events of a collector over time, one lane per kind.

    Args:
        rows: with columns `kind`, `start_ns` and `ns`, as `CollectorEvents.array`.
        mutator: when the program ran, as `CollectorEvents.mutator`.
        ax: where to draw; None makes a new figure.
    """
    ax = ax or new_axes(height=3.2)
    found = {name: rows[rows["kind"] == name] for name in LANE_NAMES} | {"mutator": mutator}
    shown = [name for name in LANE_NAMES if len(found[name])]
    ends = [found[name]["start_ns"] + found[name]["ns"] for name in shown]
    scale = _time_axis(ax, np.concatenate([np.ones(1), *ends]), "time since the heap was made")
    for lane, name in enumerate(shown):
        mine = found[name]
        bars = list(zip(mine["start_ns"] / scale, mine["ns"] / scale, strict=True))
        colour = COLOURS[LANE_NAMES.index(name) % len(COLOURS)]
        ax.broken_barh(bars, (lane - 0.4, 0.8), color=colour, lw=0.5)
    ax.set_yticks(range(len(shown)), [f"{name} ({len(found[name])})" for name in shown])
    ax.invert_yaxis()
    ax.set_title("what the collector did, by kind of event")
    return ax


def _time_axis(ax: Axes, times_ns: NDArray[Any], what: str) -> int:
    """Label the time axis in a unit for the longest time; return the unit's nanoseconds."""
    scale, unit = time_scale_of(float(np.max(times_ns, initial=1)))
    ax.set_xlabel(f"{what}, {unit}")
    return scale
