# SPDX-License-Identifier: Apache-2.0
"""Collected heaps: objects that nothing reaches are freed by a mark-sweep collector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, SupportsIndex

import numpy as np

from spanwise import _format, _lib
from spanwise._lib import check, ffi, lib
from spanwise.errors import InvalidError
from spanwise.gc.cycle import Cycles, read_cycle
from spanwise.gc.events import CollectorEvents, as_events, take_events
from spanwise.gc.graphs import as_edges
from spanwise.gc.handle import GcHandle
from spanwise.gc.objects import (
    CollectedObject,
    Finalizer,
    Graph,
    ObjectType,
    WeakObject,
    call_due,
    set_finalizer,
)
from spanwise.heap.options import HeapOptions, as_options, c_options
from spanwise.ledger.ledger import Ledger, read_ledger
from spanwise.tables.table import SizeClassTable, as_table

TYPE_BYTES_MAX = 1 << 31


class CollectedHeap(Cycles):
    """A heap with a collector. Any thread may use it; calls wait for each other.

    What Python keeps (objects of `new`, graphs of `build`) are roots. Cycles run when they are
    asked for: `collect()` runs a whole one, `start()`, `step()` and `finish()` one in pieces,
    between which objects are made, written and freed. After `set_pace()` they begin by themselves.

    Args:
        table: size classes, or a table's name.
        options: limit, placement, decay of idle pages, kept spans; None: `HeapOptions()`. tiny:
            objects below 16 B without pointers share blocks of 16 B; a block lives as long as any
            object in it. Those of up to 16 B are not freed one by one, and have neither weak
            references nor finalizers.

    Raises:
        TypeError, InvalidError: for an argument that is not allowed.
        OutOfMemoryError: there is no memory for a heap.
    """

    __slots__ = ("__weakref__", "_handle", "_paced")

    def __init__(
        self,
        table: SizeClassTable | str = "c16",
        *,
        options: HeapOptions | None = None,
        tiny: bool = False,
    ) -> None:
        made = as_table(table)
        given = c_options(made, as_options(options), tracked=False, tiny=tiny)
        self._handle: GcHandle = GcHandle(given, made)
        super().__init__()
        self._paced = False

    # --- life ---

    def close(self) -> None:
        """Ends the heap with all of its objects; a second call does nothing."""
        self._handle.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"<CollectedHeap {self.id}, closed>"
        held = self.ledger().held_bytes
        cycles = _format.plural(len(self._cycles), "cycle")
        return f"<CollectedHeap {self.id}, {_format.size(held)} held, {cycles}, {self.phase}>"

    # --- objects ---

    def add_type(
        self, name: str, size: SupportsIndex, pointers: Iterable[SupportsIndex] = ()
    ) -> ObjectType:
        """Says what objects look like.

        Args:
            name: for people.
            size: bytes of one object, 1 to 2**31; a multiple of 8 if it has pointers.
            pointers: numbers of the 8-byte words that hold pointers.

        Raises:
            InvalidError: the size is not allowed, or a word is outside of it.
        """
        _lib.check_type(name, str, "name")
        wanted = _lib.as_index(size, "size", TYPE_BYTES_MAX)
        numbers = _lib.as_iterable(pointers, "pointers")
        words = tuple(sorted({_lib.as_index(word, "pointers") for word in numbers}))
        if words and words[-1] >= wanted // 8:
            raise InvalidError(
                f"type {name!r} of {wanted} B has {wanted // 8} words: word {words[-1]} is none"
            )
        bits = np.zeros(max(1, -(-wanted // 512)), np.uint64)
        for word in words:
            bits[word // 64] |= np.uint64(1) << np.uint64(word % 64)
        c_name = ffi.new("char[]", name.encode())
        pattern = ffi.from_buffer("uint64_t[]", bits)
        given = pattern if words else ffi.NULL
        made = ffi.new("sw_gc_type *", {"name": c_name, "bytes": wanted, "pointers": given})
        with self._handle as c_gc:
            number = int(_lib.output_of(lib.sw_gc_add_type, c_gc, made))
            kind = ObjectType(name, wanted, words, self.id, number)
            self._handle.types[kind.id] = kind
        return kind

    def _check_type(self, kind: ObjectType) -> None:
        if not isinstance(kind, ObjectType):
            raise TypeError(f"type must come from add_type, not be {type(kind).__name__}")
        if kind.heap_id != self.id:
            raise InvalidError(f"{kind!r} belongs to heap {kind.heap_id}, not to heap {self.id}")
        if self._handle.types.get(kind.id) != kind:
            raise InvalidError(f"{kind!r} is no type of heap {self.id}; make it with add_type")

    def new(
        self,
        type: ObjectType,
        count: SupportsIndex = 1,
        *,
        finalizer: Finalizer | None = None,
    ) -> CollectedObject:
        """An object, or `count` of them in a row; its pointers are NULL.

        Args:
            type: from `add_type`.
            count: how many in a row.
            finalizer: as `set_finalizer`.

        Raises:
            InvalidError: count is 0 or too large, or the type is another heap's.
            OutOfMemoryError: no memory, or the heap's limit is reached.
            HeapClosedError: the heap is closed.
        """
        self._check_type(type)
        _lib.check_callable(finalizer, "finalizer")
        number = _lib.as_index(count, "count")
        if number == 0 or number * type.size_bytes > _lib.SIZE_MAX:
            raise InvalidError(f"{number} objects of {type.size_bytes} B cannot be in a row")
        with self._handle as c_gc:
            p = self._new(c_gc, type.id, number)
            if p == ffi.NULL:
                raise _lib.failure(lib.sw_last_error().status)
            made = CollectedObject._make(self._handle, type, number, int(ffi.cast("uintptr_t", p)))
            if finalizer is not None:
                set_finalizer(self._handle, made, finalizer)
            return made

    def _check_object(self, target: CollectedObject) -> None:
        _lib.check_type(target, CollectedObject, "target")
        if target.type.heap_id != self.id:
            raise InvalidError(f"{target!r} belongs to another heap")

    def set_finalizer(self, target: CollectedObject, finalizer: Finalizer | None) -> None:
        """Sets or replaces the finalizer of an object; None removes it.

        A cycle that finds nothing that reaches the object makes the finalizer due, and keeps the
        object, with all that it reaches. `run_finalizers` calls it once, with the object. Closing
        the heap calls none.

        Raises:
            BlockFreedError: the object was freed or released.
            OutOfMemoryError: no memory; the object keeps what it had.
        """
        self._check_object(target)
        _lib.check_callable(finalizer, "finalizer")
        set_finalizer(self._handle, target, finalizer)

    def run_finalizers(self, most: SupportsIndex | None = None) -> int:
        """Calls finalizers that are due, in this thread and with no lock held; returns how many.

        They are called in no particular order, and may use the heap as everything may: make
        objects, keep the one that they get, free it, collect, close the heap. What one raises goes
        to `sys.unraisablehook`.

        Args:
            most: how many at most; None: all.
        """
        limit = None if most is None else _lib.as_index(most, "most")
        return call_due(self._handle, limit)

    def weak(self, target: CollectedObject, *, long: bool = False) -> WeakObject:
        """A weak reference: it does not keep the object.

        Args:
            target: an object of this heap.
            long: it holds until the object is freed, so it sees one that a finalizer has brought
                back; else only until nothing reaches the object, before its finalizer is due.

        Raises:
            BlockFreedError: the object was freed or released.
        """
        self._check_object(target)
        return WeakObject._make(self._handle, target, long=long)

    def build(
        self, type: ObjectType, edges: object, *, keep: Sequence[SupportsIndex] | None = None
    ) -> Graph:
        """Makes a graph in one C call.

        Args:
            type: of all objects; edge e is its e-th pointer word.
            edges: integers of shape (nodes, degree): where each edge goes, `2**32 - 1` for nowhere,
                as `random_graph`, `binary_tree` and `linked_list` make.
            keep: nodes that become roots; None: node 0.

        Raises:
            TypeError: edges are no integers.
            InvalidError: an edge goes to no node, or the type has fewer pointers than nodes edges.
            OutOfMemoryError: no memory, or the heap's limit is reached.
        """
        self._check_type(type)
        made = as_edges(edges)
        first = [0] if len(made) else []
        wanted = [
            _lib.as_index(i, "keep")
            for i in (first if keep is None else _lib.as_iterable(keep, "keep"))
        ]
        if any(i >= len(made) for i in wanted):
            raise InvalidError(f"node {max(wanted)} is none of {len(made)}")
        with self._handle as c_gc:
            addresses = np.zeros(len(made), np.uint64)
            out = ffi.cast("void **", ffi.from_buffer(addresses))
            c_edges = ffi.from_buffer("uint32_t[]", made)
            check(lib.sw_gc_build(c_gc, type.id, made.shape[1], len(made), c_edges, out))
            return Graph._make(self._handle, type, addresses, np.array(wanted, np.int64))

    # --- pace ---

    def _new(self, c_gc: Any, type_id: int, count: int) -> Any:
        """The address of a new object; with a pace, the call may first work on a cycle."""
        if not self._paced:
            return lib.sw_gc_new(c_gc, type_id, count)
        before, phase = read_cycle(c_gc), self.phase
        p = lib.sw_gc_new(c_gc, type_id, count)
        error = _lib.failure(lib.sw_last_error().status) if p == ffi.NULL else None
        self._note(c_gc, before, phase)
        if error is not None:
            raise error
        return p

    def set_pace(
        self,
        percent: SupportsIndex = 100,
        *,
        limit_bytes: SupportsIndex | None = None,
        in_steps: bool = False,
    ) -> None:
        """Lets `new` begin cycles, and end them, as Go's GOGC and GOMEMLIMIT do.

        Args:
            percent: another cycle begins once `new` was asked for this percentage of the bytes that
                lived after the last cycle (4 MiB at least). 0: allocation alone begins no cycle.
            limit_bytes: a soft limit: cycles begin sooner if the heap would exceed it, but not
                before a sixteenth of the live bytes, or 64 KiB, was asked for. None: no limit.
            in_steps: a cycle begins half-way and runs in steps, which later allocations do; else it
                runs at once.

        `set_pace(0)` takes the pace away: cycles are asked for only.

        Raises:
            InvalidError: a number is negative or too large.
        """
        share = _lib.as_index(percent, "percent", 2**32 - 1)
        limit = 0 if limit_bytes is None else max(_lib.as_index(limit_bytes, "limit_bytes"), 1)
        pace = _lib.options_of(
            "sw_gc_pace", percent=share, limit_bytes=limit, in_steps=int(in_steps)
        )
        with self._handle as c_gc:
            check(lib.sw_gc_set_pace(c_gc, pace))
            self._paced = bool(share or limit)

    # --- threads ---

    @contextmanager
    def joined(self, name: str) -> Iterator[None]:
        """`with heap.joined("worker"):` the calling thread stops while others work on cycles.

        It is what a Python thread needs when threads of another language use the heap at the same
        time (`sw_gc_join`). It stops at each of its calls, and nobody waits for it outside of them.

        Raises:
            StateError: the thread has joined before.
        """
        _lib.check_type(name, str, "name")
        self._handle.join(name)
        try:
            yield
        finally:
            self._handle.leave()

    def set_stop_ms(self, ms: float) -> None:
        """How long a call that works on a cycle waits for threads that have joined; 1000 at first.

        Raises:
            InvalidError: it is not above 0.
        """
        _lib.check_type(ms, (int, float), "ms")
        with self._handle as c_gc:
            check(lib.sw_gc_set_stop_ns(c_gc, _lib.as_index(round(ms * 1e6), "ms")))

    # --- looking ---

    def set_debug(
        self,
        *,
        checkmark: bool = False,
        clobber: bool = False,
        always: bool = False,
        dangling: bool = False,
    ) -> None:
        """Options that look for mistakes.

        Args:
            checkmark: each marking is compared with a second one, made in another way.
            clobber: what a sweep frees is filled with the byte 0xDB.
            always: `new` collects before each allocation.
            dangling: a cycle that meets a pointer into a safe arena that was freed or reset ends
                the process, with a report of the pointer, the object and who freed the arena.
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
        """Keeps what the collector does from now on, for `events`; what was kept before is dropped.

        Args:
            capacity: events kept between two calls of `events`, 40 bytes each; further ones replace
                the oldest. 0: none are kept.

        Raises:
            InvalidError: there would be more than 2**26.
            OutOfMemoryError: no memory; nothing changes.
        """
        with self._handle as c_gc:
            check(lib.sw_gc_record_events(c_gc, _lib.as_index(capacity, "capacity")))
            self._events.clear()
            self._lost_events = 0

    def events(self) -> CollectorEvents:
        """What the collector has done since `record_events`; without that: nothing."""
        with self._handle as c_gc:
            rows, lost = take_events(c_gc)
            self._events.append(rows)
            self._lost_events += lost
            return as_events(f"heap {self.id}", self._events, self._lost_events, self._now_ns())

    def ledger(self) -> Ledger:
        """Where the heap's bytes are.

        Objects that the sweep of the running cycle will give back count as live; `pending_bytes`
        and `unswept_bytes` say how many bytes they have.
        """
        with self._handle:
            return read_ledger(self._handle.heap, self._handle.table, at="now")

    def verify(self) -> None:
        """Checks all invariants of heap and collector.

        Raises:
            StateError: one is broken; the message has it.
        """
        with self._handle as c_gc:
            check(lib.sw_heap_verify(self._handle.heap))
            check(lib.sw_gc_verify(c_gc))
