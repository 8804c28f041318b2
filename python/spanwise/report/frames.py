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


def frames_of(maps: Sequence[HeapMap], place: Callable[[int, int], float]) -> dict[str, Any]:
    """The data of maps through time that the page's script draws.

    Args:
        maps: the maps.
        place: where an operation and its time are in the ledger over time.
    """
    end = max(map(raster.end_of, maps), default=0)
    page = maps[0].page_bytes if maps else 1
    cell = raster.cell_bytes_of(end, page, MOST_CELLS)
    count = max(1, -(-end // cell))
    width = 1 << int(np.ceil(np.log2(np.sqrt(4 * count))))
    return {
        "width": width,
        "height": -(-count // width),
        "cell": _format.size(cell),
        "row": _format.size(width * cell),
        "frames": [
            _frame(one, raster.codes(one, one.occupancy, 1.0, end, cell), place) for one in maps
        ],
    }


def _frame(
    one: HeapMap, drawn: NDArray[np.uint8], place: Callable[[int, int], float]
) -> dict[str, Any]:
    ledger = one.ledger
    op = ledger.stats.ops if ledger.stats else 0
    return {
        "at": ledger.at,
        "op": op,
        "x": round(place(op, ledger.time_ns), 1),
        "text": raster.moment(one),
        "cells": base64.b64encode(drawn.tobytes()).decode("ascii"),
    }
