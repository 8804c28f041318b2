# SPDX-License-Identifier: Apache-2.0
"""Pictures. Each function draws on an Axes, or on one of a new figure, and returns it.

Public: all that is named here. Pictures know the models; a model's `plot` imports this room when it
is called. matplotlib is imported at the first picture, since it takes longer than all else.
"""

from __future__ import annotations

from spanwise.plots.arenas import arena_lifetimes
from spanwise.plots.by_class import waste_by_class
from spanwise.plots.classes import pareto
from spanwise.plots.holders import span_pinning
from spanwise.plots.lives import lifetimes
from spanwise.plots.maps import heap_map, save_frames
from spanwise.plots.memory import ledgers, occupancy, replays, timeline
from spanwise.plots.placements import extents
from spanwise.plots.programs import bench
from spanwise.plots.saving import check_place, save
from spanwise.plots.sizes import boundaries, histogram, waste
from spanwise.plots.spans import slots
from spanwise.plots.style import PART_COLOURS, STYLE, new_axes
from spanwise.plots.widget import map_widget

__all__ = [
    "PART_COLOURS",
    "STYLE",
    "arena_lifetimes",
    "bench",
    "boundaries",
    "check_place",
    "extents",
    "heap_map",
    "histogram",
    "ledgers",
    "lifetimes",
    "map_widget",
    "new_axes",
    "occupancy",
    "pareto",
    "replays",
    "save",
    "save_frames",
    "slots",
    "span_pinning",
    "timeline",
    "waste",
    "waste_by_class",
]
