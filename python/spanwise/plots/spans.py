# SPDX-License-Identifier: Apache-2.0
"""A picture of one span: its slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.plots.maps import COLOUR_MAP
from spanwise.plots.style import in_style, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.heap.heap_map import HeapMap


@in_style
def slots(tiles: HeapMap, tile: int, ax: Axes | None = None) -> Axes:
    """The slots of one tile of a heap map, row by row; a free one has a dot.

    The colour is the share of a slot that was asked for. A large object is one slot.

    Args:
        tiles: the map, of `Heap.map` or `Recording.map`.
        tile: its index in `HeapMap.array`.
        ax: where to draw; None makes a new figure.

    Raises:
        InvalidError: there is no such tile, it has no slots, or the map was made without them.
    """
    rows = np.asarray(tiles.slots(tile))
    if not len(rows):
        raise InvalidError(f"tile {tile}: free pages have no slots")
    one = tiles.array[int(tile)]
    size = (int(one["bytes"]) - int(one["tail_bytes"])) // len(rows)
    width = 1 << int(np.ceil(np.log2(max(np.sqrt(2 * len(rows)), 1))))
    height = -(-len(rows) // width)
    share = np.full(height * width, np.nan)
    share[: len(rows)] = np.where(rows["live"], rows["requested_bytes"] / size, np.nan)
    ax = ax or new_axes(height=1.6 + 0.24 * min(height, 24))
    mesh = ax.pcolormesh(
        np.ma.masked_invalid(share.reshape(height, width)),
        cmap=COLOUR_MAP,
        vmin=0,
        vmax=1,
        edgecolors="white",
        linewidth=0.5,
    )
    free = np.flatnonzero(~rows["live"])
    ax.plot(free % width + 0.5, free // width + 0.5, ".", ms=3, color="#777777", label="free slot")
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    ax.grid(visible=False)
    ax.set_xticks([])
    steps = range(0, height, max(1, -(-height // 8)))
    ax.set_yticks([row + 0.5 for row in steps], [f"{row * width:,}" for row in steps])
    ax.set_xlabel(f"slots of {_format.size(size)}, {width} a row; a dot is a free one")
    ax.set_ylabel("first slot of the row")
    figure: Any = ax.figure
    figure.colorbar(mesh, ax=ax, fraction=0.04, pad=0.02).set_label("asked for, of the slot")
    told = tiles.ledger
    live = len(rows) - len(free)
    where = _format.size(int(one["offset"]))
    ax.set_title(
        f"{told.source or 'heap'} at {told.at}, table {told.table}:\n"
        f"span at {where}, {live:,} of {_format.plural(len(rows), 'slot')} in use"
    )
    return ax
