# SPDX-License-Identifier: Apache-2.0
"""Pictures: each function draws on the given Axes, or on a new figure, and returns the Axes.

To draw several in a figure, use `plt.subplots(2, 2, layout="constrained")`.

Modules register their functions in PICTURES, where `results.rows.draw` finds them for the `plot()`
methods of models. matplotlib is imported for the first picture, because the import is slow.
"""

from __future__ import annotations

from spanwise.plots.comparisons import (
    bench,
    cycles,
    lanes,
    latencies,
    pause_histogram,
    pauses,
    utilisation,
)
from spanwise.plots.maps import heap_map, save_frames, slots
from spanwise.plots.memory import ledgers, occupancy, replays, timeline, waste_by_class
from spanwise.plots.ranges import range_holes, scalable_children
from spanwise.plots.sizes import (
    arena_lifetimes,
    boundaries,
    histogram,
    lifetimes,
    pareto,
    span_pinning,
    waste,
)
from spanwise.plots.style import PART_COLOURS, PICTURES, STYLE, check_place, new_axes, save
from spanwise.plots.widget import explore, map_widget

__all__ = [
    "PART_COLOURS",
    "PICTURES",
    "STYLE",
    "arena_lifetimes",
    "bench",
    "boundaries",
    "check_place",
    "cycles",
    "explore",
    "heap_map",
    "histogram",
    "lanes",
    "latencies",
    "ledgers",
    "lifetimes",
    "map_widget",
    "new_axes",
    "occupancy",
    "pareto",
    "pause_histogram",
    "pauses",
    "range_holes",
    "replays",
    "save",
    "save_frames",
    "scalable_children",
    "slots",
    "span_pinning",
    "timeline",
    "utilisation",
    "waste",
    "waste_by_class",
]


def __dir__() -> list[str]:
    return __all__
