# SPDX-License-Identifier: Apache-2.0
"""What a collected heap shows: its accounts, map and events, and its debug options."""

from __future__ import annotations

from typing import SupportsIndex

from spanwise import _lib
from spanwise._lib import check, lib
from spanwise.gc.cycle import Cycles
from spanwise.gc.events import CollectorEvents, as_events, take_events
from spanwise.heap.heap_map import HeapMap, read_spans, read_tiles
from spanwise.ledger.ledger import Ledger, read_ledger
from spanwise.results.rows import Rows


class Inspection(Cycles):
    """Base of `CollectedHeap`: everything that only looks at the heap."""

    __slots__ = ()

    def set_debug(
        self,
        *,
        checkmark: bool = False,
        clobber: bool = False,
        always: bool = False,
        dangling: bool = False,
    ) -> None:
        """Set the debug options.

        Args:
            checkmark: compare each marking with an independent second one.
            clobber: fill freed memory with the byte 0xDB during the sweep.
            always: collect before each allocation by `new`.
            dangling: abort when a cycle finds a pointer into a safe arena that was freed or reset,
                with a report of the pointer, the object and who freed the arena.
        """
        chosen = [
            (checkmark, lib.SW_GC_CHECKMARK),
            (clobber, lib.SW_GC_CLOBBER),
            (always, lib.SW_GC_ALWAYS),
            (dangling, lib.SW_GC_DANGLING),
        ]
        with self._handle as c_gc:
            check(lib.sw_gc_set_debug(c_gc, sum(bit for wanted, bit in chosen if wanted)))

    def record_events(self, capacity: SupportsIndex = 1 << 16) -> None:
        """Start recording events, which `events` returns; drop those recorded before.

        Args:
            capacity: the most events between two calls of `events`, 40 bytes each; beyond that the
                oldest are overwritten. 0: record none.

        Raises:
            InvalidError: the capacity is above 2**26.
            OutOfMemoryError: no memory; nothing changes.
        """
        with self._handle as c_gc:
            check(lib.sw_gc_record_events(c_gc, _lib.as_index(capacity, "capacity")))
            self._events.clear()
            self._lost_events = 0

    def events(self) -> CollectorEvents:
        """Return the events since `record_events`; none without that call."""
        with self._handle as c_gc:
            rows, lost = take_events(c_gc)
            self._events.append(rows)
            self._lost_events += lost
            return as_events(f"heap {self.id}", self._events, self._lost_events, self._now_ns())

    def ledger(self) -> Ledger:
        """Return the ledger: where the heap's bytes are.

        Objects that the sweep of the running cycle will reclaim count as live; `pending_bytes` and
        `unswept_bytes` are their bytes.
        """
        with self._handle:
            return read_ledger(self._handle.heap, self._handle.table, at="now")

    def spans(self) -> Rows:
        """Return a snapshot of the spans, as `Heap.spans`."""
        with self._handle:
            return read_spans(self._handle.heap)

    def map(self, *, resident: bool = False) -> HeapMap:
        """Return a snapshot of the whole heap as tiles, as `Heap.map`.

        >>> heap = CollectedHeap()
        >>> kept = heap.new(heap.add_type("leaf", 64), 10)
        >>> heap.map().array["live"].sum() - heap.spans()["live"].sum()
        np.uint64(0)
        """
        with self._handle:
            heap = self._handle.heap
            tiles, requested = read_tiles(heap, touched=resident, slots=True)
            ledger = read_ledger(heap, self._handle.table, at="now", resident=resident)
            return HeapMap(tiles, ledger, self.table.page_bytes, requested)

    def trim(self) -> int:
        """Return all free pages to the system now, and return their bytes."""
        with self._handle:
            return int(lib.sw_heap_trim(self._handle.heap))

    @property
    def held_bytes(self) -> int:
        """Committed pages and metadata, bytes."""
        with self._handle:
            return int(lib.sw_heap_held_bytes(self._handle.heap))

    def verify(self) -> None:
        """Check all invariants of the heap and the collector.

        Raises:
            StateError: an invariant is violated; the message names it.
        """
        with self._handle as c_gc:
            check(lib.sw_heap_verify(self._handle.heap))
            check(lib.sw_gc_verify(c_gc))
