# SPDX-License-Identifier: Apache-2.0
"""The moments of a report: the heap map and the live objects by call site, in one pass."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.heap.heap_map import PLACED_DTYPE, HeapMap, place_objects
from spanwise.heap.options import HeapOptions
from spanwise.ledger.parts import PEAK_RESIDENT
from spanwise.plots import raster
from spanwise.recordings.live_sites import LiveSites, add_by_site, objects_of, place, sum_by
from spanwise.recordings.names import build_ids_of
from spanwise.recordings.ops import Latest
from spanwise.recordings.recording import Recording
from spanwise.recordings.simulate import Simulation
from spanwise.recordings.sites import Site, Sites
from spanwise.recordings.sources import ArraySource
from spanwise.recordings.timeline import Spread
from spanwise.results.jobs import Step
from spanwise.tables.table import SizeClassTable

SAMPLES = 24
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Moment:
    """A moment of a recording.

    Attributes:
        map: of the heap, without slots; at the peak with the sites of its objects.
        sites: ids of the call sites with live objects.
        counts: shape (sites, 5): live_objects, requested_bytes, roundup_bytes, kept_free_bytes and
            resident_bytes, as of `LiveSite`.
        slots: number of live objects by (site, slot bytes); slot bytes 0: whole pages.
        live: the sites, without names; None: not the peak.
    """

    map: HeapMap
    sites: NDArray[np.int64]
    counts: NDArray[np.int64]
    slots: Mapping[tuple[int, int], int]
    live: LiveSites | None = None

    def by_class(self) -> dict[int, int]:
        """Return the number of live objects by slot bytes."""
        sums: dict[int, int] = {}
        for (_, slot), count in self.slots.items():
            sums[slot] = sums.get(slot, 0) + count
        return sums


def through(
    recording: Recording,
    table: SizeClassTable,
    options: HeapOptions,
    peak_op: int | None,
    progress: Step,
) -> list[Moment]:
    """Run all operations once; return SAMPLES moments, evenly spread over them, and the peak.

    The moment after `peak_op` operations is named as the peak, the others by their time.
    """
    wanted = sorted({*Spread(len(recording), SAMPLES).stops(), peak_op or 0} - {0})
    found, latest = [], Latest.until(iter(()), 0)
    build_ids = build_ids_of(recording.modules)

    def read() -> Moment:
        at = PEAK_RESIDENT if simulation.done == peak_op else _format.seconds(simulation.time_ns)
        made = simulation.heap_map(at, recording.name, slots=False)
        placed = place(simulation, np.flatnonzero(latest.live).astype(np.uint32), made.ledger)
        objects = objects_of(placed, latest, table, recording.site_frames)
        sites, of_site = np.unique(objects.site, return_inverse=True)
        counts = [sum_by(of_site, column, len(sites)) for column in objects.counts]
        pairs, count = np.unique(objects.site << 31 | objects.slot_bytes, return_counts=True)
        each = zip((pairs >> 31).tolist(), (pairs & (1 << 31) - 1).tolist(), strict=True)
        slots = dict(zip(each, count.tolist(), strict=True))
        live = None
        if at == PEAK_RESIDENT:
            rows = np.zeros(len(objects.site), PLACED_DTYPE)
            rows["site"] = objects.site
            made = replace(made, placed=place_objects(made.array, placed.addresses, rows))
            live = add_by_site(placed, objects, recording.site_frames, build_ids)
        return Moment(made, sites, np.stack(counts, axis=1), slots, live)

    with closing(Simulation(table, options, resident=True)) as simulation:
        for block in recording.blocks(_BLOCK):
            first = simulation.done
            ends = [one - first for one in wanted if first < one <= first + len(block)]
            for part in filter(len, np.split(block, ends)):
                for batch in ArraySource(part).batches():
                    simulation.run(batch)
                latest.add(part)
                if simulation.done - first in ends:
                    found.append(read())
            progress(len(block))
    return found


def peak_of(moments: Iterable[Moment]) -> Moment | None:
    """Return the moment of the peak, if there is one."""
    return next((one for one in moments if one.map.ledger.at == PEAK_RESIDENT), None)


def all_sites(recording: Recording, moments: Iterable[Moment]) -> Sites:
    """Return the call sites of a recording, with those that only resized objects."""
    known, frames = recording.sites, recording.site_frames
    more = {site for one in moments for site in one.sites.tolist()}
    more -= {site.id for site in known.counted}
    resized = [Site(one, 0, 0, frames.get(one, ())) for one in sorted(more)]
    return Sites([*known.counted, *resized], build_ids_of(recording.modules))


# --- cells of maps --------------------------------------------------------------------------------


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
