# SPDX-License-Identifier: Apache-2.0
"""Collected heaps: a mark-sweep collector frees unreachable objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, SupportsIndex

import numpy as np

from spanwise import _format, _lib
from spanwise._lib import check, ffi, lib
from spanwise.errors import InvalidError
from spanwise.gc.cycle import Cycles
from spanwise.gc.handle import GcHandle
from spanwise.gc.layouts import Layout, ObjectType, as_edges, size_of
from spanwise.gc.objects import (
    CollectedObject,
    Ephemeron,
    Finalizer,
    Graph,
    WeakObject,
    call_due,
    new_object,
    set_finalizer,
)
from spanwise.gc.roots import WORDS_MAX, RootRange, ShadowFrame
from spanwise.heap.options import HeapOptions, as_options, c_options
from spanwise.tables.table import SizeClassTable, as_table


class CollectedHeap(Cycles):
    """A heap with a collector. Any thread may use it; a lock serialises the calls.

    Objects that Python refers to (from `new()` and `build()`) are roots. The program starts cycles:
    `collect()` runs a whole cycle; `start()`, `step()` and `finish()` run one in pieces, between
    which the program may allocate, write and free. After `set_pace()`, `new()` starts cycles that
    are due, by the bytes that `new()` and `build()` have allocated since the last one.

    >>> with CollectedHeap() as heap:
    ...     node = heap.add_type("node", [("next", object), ("value", "i8")])
    ...     first = heap.new(node)
    ...     first["next"] = heap.new(node)  # reachable from `first`
    ...     heap.new(node)["value"] = 7  # unreachable
    ...     heap.collect().freed_objects
    1

    Args:
        table: size classes, or a table's name.
        options: limit, placement, decay of idle pages, retained spans; None: `HeapOptions()`.
        concurrent: background threads mark and sweep the cycles that `start()` or the pace
            begins, while the program runs (`sw_gc_set_concurrent`). Threads join at their first
            call.
        markers: threads that mark many objects, in the background if `concurrent`, else while the
            program is stopped; 1 to 16 (`sw_gc_set_markers`).
        conservative: every word of the process's stacks, registers, static and thread-local data
            is a root, for objects that C code holds (`sw_gc_set_roots`). Threads join at their
            first call.
        tiny: objects below 16 B without pointers share blocks of 16 B; a block lives until all
            its objects are unreachable. Pointer-free objects of up to 16 B cannot be freed
            individually, and have neither weak references nor finalizers.

    Raises:
        TypeError, InvalidError: an argument is not allowed.
        OutOfMemoryError: there is no memory for a heap, or the system refuses a thread.
        UnsupportedError: this system does not report stacks and static data.
    """

    __slots__ = ("__weakref__", "_handle", "_paced")

    def __init__(
        self,
        table: SizeClassTable | str = "c16",
        *,
        options: HeapOptions | None = None,
        concurrent: bool = False,
        markers: SupportsIndex = 1,
        conservative: bool = False,
        tiny: bool = False,
    ) -> None:
        made = as_table(table)
        given = c_options(made, as_options(options), tracked=False, tiny=tiny)
        _lib.check_type(conservative, bool, "conservative")
        _lib.check_type(concurrent, bool, "concurrent")
        threads = _lib.as_index(markers, "markers", lib.SW_GC_MARKERS_MAX, least=1)
        super().__init__()  # before the collector, so that its events are not before the heap
        self._handle: GcHandle = GcHandle(
            given, made, conservative=conservative, concurrent=concurrent, markers=threads
        )
        self._paced = False

    # --- life ---

    def close(self) -> None:
        """Destroy the heap and all its objects; a second call does nothing.

        `cycles` and `pauses` remain.
        """
        self._handle.read(self._add_ended)
        self._handle.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"<CollectedHeap {self.id}, closed>"
        held = self.ledger().held_bytes
        cycles = _format.plural(len(self.cycles), "cycle")
        return f"<CollectedHeap {self.id}, {_format.size(held)} held, {cycles}, {self.phase}>"

    # --- objects ---

    def add_type(
        self, name: str, layout: Layout, pointers: Iterable[SupportsIndex] = ()
    ) -> ObjectType:
        """Register a type, which describes the layout of objects.

        Args:
            name: for messages.
            layout: bytes per object, 1 to 2**31, a multiple of 8 if it has pointers; or its fields:
                a structured numpy type, whose fields of type object are pointers, or a format of
                the module struct, "P" for pointers, whose fields are f0, f1, ...
            pointers: indices of the 8-byte words that hold pointers, if it has no fields.

        Data fields convert values as numpy does: 2.5 is stored as 2 in a field of type "i4", and 9
        bytes lose the last one in "S8".

        Raises:
            InvalidError: the layout is not allowed, or a word is outside it.
            TypeError: the layout is none of these.

        >>> heap = CollectedHeap()
        >>> heap.add_type("pair", 16, pointers=[0])
        <ObjectType pair, 16 B, pointers at words (0)>
        >>> heap.add_type("tree", [("children", object, 2), ("weight", "f8")])
        <ObjectType tree, 24 B, pointers at words (0, 1)>
        >>> heap.new(heap.add_type("named", "P16s"))["f1"]
        b''
        """
        _lib.check_type(name, str, "name")
        wanted, own, fields = size_of(layout)
        numbers = _lib.as_iterable(pointers, "pointers")
        given = tuple(sorted({_lib.as_index(word, "pointers") for word in numbers}))
        words = given if fields is None else own
        if fields is not None and given:
            raise InvalidError(f"type {name!r}: give its fields or its pointers, not both")
        if words and words[-1] >= wanted // 8:
            raise InvalidError(
                f"type {name!r} of {wanted} B has {wanted // 8} words: there is no word {words[-1]}"
            )
        bits = np.zeros(max(1, -(-wanted // 512)), np.uint64)
        for word in words:
            bits[word // 64] |= np.uint64(1) << np.uint64(word % 64)
        c_name = ffi.new("char[]", name.encode())
        pattern = ffi.from_buffer("uint64_t[]", bits)
        bitmap = pattern if words else ffi.NULL
        made = ffi.new("sw_gc_type *", {"name": c_name, "bytes": wanted, "pointers": bitmap})
        with self._handle as c_gc:
            number = int(_lib.output_of(lib.sw_gc_add_type, c_gc, made))
            kind = ObjectType(name, wanted, words, self.id, number, fields)
            self._handle.types[kind.id] = kind
        return kind

    def _check_type(self, kind: ObjectType) -> None:
        if not isinstance(kind, ObjectType):
            raise TypeError(f"type must come from add_type, not be {type(kind).__name__}")
        if kind.heap_id != self.id:
            raise InvalidError(f"{kind!r} belongs to heap {kind.heap_id}, not to heap {self.id}")
        if self._handle.types.get(kind.id) != kind:
            raise InvalidError(f"{kind!r} is not a type of heap {self.id}; make it with add_type")

    def new(
        self, type: ObjectType, count: SupportsIndex = 1, *, finalizer: Finalizer | None = None
    ) -> CollectedObject:
        """Allocate an object, or `count` contiguous objects; all pointers are NULL.

        Args:
            type: from `add_type()`.
            count: number of contiguous objects.
            finalizer: as in `set_finalizer()`.

        Raises:
            InvalidError: count is 0 or too large, or the type belongs to another heap.
            OutOfMemoryError: no memory, or the heap's limit is reached.
            HeapClosedError: the heap is closed.
        """
        self._check_type(type)
        _lib.check_callable(finalizer, "finalizer")
        number = _lib.as_index(count, "count", _lib.SIZE_MAX // type.size_bytes, least=1)
        with self._handle as c_gc:
            p = self._new(c_gc, type.id, number)
            if p == ffi.NULL:
                raise _lib.failure(lib.sw_last_error().status)
            made = new_object(self._handle, type, number, int(ffi.cast("uintptr_t", p)))
            if finalizer is not None:
                set_finalizer(self._handle, made, finalizer)
            return made

    def new_untyped(self, size: SupportsIndex) -> CollectedObject:
        """Allocate an object that is scanned conservatively: each word may be a pointer.

        Args:
            size: bytes; read and write its words by `obj[word]`.

        Raises:
            As `new()`.

        >>> heap = CollectedHeap()
        >>> box = heap.new_untyped(16)
        >>> box[0] = heap.new(heap.add_type("leaf", 8))
        >>> heap.collect().freed_objects
        0
        >>> box[0] = 12  # a number
        >>> heap.collect().freed_objects
        1
        """
        wanted = _lib.as_index(size, "size")
        kind = ObjectType("untyped", max(wanted, 1), range(wanted // 8), self.id, 0)
        with self._handle:
            p = lib.sw_heap_alloc(self._handle.heap, wanted, lib.SW_SCAN | lib.SW_ZERO)
            if p == ffi.NULL:
                raise _lib.failure(lib.sw_last_error().status)
            return new_object(self._handle, kind, 1, int(ffi.cast("uintptr_t", p)))

    # --- roots ---

    def roots(self, count: SupportsIndex) -> RootRange:
        """Return words that are roots: they hold objects of the heap, and keep them alive.

        >>> heap = CollectedHeap()
        >>> with heap.roots(2) as roots:
        ...     roots[0] = heap.new(heap.add_type("leaf", 8))
        ...     heap.collect().freed_objects
        0
        >>> heap.collect().freed_objects
        1

        Raises:
            InvalidError: count is 0 or negative.
        """
        return RootRange._make(self._handle, _lib.as_index(count, "count", WORDS_MAX, least=1))

    def frame(self, count: SupportsIndex) -> ShadowFrame:
        """Return a frame of this thread's shadow stack: words that are roots inside a `with`.

        >>> heap = CollectedHeap()
        >>> with heap.frame(1) as local:
        ...     local[0] = heap.new(heap.add_type("leaf", 8))
        ...     heap.collect().freed_objects
        0

        Raises:
            InvalidError: count is 0 or negative.
        """
        return ShadowFrame._make(self._handle, _lib.as_index(count, "count", WORDS_MAX, least=1))

    def _check_object(self, target: CollectedObject, what: str = "target") -> None:
        _lib.check_type(target, CollectedObject, what)
        if target.type.heap_id != self.id:
            raise InvalidError(f"{target!r} belongs to another heap")

    def set_finalizer(self, target: CollectedObject, finalizer: Finalizer | None) -> None:
        """Set or replace the finalizer of an object; None removes it.

        A cycle that finds the object unreachable makes the finalizer due, and keeps the object and
        all that it reaches. `run_finalizers()` calls the finalizer once, with the object. Closing
        the heap calls no finalizer.

        >>> heap = CollectedHeap()
        >>> node = heap.new(heap.add_type("node", 16))
        >>> heap.set_finalizer(node, lambda node: print("the end of a", node.type.name))
        >>> del node
        >>> heap.collect().due_finalizers
        1
        >>> heap.run_finalizers()
        the end of a node
        1

        Raises:
            BlockFreedError: the object was freed or released.
            OutOfMemoryError: no memory; the object keeps its previous finalizer.
        """
        self._check_object(target)
        _lib.check_callable(finalizer, "finalizer")
        set_finalizer(self._handle, target, finalizer)

    def run_finalizers(self, most: SupportsIndex | None = None) -> int:
        """Call due finalizers, in this thread with no lock held; return the number of calls.

        The order is unspecified. A finalizer may use the heap: allocate, keep or free its object,
        collect, close the heap. An exception that it raises goes to `sys.unraisablehook`.

        Args:
            most: the maximum number of calls; None: all.
        """
        limit = None if most is None else _lib.as_index(most, "most")
        return call_due(self._handle, limit)

    def weak(self, target: CollectedObject, *, long: bool = False) -> WeakObject:
        """Return a weak reference, which does not keep the object alive; call it to get the object.

        >>> heap = CollectedHeap()
        >>> node = heap.new(heap.add_type("node", 16, []))
        >>> reference = heap.weak(node)
        >>> reference() is None
        False
        >>> del node
        >>> cycle = heap.collect()
        >>> reference() is None
        True

        Args:
            target: an object of this heap.
            long: the reference lasts until the object is freed, so it also sees an object that a
                finalizer has resurrected. False: it is cleared when the object becomes
                unreachable, before the finalizer is due.

        Raises:
            BlockFreedError: the object was freed or released.
        """
        self._check_object(target)
        return WeakObject._make(self._handle, target, long=long)

    def ephemeron(self, key: CollectedObject, value: CollectedObject | None = None) -> Ephemeron:
        """Return a pair whose value lives while the key does, for weak maps.

        The value does not keep the key alive, even if the key can be reached from it.

        >>> heap = CollectedHeap()
        >>> node = heap.add_type("node", 16, [0])
        >>> key, value = heap.new(node), heap.new(node)
        >>> value[0] = key
        >>> pair = heap.ephemeron(key, value)
        >>> del value
        >>> heap.collect().marked_objects
        2
        >>> pair.value[0] is key
        True
        >>> del key
        >>> heap.collect().freed_objects, pair.value
        (2, None)

        Args:
            key: an object of this heap.
            value: an object of this heap; None: none yet.

        Raises:
            BlockFreedError: an object was freed or released.
            OutOfMemoryError: no memory for the pair.
        """
        self._check_object(key, "key")
        return Ephemeron._make(self._handle, key, value)

    def build(
        self, type: ObjectType, edges: object, *, keep: Sequence[SupportsIndex] | None = None
    ) -> Graph:
        """Allocate a graph of objects in one C call.

        It starts no cycle, because the objects become roots afterwards. Their bytes count towards
        the pace, so the next `new()` starts a cycle that is due.

        Args:
            type: of all objects; edge e is stored in the e-th pointer word.
            edges: integers of shape (nodes, degree): the target of each edge, or `2**32 - 1` for
                none, as `random_graph()`, `binary_tree()` and `linked_list()` return.
            keep: nodes that become roots; None: node 0.

        Raises:
            TypeError: edges are not integers.
            InvalidError: a target does not exist, or the type has fewer pointers than `degree`.
            OutOfMemoryError: no memory, or the heap's limit is reached.

        >>> heap = CollectedHeap()
        >>> graph = heap.build(heap.add_type("node", 16, [0, 1]), binary_tree(9))
        >>> heap.collect().marked_objects
        1023
        >>> graph.release()
        >>> heap.collect().freed_objects
        1023
        """
        self._check_type(type)
        made = as_edges(edges)
        first = [0] if len(made) else []
        wanted = [
            _lib.as_index(i, "keep")
            for i in (first if keep is None else _lib.as_iterable(keep, "keep"))
        ]
        if any(i >= len(made) for i in wanted):
            raise InvalidError(f"node {max(wanted)} does not exist: the graph has {len(made)}")
        with self._handle as c_gc:
            addresses = np.zeros(len(made), np.uint64)
            out = ffi.cast("void **", ffi.from_buffer(addresses))
            c_edges = ffi.from_buffer("uint32_t[]", made)
            check(lib.sw_gc_build(c_gc, type.id, made.shape[1], len(made), c_edges, out))
            return Graph._make(self._handle, type, addresses, np.array(wanted, np.int64))

    # --- pace ---

    def _new(self, c_gc: Any, type_id: int, count: int) -> Any:
        """Return the address of a new object; with a pace, the call may first work on a cycle."""
        self._handle.block_new()
        if not (self._paced or self._always):
            return lib.sw_gc_new(c_gc, type_id, count)
        p = lib.sw_gc_new(c_gc, type_id, count)
        error = _lib.failure(lib.sw_last_error().status) if p == ffi.NULL else None
        self._add_ended(c_gc)
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
        """Let `new()` start and finish cycles, as Go's GOGC and GOMEMLIMIT do.

        The bytes that `new()` and `build()` allocate count, from this call and from the end of each
        cycle on; those of `new_untyped()` do not. Only `new()` starts cycles, before it allocates.

        Args:
            percent: a cycle is due after this percentage of the bytes live after the last cycle,
                or of 4 MiB if that is more, has been allocated. 0: never.
            limit_bytes: a soft limit of live plus newly allocated bytes: cycles start earlier, but
                not before a sixteenth of the live bytes, or 64 KiB, is allocated. None: no limit.
            in_steps: a cycle begins halfway to that point, and later allocations run it in steps,
                whose size follows from the bytes that were live after the last cycle. The first
                cycle knows of none, so it may end in one long step: call `collect()` before.
                False: a due cycle runs at once. A `concurrent` heap ignores it: a cycle begins
                early enough to end marking at that point, as estimated from earlier cycles; while
                marking is behind, allocating threads mark too, and at the point they wait for it.

        `set_pace(0)` removes the pace: then only the program starts cycles.

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
        """Return a context manager in which the calling thread stops while others work on cycles.

        A Python thread needs it when threads of another language use the heap at the same time
        (`sw_gc_join`). The thread stops at its calls; outside a call, no other thread waits for it.
        With `conservative` or `concurrent`, a thread joins at its first call, and this names it.

        Raises:
            StateError: the thread has already joined.
        """
        _lib.check_type(name, str, "name")
        self._handle.join(name)
        try:
            yield
        finally:
            self._handle.leave()

    def set_stop_ms(self, ms: float) -> None:
        """Set how long a call that works on a cycle waits for joined threads (default: 1000 ms).

        Raises:
            InvalidError: `ms` is not positive.
        """
        _lib.check_type(ms, (int, float), "ms")
        if not ms > 0:
            raise InvalidError(f"ms {ms}: give a time above 0")
        with self._handle as c_gc:
            check(lib.sw_gc_set_stop_ns(c_gc, int(min(max(ms * 1e6, 1), 2**62))))
