# SPDX-License-Identifier: Apache-2.0
"""Pictures that compare allocators, services and placement policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spanwise.plots.style import (
    COLOURS,
    LINES,
    MARKERS,
    add_legend,
    new_axes,
    picture,
    scale_of,
    time_scale_of,
)
from spanwise.results.rows import AnyRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.measure.bench_result import BenchResult


@picture
def bench(found: BenchResult, ax: Axes | None = None) -> Axes:
    """Draw the peak RSS of each case, one row per case and one mark per allocator.

    A bar is the confidence interval of the median; a ring is the prediction. The title has the
    date, commit and machine of the measurement, if the result has them.
    """
    rows = found.array
    cases = found.cases
    own = ax is None
    ax = ax or new_axes(height=1.6 + 0.5 * len(cases))
    scale, unit = scale_of(float(np.nanmax(rows["rss_bytes"], initial=1.0)))
    names = found.allocators
    for i, name in enumerate(names):
        mine = rows[(rows["allocator"] == name) & (rows["runs"] > 0)]
        shift = (i - (len(names) - 1) / 2) * 0.8 / len(names)
        places = [cases.index((row["program"], row["input"])) + shift for row in np.asarray(mine)]
        colour = COLOURS[i % len(COLOURS)]
        ax.hlines(
            places,
            mine["rss_low_bytes"] / scale,
            mine["rss_high_bytes"] / scale,
            color=colour,
            linewidth=3,
            alpha=0.4,
        )
        ax.plot(
            mine["rss_bytes"] / scale,
            places,
            marker=MARKERS[i % len(MARKERS)],
            markersize=5,
            linestyle="",
            color=colour,
            label=name,
        )
        _predicted(ax, mine["predicted_rss_bytes"] / scale, places, colour)
    ax.set_yticks(range(len(cases)), [", ".join(filter(None, case)) for case in cases])
    ax.set_ylim(len(cases) - 0.5, -0.5)
    for place in range(1, len(cases)):
        ax.axhline(place - 0.5, color="#CCCCCC", linewidth=0.6)
    ax.set_xlim(0, 1.05 * ax.dataLim.x1)  # markers at the edge are whole
    ax.set_xlabel(f"peak RSS, {unit} (median and its interval; ring: predicted)")
    ax.set_title("\n".join(filter(None, ("programs under allocators, in turns", found.measured))))
    add_legend(ax, own, columns=6)
    return ax


def _predicted(ax: Axes, values: np.ndarray, places: list[float], colour: str) -> None:
    known = ~np.isnan(values)
    if known.any():
        ax.plot(
            values[known],
            np.array(places)[known],
            marker="o",
            markersize=10,
            markerfacecolor="none",
            linestyle="",
            color=colour,
        )


# --- latencies ------------------------------------------------------------------------------------

TICKS = (0.0, 90.0, 99.0, 99.9, 99.99, 99.999)


class _Run(Protocol):
    """A run with latencies, such as a ServiceRun."""

    @property
    def strategy(self) -> str: ...

    @property
    def messages(self) -> int: ...

    def latency_ns(self, percent: float) -> float:
        """Return the latency that this percentage of messages does not exceed."""
        ...


@picture
def latencies(runs: Sequence[_Run], ax: Axes | None = None) -> Axes:
    """Draw latency against the percentage of messages that do not exceed it, one line per run.

    The x axis is that of HdrHistogram: each step to the right leaves a tenth of the messages. The
    `runs` must have latencies.
    """
    ax = ax or new_axes()
    lines = []
    for run in runs:
        above = np.logspace(0, -np.log10(max(run.messages, 2)), 200)
        lines.append((run.strategy, 1 / above, [run.latency_ns(100 * (1 - x)) for x in above]))
    scale, unit = time_scale_of(max((max(times) for _, _, times in lines), default=1.0))
    for i, (label, ranks, times) in enumerate(lines):
        line = LINES[i % len(LINES)]
        ax.step(ranks, np.array(times) / scale, where="post", ls=line, label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    last = max((ranks[-1] for _, ranks, _ in lines), default=10.0)
    shown = [percent for percent in TICKS if 1 / (1 - percent / 100) <= last * 1.01]
    ax.set_xticks([1 / (1 - percent / 100) for percent in shown], [f"{p:g}" for p in shown])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("messages that took no longer, %")
    ax.set_ylabel(f"latency, {unit}")
    ax.set_title("latency of messages")
    if lines:
        ax.legend()
    return ax


# --- collectors -----------------------------------------------------------------------------------


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
    own, ax = ax is None, ax or new_axes()
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
    ax.locator_params("x", integer=True)
    if bottom.any():
        add_legend(ax, own)
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
    scale, unit = time_scale_of(float(np.max(times_ns, initial=1)), ax.xaxis)
    ax.set_xlabel(f"{what}, {unit}")
    return scale
