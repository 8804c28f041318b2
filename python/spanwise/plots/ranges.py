# SPDX-License-Identifier: Apache-2.0
"""Pictures of range allocators and scalable allocators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.plots.style import PART_COLOURS, add_legend, new_axes, picture, scale_of

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


@picture
def range_holes(ranges: RangeBase, ax: Axes | None = None) -> Axes:
    """Draw which parts of a range are taken and free, and where the largest request would go.

    Args:
        ranges: a RangeAllocator or BuddyAllocator.
        ax: where to draw; None makes a new figure.
    """
    own = ax is None
    ax = ax or new_axes(height=2.0)
    rows, stats, largest = ranges.holes(), ranges.stats(), ranges.largest_hole
    start, end = (rows["start"].astype(float), (rows["start"] + rows["size"]).astype(float))
    used = float(stats.size - stats.tail)
    low, high = np.append(0.0, end), np.append(start, used)
    at = ranges.find(largest) if largest else None
    parts = {
        "taken": [(a, b - a) for a, b in zip(low, high, strict=True) if b > a],
        "free": list(zip(start, end - start, strict=True)),
        "largest hole": [] if at is None else [(float(at), float(largest))],
    }
    for name, found in parts.items():
        ax.broken_barh(found, (0, 1), **LOOKS[name], linewidth=0, label=name)
    ax.set_xlim(0, float(stats.size))
    ax.set_ylim(0, 1)
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.locator_params(axis="x", nbins=6)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("offset")
    ax.set_title(
        f"{type(ranges).__name__}, {ranges.backend}: {stats.free_size:,} of {stats.size:,} free in"
        f" {_format.plural(len(rows), 'hole')}, the largest {largest:,}"
    )
    add_legend(ax, own)
    return ax


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
        f" the largest hole {_format.size(int(hole.max(initial=0)))}"
    )
    add_legend(ax, own)
    return ax
