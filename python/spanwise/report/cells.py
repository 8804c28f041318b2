# SPDX-License-Identifier: Apache-2.0
"""Heap maps as cells for the page's script: over time, and the call sites of each cell."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise.heap.heap_map import HeapMap
from spanwise.plots import raster

MOST_CELLS = 8192
COUNT_MAX = 255
"""A count of objects in a cell is a byte; 255 means at least 255."""


def frames_of(maps: Sequence[HeapMap], place: Callable[[int, int], float]) -> dict[str, Any]:
    """Return the heap maps over time as data for the page's script.

    `place` returns the x coordinate in the time line of an operation and its time.
    """
    end, cell = _grid(maps)
    count = max(1, -(-end // cell))
    width = 1 << int(np.ceil(np.log2(np.sqrt(4 * count))))
    return {
        "width": width,
        "cell_bytes": cell,
        "frames": [
            _frame(one, raster.codes(one, one.occupancy, 1.0, end, cell), place) for one in maps
        ],
    }


def _grid(maps: Sequence[HeapMap]) -> tuple[int, int]:
    """Return the bytes that the cells cover, and those of a cell."""
    end = max(map(raster.end_of, maps), default=0)
    return end, raster.cell_bytes_of(end, maps[0].page_bytes if maps else 1, MOST_CELLS)


def _frame(
    one: HeapMap, drawn: NDArray[np.uint8], place: Callable[[int, int], float]
) -> dict[str, Any]:
    ledger = one.ledger
    op = ledger.stats.ops if ledger.stats else 0
    return {
        "at": ledger.at,
        "op": op,
        "x": round(place(op, ledger.time_ns), 1),
        "resident": ledger.resident_bytes or 0,
        "text": raster.moment(one),
        "cells": _encoded(drawn),
    }


def _encoded(values: NDArray[np.uint8]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def holders_of(
    maps: Sequence[HeapMap], peak: HeapMap, row_of: dict[int, int], sites: int
) -> list[str]:
    """Return which sites have live objects in the spans of each cell.

    Args:
        maps: those of `frames_of`, with the same cells.
        peak: the map of the peak with its objects.
        row_of: row in the page's table by the number of a site; others are counted together.
        sites: number of rows of the page's table.

    Returns:
        For each site and for all others together the objects in each cell's spans, at most
        COUNT_MAX.
    """
    end, cell_bytes = _grid(maps)
    assert peak.placed is not None
    tiles = peak.array
    tile = np.searchsorted(tiles["offset"], peak.placed["offset"], side="right") - 1
    known, place = np.unique(peak.placed["site"], return_inverse=True)
    rows = np.array([row_of.get(one, sites) for one in known.tolist()], np.int64)[place]
    of_tile = np.zeros((len(tiles), sites + 1), np.int64)
    np.add.at(of_tile, (tile, rows), 1)
    of_cell = np.zeros((max(1, -(-end // cell_bytes)), sites + 1), np.int64)
    cell, tile, _ = raster.pieces(peak, cell_bytes)
    np.add.at(of_cell, cell, of_tile[tile])
    counts = np.minimum(of_cell, COUNT_MAX).astype(np.uint8)
    return [_encoded(row) for row in counts.T]
