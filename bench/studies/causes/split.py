# SPDX-License-Identifier: Apache-2.0
"""The resident bytes of a simulated heap, at the moment at which most is resident, by cause."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from spanwise.heap.heap_map import KINDS, HeapMap
from spanwise.heap.options import HeapOptions
from spanwise.ledger.ledger import Ledger
from spanwise.recordings.simulate import Simulation, account, visit
from spanwise.recordings.sources import FileSource
from spanwise.tables.table import as_table

REQUESTED = "requested"
CAUSES = {
    REQUESTED: "what live objects were asked for with, as far as it is written",
    "rounding": "round-up to slots, tails of spans, large objects' last pages",
    "pages ahead": "of current spans in use: populated pages behind the last live slot",
    "current spans": "of current spans in use: the other free slots",
    "idle classes": "current spans in which nothing changed in the last tenth of the operations",
    "kept large": "freed large objects that a cache keeps",
    "partial, young": "free slots of other spans, which changed in the last 1 % of the operations",
    "partial, middle": "as partial, young, of spans that changed 1 to 10 % before",
    "partial, old": "as partial, young, of spans that changed longer ago",
    "free pages": "pages that no span has and that were not given back",
    "metadata": "heap records, span records, page map, caches",
}
"""Causes inside of the heap, and what each says. Their sum is the ledger's resident bytes."""


_CACHED, _CURRENT = 1, 2
_PAGE = 4096


@dataclass
class Ages:
    """Knows since which operation each span has not changed.

    A span has not changed if it has the same class and the same sizes live in the same slots. Spans
    are compared at intervals, so a change that was undone in between is not seen.
    """

    since: dict[int, tuple[int, int]] = field(default_factory=dict)

    def look(self, heap_map: HeapMap, op: int) -> None:
        """Notes the spans of a moment."""
        assert heap_map.slot_requested_bytes is not None
        seen = {}
        for tile in spans_of(heap_map):
            first, slots = int(tile["first_slot"]), int(tile["slots"])
            sizes = heap_map.slot_requested_bytes[first : first + slots]
            print_ = hash((int(tile["cls"]), sizes.tobytes()))
            before = self.since.get(int(tile["address"]))
            same = before is not None and before[0] == print_
            seen[int(tile["address"])] = before if same and before else (print_, op)
        self.since = seen

    def age(self, address: int, op: int) -> int:
        """Operations since a span was first seen as it is."""
        return op - self.since[address][1]


def spans_of(heap_map: HeapMap) -> NDArray[np.void]:
    """The tiles that are spans of slots."""
    tiles: NDArray[np.void] = np.asarray(heap_map.array)
    found: NDArray[np.void] = tiles[tiles["kind"] == KINDS.index("slots")]
    return found


def _last_live_end(heap_map: HeapMap, tile: np.void) -> int:
    """Where the last live slot of a span ends, in whole pages; 0: none lives."""
    assert heap_map.slot_requested_bytes is not None
    first, slots = int(tile["first_slot"]), int(tile["slots"])
    sizes = heap_map.slot_requested_bytes[first : first + slots]
    live = np.flatnonzero(sizes != 0xFFFFFFFF)
    if not len(live):
        return 0
    slot_bytes = (int(tile["bytes"]) - int(tile["tail_bytes"])) // slots
    return -(-(int(live[-1]) + 1) * slot_bytes // _PAGE) * _PAGE


def _free_resident(tile: np.void) -> int:
    """An estimate of a span's resident free bytes; live slots count as wholly resident."""
    live = int(tile["requested_bytes"]) + int(tile["roundup_bytes"])
    return min(int(tile["free_bytes"]), max(0, int(tile["touched_bytes"]) - live))


def _of_span(heap_map: HeapMap, tile: np.void, age: float) -> dict[str, float]:
    """The resident free bytes of a span by cause; `age` is a share of the operations so far."""
    free = _free_resident(tile)
    if not int(tile["flags"]) & _CACHED:
        name = "young" if age < 0.01 else "middle" if age < 0.1 else "old"
        return {f"partial, {name}": free}
    if age >= 0.1 or not int(tile["flags"]) & _CURRENT:
        return {"idle classes": free}
    behind = int(tile["touched_bytes"]) - _last_live_end(heap_map, tile)
    ahead = min(free, max(0, behind))
    return {"pages ahead": ahead, "current spans": free - ahead}


def split(heap_map: HeapMap, ledger: Ledger, ages: Ages, op: int) -> dict[str, float]:
    """The ledger's resident bytes by cause, to the byte in sum.

    The resident bytes of free slots are exact for a class; they are divided among its spans as
    `_free_resident` estimates.
    """
    assert ledger.resident is not None
    own = ledger.resident
    found = dict.fromkeys(CAUSES, 0.0)
    found[REQUESTED] = own.requested_bytes
    found["rounding"] = own.roundup_bytes + own.tail_bytes + own.large_rounding_bytes
    found["free pages"], found["metadata"] = own.free_page_bytes, own.metadata_bytes
    found["kept large"] = float(own.classes["cached_bytes"][0])
    spans = spans_of(heap_map)
    for cls in np.unique(spans["cls"]):
        of_class = spans[spans["cls"] == cls]
        for column, cached in (("cached_bytes", True), ("free_slot_bytes", False)):
            tiles = of_class[(of_class["flags"] & _CACHED != 0) == cached]
            parts = [
                _of_span(heap_map, tile, ages.age(int(tile["address"]), op) / op) for tile in tiles
            ]
            _share(found, parts, float(own.classes[column][int(cls)]), cached=cached)
    return found


def _share(
    found: dict[str, float], parts: list[dict[str, float]], total: float, *, cached: bool
) -> None:
    """Adds a class's bytes to the causes, in the ratio of its spans' parts."""
    estimated = sum(sum(part.values()) for part in parts)
    if not estimated:
        found["current spans" if cached else "partial, young"] += total
        return
    for part in parts:
        for name, value in part.items():
            found[name] += value * total / estimated


def highest(path: str, options: HeapOptions) -> dict[str, float]:
    """The causes at the moment at which most of a recording's heap is resident, under c16."""
    table, source = as_table("c16"), FileSource(path, valid_prefix=False)
    first = Simulation(table, options, resident=True)
    try:
        account(source, first, at="end", name="")
        op = first.resident_peak()[1]
    finally:
        first.close()
    shares = [0.9 + 0.01 * i for i in range(9)] + [0.99 + 0.002 * i for i in range(5)]
    stops = sorted({int(op * share) for share in shares} | {op})
    ages, told = Ages(), dict.fromkeys(CAUSES, 0.0)
    second = Simulation(table, options, resident=True)

    def take() -> None:
        seen = second.heap_map("now", "", slots=True)
        ages.look(seen, second.done)
        if second.done == op:
            told.update(split(seen, seen.ledger, ages, op))
            assert seen.ledger.resident_bytes == round(sum(told.values()))

    try:
        visit(source, second, [stop for stop in stops if stop > 0], take)
    finally:
        second.close()
    return told
