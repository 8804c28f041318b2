# SPDX-License-Identifier: Apache-2.0
"""The moments of a report: the heap map and the live objects by call site, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.heap.heap_map import PLACED_DTYPE, HeapMap, place_objects
from spanwise.heap.options import HeapOptions
from spanwise.ledger.parts import PEAK_RESIDENT
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
