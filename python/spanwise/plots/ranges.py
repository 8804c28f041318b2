# SPDX-License-Identifier: Apache-2.0
"""Pictures of range allocators and scalable allocators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.plots.style import PART_COLOURS, add_legend, new_axes, picture, scale_of, ticks_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.ranges.allocators import RangeBase
    from spanwise.ranges.scalable import ScalableAllocator

LOOKS: dict[str, dict[str, Any]] = {
    "taken": {"facecolor": PART_COLOURS["requested_bytes"]},
    "free": {"facecolor": PART_COLOURS["free_page_bytes"]},
    "largest hole": {"facecolor": "#E69F00", "hatch": "////", "edgecolor": "white"},
}
"""The colours of the parts of a range."""


_MOST_COLUMNS = 600
"""About one per pixel of a figure of our own."""


@picture
def range_holes(ranges: RangeBase, ax: Axes | None = None) -> Axes:
    """Draw which parts of a range are taken and free, and where the largest request would go.

    If a hole or a taken part is narrower than a pixel, the range is drawn as up to 600 columns, and
    the height of each is the share of it that is taken. The largest hole is marked at any width.

    Args:
        ranges: a RangeAllocator or BuddyAllocator.
        ax: where to draw; None makes a new figure.
    """
    own = ax is None
    ax = ax or new_axes(height=2.0)
    rows, stats, largest = ranges.holes(), ranges.stats(), ranges.largest_hole
    columns = _MOST_COLUMNS if own else min(int(ax.get_window_extent().width), _MOST_COLUMNS)
    edges = _edges(rows, stats.size - stats.tail, columns)
    taken = 1 - _free_in(rows, edges) / np.diff(edges)
    ax.stairs(taken, edges, fill=True, **LOOKS["taken"], linewidth=0, label="taken")
    free: dict[str, Any] = {"baseline": taken, "label": "free"} | LOOKS["free"]
    ax.stairs(np.ones(len(taken)), edges, fill=True, linewidth=0, **free)
    at = ranges.find(largest) if largest else None
    if at is not None:
        looks = LOOKS["largest hole"] | {"label": f"largest hole, {largest:,}"}
        if largest < stats.size / _NARROW:
            ax.vlines(at + largest / 2, 0, 1, lw=2, color=looks["facecolor"], label=looks["label"])
        else:
            ax.broken_barh([(float(at), float(largest))], (0, 1), linewidth=0, **looks)
    ax.set_xlim(0, float(stats.size))
    ax.set_ylim(0, 1)
    if len(edges) > columns:
        ax.set_yticks([0, 0.5, 1], ["0", "50", "100"])
        ax.set_ylabel("taken, %")
    else:
        ax.set_yticks([])
    ax.grid(visible=False)
    ax.locator_params(axis="x", nbins=min(ticks_in(ax), 6))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("offset")
    ax.set_title(
        f"{type(ranges).__name__}, {ranges.backend}: {_format.share(stats.free_size, stats.size)}"
        f" free in {_format.plural(len(rows), 'hole')}"
    )
    add_legend(ax, own)
    return ax


_NARROW = 150
"""A hole of a smaller share of the range would be narrower than two pixels in a small Axes."""


def _edges(rows: NDArray[np.void], end: int, columns: int) -> NDArray[np.float64]:
    """Return the ends of holes, or of columns of equal width if those would be narrower."""
    exact = np.unique(np.r_[0, rows["start"], rows["start"] + rows["size"], end].astype(float))
    if np.diff(exact).min(initial=end) * columns >= end:
        return exact
    return np.linspace(0, end, columns + 1)


def _free_in(rows: NDArray[np.void], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the free part of each column."""
    start, size = rows["start"].astype(float), rows["size"].astype(float)
    total = np.cumsum(size)
    ends = np.column_stack([start, start + size]).ravel()
    free = np.column_stack([total - size, total]).ravel()
    if not len(ends):
        return np.zeros(len(edges) - 1)
    return np.diff(np.interp(edges, ends, free))


@picture
def scalable_children(allocator: ScalableAllocator, ax: Axes | None = None) -> Axes:
    """Draw a bar per large block of a scalable allocator, with the bytes of its parts.

    Args:
        allocator: the allocator.
        ax: where to draw; None makes a new figure.
    """
    own = ax is None
    rows = allocator.children()
    ax = ax or new_axes(height=1.6 + 0.3 * len(rows))
    scale, unit = scale_of(float(rows["size"].max(initial=0)))
    hole = rows["largest_hole"].astype(float)
    free = rows["free_size"].astype(float)
    left = np.zeros(len(rows))
    parts = {"taken": rows["size"] - free, "free": free - hole, "largest hole": hole}
    for name, sizes in parts.items():
        ax.barh(np.arange(len(rows)), sizes / scale, left=left, label=name, **LOOKS[name])
        left += sizes / scale
    ax.set_yticks(np.arange(len(rows)), [f"{one:#x}" for one in rows["address"]])
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"bytes by use, not by address, {unit}")
    ax.set_ylabel("large block at")
    total = _format.size(int(free.sum()))
    ax.set_title(
        f"{type(allocator).__name__}: {total} free in {_format.plural(len(rows), 'large block')},"
        f"\nthe largest hole {_format.size(int(hole.max(initial=0)))}"
    )
    add_legend(ax, own)
    return ax
