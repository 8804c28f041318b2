# SPDX-License-Identifier: Apache-2.0
"""Heap maps as one byte a cell, and their moments in words: what a page or a widget draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.heap.heap_map import HeapMap
from spanwise.plots import raster

LARGE, FREE, NO_VALUE, NOT_HELD = 101, 102, 103, 255
"""Codes beside 0 to 100; these tell the value of a span of slots, in percent of the colour
scale."""


def codes(
    one: HeapMap, value: NDArray[np.float64], most: float, end: int, cell_bytes: int
) -> NDArray[np.uint8]:
    """The cells of a map.

    Args:
        one: the map.
        value: what is shown of each tile.
        most: where the colours end.
        end: bytes that the cells cover.
        cell_bytes: of each cell.
    """
    grid = raster.grid_of(one, value, end, cell_bytes)
    known = ~np.isnan(grid.value)
    found = np.full(len(grid.kind), NO_VALUE, np.uint8)
    found[known] = np.round(np.clip(grid.value[known] / most, 0, 1) * 100)
    for kind, code in ((raster.LARGE, LARGE), (raster.FREE, FREE), (raster.NOT_HELD, NOT_HELD)):
        found[grid.kind == kind] = code
    return found


def moment(one: HeapMap) -> str:
    """The moment of a map in words: time, operation, bytes and objects."""
    ledger = one.ledger
    op = ledger.stats.ops if ledger.stats else 0
    resident = ledger.resident_bytes
    said = [
        f"{_format.seconds(ledger.time_ns)}, operation {op:,}",
        f"{_format.size(resident)} resident" if resident is not None else "",
        f"{_format.size(ledger.held_bytes)} held",
        f"{_format.size(ledger.requested_bytes)} requested",
        f"{_format.plural(ledger.live_objects, 'object')} live",
    ]
    return "; ".join(filter(None, said))
