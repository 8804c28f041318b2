# SPDX-License-Identifier: Apache-2.0
"""The moments of a report: heap maps and live objects by call site, as data of the page."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.heap.heap_map import HeapMap
from spanwise.heap.options import HeapOptions
from spanwise.ledger.parts import PEAK_RESIDENT
from spanwise.plots import maps as raster
from spanwise.recordings.live_sites import (
    LiveSite,
    LiveSites,
    add_by_site,
    distinct,
    objects_of,
    place,
    sum_by,
)
from spanwise.recordings.names import build_ids_of, plain_function, split_place
from spanwise.recordings.recording import Recording
from spanwise.recordings.simulate import Simulation
from spanwise.recordings.sites import Framed, Site, Sites, merge_key
from spanwise.recordings.sources import ArraySource, Latest
from spanwise.recordings.timeline import Spread
from spanwise.report.flame import OF, printable, total_of, value_of
from spanwise.report.stacks import chain_of
from spanwise.results.jobs import Step
from spanwise.tables.table import SizeClassTable

SAMPLES = 24
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Moment:
    """A moment of a recording.

    Attributes:
        counts: shape (sites, 5): live_objects, requested_bytes, roundup_bytes, kept_free_bytes and
            resident_bytes, as in `LiveSite`.
        slots: number of live objects by (site, slot bytes); slot bytes 0: whole pages.
        held: shape (n, 3): a tile of the map, a site, and the number of its objects in that tile.
    """

    map: HeapMap  # of the heap, without slots and objects
    sites: NDArray[np.int64]  # ids of the call sites with live objects
    counts: NDArray[np.int64]
    slots: Mapping[tuple[int, int], int]
    held: NDArray[np.int64]
    live: LiveSites | None = None  # the sites, without names; None: not the peak

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
    """Run all operations once; return SAMPLES moments, evenly spread over them, and the peak."""
    wanted = sorted({*Spread(len(recording), SAMPLES).stops(), peak_op or 0} - {0})
    found, latest = [], Latest.until(iter(()), 0)
    build_ids = build_ids_of(recording.modules)

    def read() -> Moment:
        at = PEAK_RESIDENT if simulation.done == peak_op else _format.seconds(simulation.time_ns)
        made = simulation.heap_map(at, slots=False)
        placed = place(simulation, np.flatnonzero(latest.live).astype(np.uint32), made.ledger)
        objects = objects_of(placed, latest, table, recording.site_frames)
        sites, of_site = distinct(objects.site)
        counts = [sum_by(of_site, column, len(sites)) for column in objects.counts]
        sizes, of_size = distinct(objects.slot_bytes)
        pairs, of_pair = distinct(of_site * len(sizes) + of_size)
        which, sized = np.divmod(pairs, max(1, len(sizes)))
        each = zip(sites[which].tolist(), sizes[sized].tolist(), strict=True)
        slots = dict(zip(each, np.bincount(of_pair).tolist(), strict=True))
        held = _held(made, placed.addresses, sites, of_site)
        live = None
        if at == PEAK_RESIDENT:
            live = add_by_site(objects, recording.site_frames, build_ids)
        return Moment(made, sites, np.stack(counts, axis=1), slots, held, live)

    with Simulation(table, options, name=recording.name, resident=True) as simulation:
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


def _held(
    one: HeapMap,
    addresses: NDArray[np.uint64],
    sites: NDArray[np.int64],
    of_site: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return a tile, a site and the number of its objects there, for each pair that has any."""
    first = np.asarray(one.array["address"])
    order = np.argsort(first)
    has_place = addresses != 0
    tile = order[np.searchsorted(first[order], addresses[has_place], side="right") - 1]
    pairs, of_pair = distinct(tile * len(sites) + of_site[has_place])
    tile, place = np.divmod(pairs, max(1, len(sites)))
    return np.stack([tile, sites[place], np.bincount(of_pair)], axis=1)


def peak_of(moments: Iterable[Moment]) -> Moment | None:
    """Return the moment of the peak, if there is one."""
    return next((one for one in moments if one.map.ledger.at == PEAK_RESIDENT), None)


def all_sites(recording: Recording, moments: Iterable[Moment]) -> Sites:
    """Return the call sites of a recording, with those that only resized objects."""
    known, frames = recording.sites, recording.site_frames
    more = {site for one in moments for site in one.sites.tolist()}
    more -= {site.id for site in known.sites}
    resized = [Site(one, 0, 0, frames.get(one, ())) for one in sorted(more)]
    return Sites((*known.sites, *resized), build_ids_of(recording.modules))


# --- cells of maps --------------------------------------------------------------------------------


MOST_CELLS = 8192
COUNT_MAX = 255
"""A count of objects in a cell is a byte; 255 means at least 255."""


def frames_of(maps: Sequence[HeapMap], place: Callable[[int, int], float]) -> dict[str, Any]:
    """Return the heap maps over time as data for the page's script."""
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
        "cells": packed(drawn),
    }


_REPEATED_MIN, _REPEATED_MAX, _LITERAL_MAX = 3, 129, 128


def packed(values: NDArray[np.uint8]) -> str:
    """Return run lengths of bytes in base 64.

    A byte c below 128 is before c + 1 values, and a byte c from 128 on before one value that is
    repeated c - 126 times.
    """
    ends = [*(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]
    made, first, start = bytearray(), 0, 0  # of values without repetition, and of the run
    for end in ends:
        if end - start >= _REPEATED_MIN:
            made += _literal(values[first:start])
            for at in range(start, end, _REPEATED_MAX):
                count = min(end - at, _REPEATED_MAX)
                made += _literal(values[at:end]) if count == 1 else bytes([count + 126])
                made += values[start : start + 1].tobytes() if count > 1 else b""
            first = end
        start = end
    made += _literal(values[first:])
    return base64.b64encode(made).decode("ascii")


def _literal(values: NDArray[np.uint8]) -> bytes:
    parts = (values[at : at + _LITERAL_MAX] for at in range(0, len(values), _LITERAL_MAX))
    return b"".join(bytes([len(part) - 1]) + part.tobytes() for part in parts)


def counts_of(
    maps: Sequence[HeapMap], moment: Moment, stack_of: Mapping[int, int], stacks: Sequence[int]
) -> NDArray[np.uint8]:
    """Return the numbers of objects in the spans of each cell: a row per stack, then the others.

    A count is at most COUNT_MAX.
    """
    end, cell_bytes = _grid(maps)
    tile, site, count = moment.held.T
    known, place = np.unique(site, return_inverse=True)
    row_of = {stack: i for i, stack in enumerate(stacks)}
    rows = [row_of.get(stack_of[one], len(stacks)) for one in known.tolist()]
    of_tile = np.zeros((len(moment.map.array), len(stacks) + 1), np.int64)
    np.add.at(of_tile, (tile, np.array(rows, np.int64)[place]), count)
    of_cell = np.zeros((max(1, -(-end // cell_bytes)), len(stacks) + 1), np.int64)
    cell, tile, _ = raster.pieces(moment.map, cell_bytes)
    np.add.at(of_cell, cell, of_tile[tile])
    found: NDArray[np.uint8] = np.minimum(of_cell.T, COUNT_MAX).astype(np.uint8)
    return found


def changed_rows(
    rows: Mapping[int, NDArray[np.uint8]], before: dict[int, NDArray[np.uint8]]
) -> list[str]:
    """Return the difference of each row, modulo 256, from the same row of an earlier moment.

    Most cells do not change between two moments, so the differences are short.

    Args:
        rows: counts by stack.
        before: the last counts of each stack, none: zeros; they become those of `rows`.
    """
    made = [packed(row - before.get(stack, np.zeros_like(row))) for stack, row in rows.items()]
    before.update(rows)
    return made


# --- call stacks ----------------------------------------------------------------------------------

COUNTS = ("objects", "allocations")
"""Further quantities of a page: live objects, and allocations of the whole recording."""
PAIRS_MAX = 400
"""Pairs of a stack and a size class per moment; other sites of a class are counted together."""
_STEP = 1024
"""A value between moments is round(_STEP * log2(1 + value)) in 16 bits: to 0.04 %."""

Key: TypeAlias = tuple[str, ...] | int

_RUNTIME = re.compile(
    r"_start|__libc_start\w*|start_thread|clone3?|_dl_\w+|dlopen\w*|call_init"
    r"|_*Py(Eval|Run|Import|Marshal)_\w+|_?PyObject_(\w*Vectorcall|Call|MakeTpCall)\w*|_PyVectorcall\w+"
    r"|Py_(RunMain|BytesMain)|pymain_\w+|run_(mod|eval_code_obj)|do_call_core|object_vacall"
    r"|\w*vectorcall_\w+|method_vectorcall\w*|builtin_(exec|__import__)\w*|_?imp(ort)?_\w+"
    r"|marshal_loads\w*|r_object|read_object"
    r"|(std::(rt|sys|thread)|core::ops::function)::.*|runtime\.(main|goexit\d?)"
)


def is_runtime(name: str) -> bool:
    """Return whether a frame is of a language's runtime or start, or imports a module."""
    function, place = split_place(name)
    return "importlib" in place or _RUNTIME.fullmatch(plain_function(function)) is not None


class StackData:
    """The stacks of a page, those of its call sites first.

    Args:
        live: what a graph shows, with names.
        first: number of sites that have a stack in any case.
        most: maximum number of stacks; the others are summed. None: all.
        allocated: all sites of the recording, also those of the moments, with names; then those
            of the recording of `before`.
        moments: of the recording; the largest share of any quantity at any moment counts.
        before: what `live` is compared with.
    """

    def __init__(
        self,
        live: LiveSites,
        first: int = 0,
        most: int | None = None,
        *,
        allocated: Sequence[Sequence[Site]] = (),
        moments: Sequence[Moment] = (),
        before: LiveSites | None = None,
    ) -> None:
        self._live, self._moments, self._before = live, moments, before
        self._rows: dict[Key, int] = {}
        self._names: list[tuple[str, ...]] = []
        self._through: list[str] = []
        every = [live, *([] if before is None else [before])]
        rows = [[self._row(site) for site in one] for one in every]
        places = [{site.id: self._row(site) for site in one} for one in allocated]
        self.stack_of = places[0] if places else {}  # stacks by number of a site
        values = np.zeros((len(every) + len(moments), len(self._names), len(OF + COUNTS)), np.int64)
        for i, one in enumerate(every):
            np.add.at(values[i], rows[i], [_quantities(site) for site in one] or 0)
        for i, some in enumerate(allocated):
            stacks = [places[i][site.id] for site in some]
            np.add.at(values[i, :, -1], stacks, [site.allocs for site in some])
        for i, moment in enumerate(moments, len(every)):
            objects, requested, roundup, kept, resident = moment.counts.T
            columns = [roundup + kept, roundup, kept, resident, requested, objects, 0 * objects]
            place = [self.stack_of[site] for site in moment.sites.tolist()]
            np.add.at(values[i], place, np.stack(columns, axis=1))
        ledgers = [one.ledger for one in every] + [one.map.ledger for one in moments]
        self._totals = [
            [*(total_of(one, of) for of in OF), *values[i, :, len(OF) :].sum(0).tolist()]
            for i, one in enumerate(ledgers)
        ]
        self._values = self._cut(values, first, most)

    def _row(self, site: Framed) -> int:
        """Return the row of a site's stack."""
        row = self._rows.setdefault(merge_key(site), len(self._names))
        if row == len(self._names):
            self._names.append(chain_of(site))
            self._through.append(site.through)
        elif self._through[row] != site.through:
            self._through[row] = ""
        return row

    def _cut(self, values: NDArray[np.int64], first: int, most: int | None) -> NDArray[np.int64]:
        """Keep `most` stacks and sum the others; return the values."""
        shares = values / np.maximum(self._totals, 1)[:, None, :]
        largest = shares.max(axis=(0, 2), initial=0.0)
        largest[:first] = np.inf  # the first rows are those of the live sites, in their order
        order = np.argsort(-largest, kind="stable")
        shown, others = order[:most], order[len(order) if most is None else most :]
        self._other = len(shown)
        place = np.full(len(order), self._other)
        place[shown] = np.arange(len(shown))
        self.index = {key: int(place[row]) for key, row in self._rows.items()}
        self.stack_of = {site: int(place[row]) for site, row in self.stack_of.items()}
        self._names = [self._names[row] for row in shown]
        self._through = [self._through[row] for row in shown]
        if not len(others):
            return values[:, shown]
        self._names.append((f"[{len(others):,} more call sites]",))
        rest = values[:, others].sum(axis=1, keepdims=True)
        return np.concatenate([values[:, shown], rest], axis=1)

    def largest(self, moment: int, most: int) -> list[int]:
        """Return the stacks with the most waste of a moment, at most `most`."""
        values = self._values[len(self._totals) - len(self._moments) + moment]
        waste, objects = values[:, 0], values[:, len(OF)]
        order = np.argsort(-waste, kind="stable").tolist()
        return [i for i in order if objects[i] and i != self._other][:most]

    def to_dict(self) -> dict[str, Any]:
        """Return the data for JSON."""
        names: dict[str, int] = {}
        stacks = [
            [names.setdefault(printable(name), len(names)) for name in reversed(chain)]
            for chain in self._names
        ]
        made = {
            "of": list(OF + COUNTS),
            "at": self._live.ledger.at,
            "totals": self._totals[0],
            "names": list(names),
            "hidden": [i for name, i in names.items() if is_runtime(name)],
            "stacks": stacks,
            "through": {i: text for i, text in enumerate(self._through) if text},
            "values": self._values[0].tolist(),
        }
        if self._before is not None:
            made["before"] = {
                "totals": self._totals[1],
                "values": self._values[1].tolist(),
                "name": self._before.ledger.source,
            }
        if self._moments:
            slots = sorted({slot for one in self._moments for _, slot in one.slots})
            made["slots"] = slots
            made["moments"] = [
                {
                    "at": one.map.ledger.at,
                    "totals": self._totals[i],
                    "codes": encoded(self._values[i]),
                    "pairs": self._pairs(one, slots),
                }
                for i, one in enumerate(self._moments, len(self._totals) - len(self._moments))
            ]
        return made

    def _pairs(self, moment: Moment, slots: Sequence[int]) -> str:
        """Return stack, class and code of the number of objects, for each pair."""
        place = {slot: i for i, slot in enumerate(slots)}
        sums: dict[tuple[int, int], int] = {}
        for rank, ((site, slot), count) in enumerate(_largest(moment.slots)):
            pair = (self.stack_of[site] if rank < PAIRS_MAX else self._other, place[slot])
            sums[pair] = sums.get(pair, 0) + count
        codes = codes_of(np.array(list(sums.values()), np.int64))
        pairs = [(*pair, code) for pair, code in zip(sums, codes.tolist(), strict=True)]
        return base64.b64encode(np.array(pairs, "<u2").tobytes()).decode("ascii")


def _quantities(site: LiveSite) -> list[int]:
    return [*(value_of(site, of) for of in OF), site.live_objects, 0]


def _largest(slots: Mapping[tuple[int, int], int]) -> list[tuple[tuple[int, int], int]]:
    return sorted(slots.items(), key=lambda one: -one[1])


def codes_of(values: NDArray[np.int64]) -> NDArray[np.uint16]:
    """Return 16-bit logarithms of values from 0 to 2**63."""
    found: NDArray[np.uint16] = np.round(_STEP * np.log2(1.0 + values)).astype("<u2")
    return found


def encoded(values: NDArray[np.int64]) -> str:
    """Return the 16-bit logarithms of values, row by row, in base 64."""
    return base64.b64encode(codes_of(values).tobytes()).decode("ascii")
