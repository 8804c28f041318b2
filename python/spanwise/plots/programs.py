# SPDX-License-Identifier: Apache-2.0
"""Pictures of real programs under allocators: peak RSS, measured and predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spanwise.plots.style import COLOURS, MARKERS, in_style, new_axes, scale_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.measure.bench_result import BenchResult


@in_style
def bench(found: BenchResult, ax: Axes | None = None) -> Axes:
    """The peak RSS of each case: a row a case, a mark an allocator.

    A bar behind a mark is the interval of its median; a ring is what was predicted. The title says
    when, of which commit and on what machine it was measured, if the result knows.

    Args:
        found: the result.
        ax: where to draw; None makes a new figure.
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
    ax.set_xlim(left=0)
    ax.set_xlabel(f"peak RSS, {unit} (median and its interval; ring: predicted)")
    ax.set_title("\n".join(filter(None, ("programs under allocators, in turns", found.measured))))
    if own:
        ax.figure.legend(loc="outside lower left", ncols=6)
    else:
        ax.legend()
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
