# SPDX-License-Identifier: Apache-2.0
"""Many values, by copy and as objects of a collected heap: how much of the time is the collector's.

The values are made and timed in C (src/lesson/creation.c).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, SupportsIndex

from spanwise import _lib
from spanwise._lib import ffi, lib
from spanwise.errors import InvalidError
from spanwise.gc.events import EVENT_KINDS
from spanwise.tables.table import SizeClassTable, as_table

MADE = ("copies", "structs", "objects")
"""Structs of 80 bytes that a function returns as values; the same as objects of a collected heap;
objects of a size and with pointers of your choice. In the order of sw_lesson_made."""


class Creation(NamedTuple):
    """What making the values came to.

    Attributes:
        made: one of MADE.
        values: how many.
        ns: elapsed time of all.
        collections: cycles that began.
        events: by kind, as `CollectorEvents` has them.
        event_ns: their lengths together, by kind.
    """

    made: str
    values: int
    ns: int
    collections: int
    events: dict[str, int]
    event_ns: dict[str, int]

    @property
    def ns_each(self) -> float:
        """Nanoseconds a value."""
        return self.ns / self.values

    @property
    def collector_share(self) -> float:
        """The share of the time in which the collector marked or swept, 0 to 1."""
        return (self.event_ns["mark"] + self.event_ns["sweep"]) / max(self.ns, 1)


def create_many(
    made: str,
    count: SupportsIndex,
    *,
    size: SupportsIndex = 80,
    pointers: Iterable[SupportsIndex] = (),
    percent: SupportsIndex = 100,
    in_steps: bool = False,
    table: SizeClassTable | str = "go",
) -> Creation:
    """Makes values one after the other; each object is garbage as soon as the next one is there.

    Args:
        made: one of MADE.
        count: at least 1.
        size: of "objects", in bytes, a multiple of 8 from 8 on.
        pointers: numbers of the words of "objects" that are pointers, below 64.
        percent: growth of the heap between collections, as GOGC; 0: none begins.
        in_steps: collections run in steps.
        table: size classes of the heap.

    Raises:
        InvalidError: a number is not within these limits, or a pointer is outside of the object.
        OutOfMemoryError: no memory.
    """
    if made not in MADE:
        raise InvalidError(f"made {made!r}: must be one of {', '.join(MADE)}")
    words = [_lib.as_index(word, "pointer word", 63) for word in pointers]
    making, chosen = ffi.new("sw_lesson_making *"), as_table(table)
    making.table = chosen._c
    making.made = MADE.index(made)
    making.count = _lib.as_index(count, "count", 1 << 40)
    making.bytes = _lib.as_index(size, "size", 1 << 31)
    making.pointers = sum(1 << word for word in set(words))
    making.percent = _lib.as_index(percent, "percent", (1 << 32) - 1)
    making.in_steps = int(in_steps)
    if making.count == 0 or making.bytes < 8 or making.bytes % 8:
        raise InvalidError("count: at least 1; size: a multiple of 8, from 8 on")
    out = ffi.new("sw_lesson_creation *")
    lib.sw_clear_error()
    _lib.check(lib.sw_lesson_create(making, out))
    kinds = range(len(EVENT_KINDS))
    return Creation(
        made,
        int(making.count),
        int(out.ns),
        int(out.collections),
        {EVENT_KINDS[i]: int(out.events[i]) for i in kinds},
        {EVENT_KINDS[i]: int(out.event_ns[i]) for i in kinds},
    )
