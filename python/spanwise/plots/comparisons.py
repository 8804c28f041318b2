# SPDX-License-Identifier: Apache-2.0
"""Pictures that compare allocators, services and placement policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

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
