# SPDX-License-Identifier: Apache-2.0
"""The frames of the page's heap map: one byte a cell."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.heap.heap_map import HeapMap
from spanwise.plots import raster

MOST_CELLS = 8192
LARGE, FREE, NOT_HELD = 101, 102, 255
"""Beside 0 to 100, which is the percentage of slots in use."""


def codes(one: HeapMap, end: int, cell_bytes: int) -> NDArray[np.uint8]:
    """The cells of a map."""
    grid = raster.grid_of(one, one.occupancy, end, cell_bytes)
    found = np.round(np.nan_to_num(grid.value) * 100).astype(np.uint8)
    for kind, code in ((raster.LARGE, LARGE), (raster.FREE, FREE), (raster.NOT_HELD, NOT_HELD)):
        found[grid.kind == kind] = code
    return found


def frames_of(maps: Sequence[HeapMap], place: Callable[[int, int], float]) -> dict[str, Any]:
    """What the script draws of maps through time.

    Args:
        maps: the maps.
        place: where an operation and its time are in the ledger over time.
    """
    end = max(map(raster.end_of, maps), default=0)
    page = maps[0].page_bytes if maps else 1
    cell = raster.cell_bytes_of(end, page, MOST_CELLS)
    cells = max(1, -(-end // cell))
    width = 1 << int(np.ceil(np.log2(np.sqrt(4 * cells))))
    return {
        "width": width,
        "height": -(-cells // width),
        "cell": _format.size(cell),
        "row": _format.size(width * cell),
        "frames": [_frame(one, codes(one, end, cell), place) for one in maps],
    }


def _frame(
    one: HeapMap, cells: NDArray[np.uint8], place: Callable[[int, int], float]
) -> dict[str, Any]:
    ledger = one.ledger
    op = ledger.stats.ops if ledger.stats else 0
    resident = ledger.resident_bytes
    said = [
        f"{_format.seconds(ledger.time_ns)}, operation {op:,}",
        f"{_format.size(ledger.held_bytes)} held",
        f"{_format.size(resident)} resident" if resident is not None else "",
        f"{_format.size(ledger.requested_bytes)} requested",
        f"{_format.plural(ledger.live_objects, 'object')} live",
    ]
    return {
        "at": ledger.at,
        "op": op,
        "x": round(place(op, ledger.time_ns), 1),
        "text": "; ".join(filter(None, said)),
        "cells": base64.b64encode(cells.tobytes()).decode("ascii"),
    }
