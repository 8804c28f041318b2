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
    set_log_x,
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
def pauses(rows: AnyRows, ax: Axes | None = None, *, label: str = "") -> Axes:
    """Draw the cumulative distribution of the lengths of pauses, on a logarithmic axis.

    Args:
        rows: with columns `phase` and `ns`, as `CollectedHeap.pauses`.
        ax: where to draw; None makes a new figure.
        label: of one line for all pauses; "": a line per phase in which they began.
    """
    ax = ax or new_axes()
    scale = _time_axis(ax, rows["ns"], "length of a pause")
    phases = sorted(set(rows["phase"].tolist()))
    lines = {phase: rows["ns"][rows["phase"] == phase] for phase in phases}
    for name, ns in ({label: rows["ns"]} if label else lines).items():
        times = np.sort(ns.astype(float)) / scale
        share = np.arange(1, len(times) + 1) * 100 / max(len(times), 1)
        named = f"{name} ({len(times)})"
        ax.step(times, share, where="post", ls=_next_line(ax), marker="o", ms=3, label=named)
    if len(rows):
        set_log_x(ax)
    ax.set_ylabel("pauses that are no longer, %")
    ax.set_title("pauses of the program")
    ax.set_ylim(0, 105)
    if label or len(ax.lines) > 1:
        ax.legend(title="" if label else "began while")
    return ax


def _next_line(ax: Axes) -> str:
    """Return the dashes of the next line on the Axes."""
    return LINES[len(ax.lines) % len(LINES)]


@picture
def cycles(rows: AnyRows, ax: Axes | None = None, *, label: str = "") -> Axes:
    """Draw the bytes that each cycle kept and freed, as stacked bars.

    Args:
        rows: as `CollectedHeap.cycles`.
        ax: where to draw; None makes a new figure.
        label: prefix in the legend; a line per part instead of bars, for several heaps on one Axes.
    """
    own, ax = ax is None, ax or new_axes()
    parts = {"kept": "marked_bytes", "freed": "freed_bytes", "freed by hand": "pending_bytes"}
    names = rows.dtype.names or ()
    columns = {
        part: rows[name].astype(float) if name in names else np.zeros(0)
        for part, name in parts.items()
    }
    most = max((float(np.max(column, initial=0)) for column in columns.values()), default=0.0)
    scale, unit = scale_of(most, ax.yaxis)
    bottom = np.zeros(len(rows))
    colour = None
    for i, (part, column) in enumerate(columns.items()):
        if not column.any():
            continue
        if label:
            looks: dict[str, Any] = {"ls": LINES[i], "marker": MARKERS[i], "ms": 3, "color": colour}
            (drawn,) = ax.plot(rows["number"], column / scale, label=f"{label}, {part}", **looks)
            colour = drawn.get_color()
        else:
            looks = {"hatch": _CYCLE_HATCHES[i], "edgecolor": "white", "linewidth": 0}
            ax.bar(rows["number"], column / scale, bottom=bottom, label=part, width=0.8, **looks)
            bottom += column / scale
    ax.set_xlabel("cycle")
    ax.set_ylabel(f"slots, {unit}")
    ax.set_title("what each cycle kept and freed")
    ax.locator_params("x", integer=True)
    if label:
        ax.set_ylim(bottom=0, auto=True)  # the next heap's lines may be higher
        ax.legend()
    elif bottom.any():
        add_legend(ax, own)
    return ax


_CYCLE_HATCHES = ("", "///", "...")


@picture
def pause_histogram(rows: AnyRows, ax: Axes | None = None, *, label: str = "") -> Axes:
    """Draw the number of pauses by length, on a logarithmic axis.

    Args:
        rows: with columns `from_ns`, `to_ns` and `calls`, as `spanwise.pause_histogram()`.
        ax: where to draw; None makes a new figure.
        label: of an outline, for several histograms on one Axes; "": filled.
    """
    ax = ax or new_axes()
    scale = _time_axis(ax, rows["to_ns"], "length of a pause")
    edges = np.r_[rows["from_ns"], rows["to_ns"][-1:]].astype(float) / scale
    if len(rows):
        line = LINES[len(ax.patches) % len(LINES)] if label else "-"
        looks: dict[str, Any] = {"ls": line, "label": label, "lw": 1.5} if label else {}
        ax.stairs(rows["calls"].astype(float), edges, fill=not label, **looks)
        if edges[0] > 0:
            set_log_x(ax)
    if label:
        ax.legend()
    ax.set_ylabel("pauses")
    ax.set_title("pauses by their length")
    return ax


@picture
def utilisation(rows: AnyRows, ax: Axes | None = None, *, label: str = "") -> Axes:
    """Draw the minimum mutator utilisation by length of the window.

    Args:
        rows: with columns `window_ns` and `utilisation`, as `spanwise.mutator_utilisation()`.
        ax: where to draw; None makes a new figure.
        label: of the line in the legend.
    """
    ax = ax or new_axes()
    scale = _time_axis(ax, rows["window_ns"], "length of a window")
    windows, shares, line = rows["window_ns"] / scale, rows["utilisation"] * 100, _next_line(ax)
    ax.plot(windows, shares, ls=line, marker="o", ms=3, label=label)
    if len(rows):
        set_log_x(ax)
    ax.set_ylim(0, 105)
    ax.set_ylabel("least left to the program, %")
    ax.set_title("what pauses leave to the program")
    if label:
        ax.legend()
    return ax


LANE_NAMES = ("mutator", "assist", "mark", "sweep", "pause", "wait", "finalize", "cycle")
"""The lanes from top to bottom. A lane without events is omitted."""

_PIXEL = 0.72
"""Width in points of a line of one pixel at matplotlib's default, 100 pixels per inch."""


@picture
def lanes(rows: AnyRows, mutator: AnyRows, ax: Axes | None = None) -> Axes:
    """Draw the events of a collector over time, one lane per kind; see `CollectorEvents`.

    The upper part of a lane is to scale, so many short events close together are a shade. In the
    lower third, each event is at least one pixel wide, and so is each pause in the lane of the
    mutator (the program). A label has the number of events; that of the mutator has its share of
    the time.

    Args:
        rows: with columns `kind`, `start_ns` and `ns`, as `CollectorEvents.array`.
        mutator: when the program ran, as `CollectorEvents.mutator()`.
        ax: where to draw; None makes a new figure.
    """
    ax = ax or new_axes(height=3.2)
    found = {name: rows[rows["kind"] == name] for name in LANE_NAMES} | {"mutator": mutator}
    shown = [name for name in LANE_NAMES if len(found[name])]
    ends = {name: (found[name]["start_ns"] + found[name]["ns"]).astype(float) for name in shown}
    last = max((float(times.max()) for times in ends.values()), default=1.0)
    scale = _time_axis(ax, np.array([last]), "time since the heap was made")
    for lane, name in enumerate(shown):
        mine = found[name]
        colour = COLOURS[LANE_NAMES.index(name) % len(COLOURS)]
        begun, ended = mine["start_ns"] / scale, ends[name] / scale
        if name == "mutator":  # one bar, and gaps over it: many short bars would be too pale
            whole = [(begun[0], ended[-1] - begun[0])]
            ax.broken_barh(whole, (lane - 0.4, 0.8), color=colour, lw=0, snap=False)
            begun, ended, colour = ended[:-1], begun[1:], "white"
        bars = list(zip(begun, ended - begun, strict=True))
        ax.broken_barh(bars, (lane - 0.4, 0.8), color=colour, lw=0, snap=False)
        ax.vlines((begun + ended) / 2, lane + 0.13, lane + 0.4, color=colour, lw=_PIXEL)
    labels = [f"{name} ({len(found[name])})" for name in shown]
    if len(mutator):
        share = float(mutator["ns"].sum()) / (last - float(mutator["start_ns"][0]))
        labels[0] = f"mutator, {np.floor(np.round(share * 1e4, 3)) / 100:g} %"  # never rounded up
    ax.set_yticks(range(len(shown)), labels)
    ax.invert_yaxis()
    ax.set_title("what the collector did, by kind of event")
    return ax


def _time_axis(ax: Axes, times_ns: NDArray[Any], what: str) -> int:
    """Label the time axis in a unit for the longest time; return the unit's nanoseconds."""
    scale, unit = time_scale_of(float(np.max(times_ns, initial=1)), ax.xaxis)
    ax.set_xlabel(f"{what}, {unit}")
    return scale
