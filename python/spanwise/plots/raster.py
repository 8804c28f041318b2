# SPDX-License-Identifier: Apache-2.0
"""Converts a heap map to a grid of cells, each of one or several pages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.heap.heap_map import HeapMap

SLOTS, LARGE, FREE, NOT_HELD = 0, 1, 2, 3
"""The kinds of cells: those of tiles, and pages that the heap does not hold."""

MOST_CELLS = 1 << 17


@dataclass(frozen=True)
class Grid:
    """Cells of a heap, in the order of its pages.

    Attributes:
        kind: kind of the largest part of each cell.
        value: mean of the measure over the bytes of spans of slots in each cell; NaN: unknown.
        first: whether a tile begins in each cell.
        cell_bytes: bytes of a cell, a power of two of pages.
    """

    kind: NDArray[np.uint8]
    value: NDArray[np.float32]
    first: NDArray[np.bool_]
    cell_bytes: int

    @property
    def width(self) -> int:
        """Cells per row: a power of two, so that a row is a round number of bytes."""
        cells = max(len(self.kind), 32)
        return 1 << int(np.ceil(np.log2(np.sqrt(2 * cells))))


def cell_bytes_of(end: int, page_bytes: int, most: int = MOST_CELLS) -> int:
    """Return the bytes of a cell for which a heap of `end` bytes has at most `most` cells."""
    cell = page_bytes
    while -(-end // cell) > most:
        cell *= 2
    return cell


def end_of(one: HeapMap) -> int:
    """Return the end of the last tile."""
    tiles = one.array
    return int(tiles["offset"][-1] + tiles["bytes"][-1]) if len(tiles) else 0


def grid_of(one: HeapMap, value: NDArray[np.float64], end: int, cell_bytes: int) -> Grid:
    """Rasterise tiles into cells.

    Args:
        one: the map.
        value: the measure of each tile.
        end: bytes that the grid covers.
        cell_bytes: of each cell.
    """
    cells, tiles = max(1, -(-end // cell_bytes)), one.array
    share = np.zeros((4, cells))
    known, weight = np.zeros(cells), np.zeros(cells)
    slots = np.asarray(tiles["kind"]) == SLOTS
    cell, tile, amount = pieces(one, cell_bytes)
    np.add.at(share, (tiles["kind"][tile], cell), amount)
    drawn = slots[tile] & ~np.isnan(value[tile])
    np.add.at(known, cell[drawn], amount[drawn] * value[tile][drawn])
    np.add.at(weight, cell[drawn], amount[drawn])
    share[NOT_HELD] = np.maximum(cell_bytes - share.sum(axis=0), 0)
    first = np.zeros(cells, bool)
    first[np.asarray(tiles["offset"], np.int64) // cell_bytes] = True
    with np.errstate(invalid="ignore"):
        mean = (known / weight).astype(np.float32)
    return Grid(share.argmax(axis=0).astype(np.uint8), mean, first, cell_bytes)


def pieces(
    one: HeapMap, cell_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the cell, tile and bytes of each overlap of a tile with a cell."""
    start = np.asarray(one.array["offset"], np.int64)
    end = start + np.asarray(one.array["bytes"], np.int64)
    first, last = start // cell_bytes, (end - 1) // cell_bytes
    count = last - first + 1
    tile = np.repeat(np.arange(len(start)), count)
    begin = np.cumsum(count) - count
    cell = first[tile] + np.arange(len(tile)) - begin[tile]
    low = np.maximum(start[tile], cell * cell_bytes)
    high = np.minimum(end[tile], (cell + 1) * cell_bytes)
    return cell, tile, (high - low).astype(np.float64)


# --- codes ----------------------------------------------------------------------------------------

LARGE_CODE, FREE_CODE, NO_VALUE_CODE, NOT_HELD_CODE = 101, 102, 103, 255
"""Codes of cells; 0 to 100 are values of spans of slots, in percent of the colour scale."""


def codes(
    one: HeapMap, value: NDArray[np.float64], most: float, end: int, cell_bytes: int
) -> NDArray[np.uint8]:
    """Return the cells of a map as one byte each, for an HTML page or a widget.

    Args:
        one: the map.
        value: the measure of each tile.
        most: the end of the colour scale.
        end: bytes that the cells cover.
        cell_bytes: of each cell.
    """
    grid = grid_of(one, value, end, cell_bytes)
    known = ~np.isnan(grid.value)
    found = np.full(len(grid.kind), NO_VALUE_CODE, np.uint8)
    found[known] = np.round(np.clip(grid.value[known] / most, 0, 1) * 100)
    for kind, code in ((LARGE, LARGE_CODE), (FREE, FREE_CODE), (NOT_HELD, NOT_HELD_CODE)):
        found[grid.kind == kind] = code
    return found


def moment(one: HeapMap) -> str:
    """Return the time, operation, bytes and objects of a map, as text."""
    ledger = one.ledger
    op = ledger.stats.ops if ledger.stats else 0
    resident = ledger.resident_bytes
    parts = [
        f"{_format.seconds(ledger.time_ns)}, operation {op:,}",
        f"{_format.size(resident)} resident" if resident is not None else "",
        f"{_format.size(ledger.held_bytes)} held",
        f"{_format.size(ledger.requested_bytes)} requested",
        f"{_format.plural(ledger.live_objects, 'object')} live",
    ]
    return "; ".join(filter(None, parts))
