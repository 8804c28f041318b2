# SPDX-License-Identifier: Apache-2.0
"""Pictures of arenas: how long each lived, and what it held at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spanwise.plots.style import in_style, new_axes, time_scale_of
from spanwise.results.rows import AnyRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@in_style
def arena_lifetimes(rows: AnyRows, ax: Axes | None = None) -> Axes:
    """A line an arena from its creation to its end, the first one at the bottom; alerts as dashes.

    An arena that was not freed is drawn to the last event, in another colour. One whose creation
    is not among the rows begins at the first event.

    Args:
        rows: what `ArenaTracker.events` gave.
        ax: where to draw; None makes a new figure.
    """
    ax = ax or new_axes()
    times = np.asarray(rows["time_ns"]).astype(float)
    first, last = (float(times.min()), float(times.max())) if len(times) else (0.0, 1.0)
    scale, unit = time_scale_of(max(last - first, 1.0))
    made = dict(_times(rows, "arena.new"))
    freed = dict(_times(rows, "arena.free"))
    for arenas, colour, label in (
        (sorted(freed), "#0072B2", "freed"),
        (sorted(set(made) - set(freed)), "#D55E00", "not freed"),
    ):
        starts = [(made.get(arena, first) - first) / scale for arena in arenas]
        ends = [(freed.get(arena, last) - first) / scale for arena in arenas]
        if arenas:
            ax.hlines(arenas, starts, ends, colors=colour, lw=2, label=f"{label} ({len(arenas)})")
    for i, (_, when) in enumerate(_times(rows, "arena.alert")):
        label = "alert" if i == 0 else ""
        ax.axvline((when - first) / scale, color="black", lw=1, ls="--", label=label)
    ax.set_xlabel(f"time since the first event, {unit}")
    ax.set_ylabel("arena, by its number")
    ax.set_title("lives of arenas")
    if len(rows):
        ax.legend()
    return ax


def _times(rows: AnyRows, event: str) -> list[tuple[int, float]]:
    """The times of the events of one kind, by the arena's number."""
    mine = rows[np.asarray(rows["event"]) == event]
    return list(zip(mine["arena"].tolist(), mine["time_ns"].astype(float).tolist(), strict=True))
