# SPDX-License-Identifier: Apache-2.0
"""Heap maps as cells for the page's script: over time, and the call sites of each cell."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise.heap.heap_map import HeapMap
from spanwise.plots import raster
from spanwise.report.stacks import chain_of

if TYPE_CHECKING:
    from spanwise.recordings.live_sites import LiveSite

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
    maps: Sequence[HeapMap], peak: HeapMap, sites: Sequence[LiveSite], row_of: dict[int, int]
) -> dict[str, Any]:
    """Return which sites have live objects in the spans of each cell.

    Args:
        maps: those of `frames_of`, with the same cells.
        peak: the map of the peak with its objects.
        sites: the sites of the page's table.
        row_of: index in `sites` by the number of a site; the others are counted together.

    Returns:
        For each site its name and its innermost frame in the flame graph, and for each site and
        for all others together the objects in each cell's spans, at most COUNT_MAX.
    """
    end, cell_bytes = _grid(maps)
    assert peak.placed is not None
    tiles = peak.array
    tile = np.searchsorted(tiles["offset"], peak.placed["offset"], side="right") - 1
    known, place = np.unique(peak.placed["site"], return_inverse=True)
    rows = np.array([row_of.get(one, len(sites)) for one in known.tolist()], np.int64)[place]
    of_tile = np.zeros((len(tiles), len(sites) + 1), np.int64)
    np.add.at(of_tile, (tile, rows), 1)
    of_cell = np.zeros((max(1, -(-end // cell_bytes)), len(sites) + 1), np.int64)
    cell, tile, _ = raster.pieces(peak, cell_bytes)
    np.add.at(of_cell, cell, of_tile[tile])
    counts = np.minimum(of_cell, COUNT_MAX).astype(np.uint8)
    chains = [chain_of(site) for site in sites]
    return {
        "names": [" < ".join(chain[:2]) for chain in chains],
        "frames": [chain[0] for chain in chains],
        "counts": [_encoded(row) for row in counts.T],
    }
