# SPDX-License-Identifier: Apache-2.0
"""Collected heaps: objects that nothing reaches are freed by a mark-sweep collector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from spanwise import _format, _lib
from spanwise._lib import check, ffi, lib
from spanwise.errors import InvalidError, StateError
from spanwise.gc.cycle import PAUSE_DTYPE, PHASES, Cycle, read_cycle
from spanwise.gc.graphs import as_edges
from spanwise.gc.handle import GcHandle
from spanwise.gc.objects import CollectedObject, Graph, ObjectType, build
from spanwise.heap.options import HeapOptions, as_options, c_options
from spanwise.ledger.ledger import Ledger, read_ledger
from spanwise.results.rows import Rows, as_rows, rows_of
from spanwise.tables.table import SizeClassTable, as_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TYPE_BYTES_MAX = 1 << 31


class CollectedHeap:
    """A heap with a collector. Any thread may use it; calls wait for each other.

    What Python keeps (objects of `new`, graphs of `build`) are roots. Cycles run when they are
    asked for: `collect()` runs a whole one, `start()`, `step()` and `finish()` one in pieces,
    between which objects are made, written and freed.

    Args:
        table: size classes, or a table's name.
        options: limit, placement, decay of idle pages, kept spans; None: `HeapOptions()`.

    Raises:
        TypeError, InvalidError: for an argument that is not allowed.
        OutOfMemoryError: there is no memory for a heap.
    """

    __slots__ = ("__weakref__", "_cycles", "_handle", "_pauses")

    def __init__(
        self, table: SizeClassTable | str = "c16", *, options: HeapOptions | None = None
    ) -> None:
        made = as_table(table)
        self._handle = GcHandle(c_options(made, as_options(options), tracked=False), made)
        self._cycles: list[Cycle] = []
        self._pauses: list[tuple[int, str, int, int]] = []

    # --- life ---

    def close(self) -> None:
        """Ends the heap with all of its objects; a second call does nothing."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        return self._handle.closed

    @property
    def id(self) -> int:
        """The C library's number of the heap."""
        return self._handle.id

    @property
    def table(self) -> SizeClassTable:
        """The heap's size classes."""
        return self._handle.table

    def __enter__(self) -> CollectedHeap:
        with self._handle:
            return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

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
            InvalidError: the size is not allowed, or a word lies outside of it.
        """
        wanted = _lib.as_index(size, "size", TYPE_BYTES_MAX)
        words = tuple(sorted({_lib.as_index(word, "pointer word") for word in pointers}))
        if words and words[-1] >= wanted // 8:
            raise InvalidError(
                f"type {name!r} of {wanted} B has {wanted // 8} words: word {words[-1]} is none"
            )
        bits = np.zeros(max(1, -(-wanted // 512)), np.uint64)
        for word in words:
            bits[word // 64] |= np.uint64(1) << np.uint64(word % 64)
        c_name = ffi.new("char[]", str(name).encode())
        pattern = ffi.from_buffer("uint64_t[]", bits)
        made = ffi.new("sw_gc_type *", {"name": c_name, "bytes": wanted, "pointers": pattern})
        number = ffi.new("uint32_t *")
        with self._handle as c_gc:
            check(lib.sw_gc_add_type(c_gc, made, number))
        return ObjectType(str(name), wanted, words, self.id, int(number[0]))

    def _check_type(self, kind: ObjectType) -> None:
        if not isinstance(kind, ObjectType):
            raise TypeError(f"type must come from add_type, not be {type(kind).__name__}")
        if kind.heap_id != self.id:
            raise InvalidError(f"{kind!r} belongs to heap {kind.heap_id}, not to heap {self.id}")

    def new(self, type: ObjectType, count: SupportsIndex = 1) -> CollectedObject:
        """An object, or `count` of them in a row; its pointers are NULL.

        Raises:
            InvalidError: count is 0 or too large, or the type is another heap's.
            OutOfMemoryError: no memory, or the heap's limit is reached.
            HeapClosedError: the heap is closed.
        """
        self._check_type(type)
        number = _lib.as_index(count, "count")
        if number == 0 or number * type.size_bytes > _lib.SIZE_MAX:
            raise InvalidError(f"{number} objects of {type.size_bytes} B cannot be in a row")
        with self._handle as c_gc:
            p = lib.sw_gc_new(c_gc, type.id, number)
            if p == ffi.NULL:
                raise _lib.failure(lib.sw_last_error().status)
            return CollectedObject(self._handle, type, number, int(ffi.cast("uintptr_t", p)))

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
        wanted = [_lib.as_index(i, "kept node") for i in (first if keep is None else keep)]
        if any(i >= len(made) for i in wanted):
            raise InvalidError(f"node {max(wanted)} is none of {len(made)}")
        with self._handle as c_gc:
            addresses = build(self._handle, c_gc, type, made)
            return Graph(self._handle, type, addresses, np.array(wanted, np.int64))

    # --- cycles ---

    @property
    def phase(self) -> str:
        """What a step would do now: "marking", "sweeping", or "idle" between cycles."""
        with self._handle as c_gc:
            return PHASES[lib.sw_gc_current_phase(c_gc)]

    def _work(self, call: Any, *arguments: Any) -> Cycle:
        """One call that works on a cycle, with its record; a cycle that has ended is kept."""
        with self._handle as c_gc:
            before, phase = read_cycle(c_gc), self.phase
            status = call(c_gc, *arguments)
            error = None if status == 0 else _lib.failure(status)
            cycle = read_cycle(c_gc)
            if cycle is not None and cycle != before:
                same = before is not None and before.number == cycle.number
                spent = cycle.mark_ns + cycle.sweep_ns
                if same and before is not None:
                    spent -= before.mark_ns + before.sweep_ns
                held = int(self.ledger().held_bytes)
                self._pauses.append((cycle.number, phase, spent, held))
                if self.phase == "idle":
                    self._cycles.append(cycle)
            if error is not None:
                raise error
            if cycle is None:
                raise StateError("there was no cycle yet; call start() or collect()")
            return cycle

    def collect(self) -> Cycle:
        """A whole cycle; one that is under way is finished before.

        Raises:
            StateError: checkmark found a reachable object that was not marked.
            HeapClosedError: the heap is closed.
        """
        with self._handle:
            if self.phase != "idle":
                self.finish()
            return self._work(lib.sw_gc_collect, ffi.NULL)

    def start(self) -> Cycle:
        """Begins a cycle: reads the roots.

        Raises:
            StateError: one is under way.
        """
        return self._work(lib.sw_gc_start)

    def step(self, work: SupportsIndex = 1000) -> Cycle:
        """Does some work of the cycle that is under way; nothing when there is none.

        Args:
            work: objects to scan (512 B of a longer one count as one), or words of 64 slots to
                sweep.

        Raises:
            StateError: checkmark found a reachable object that was not marked.
        """
        return self._work(lib.sw_gc_step, _lib.as_index(work, "work"))

    def finish(self) -> Cycle:
        """Does what is left of the cycle.

        Raises:
            StateError: none is under way, or checkmark found an object that was not marked.
        """
        return self._work(lib.sw_gc_finish, ffi.NULL)

    def abandon(self) -> Cycle:
        """Gives up a cycle that marks: its sweep frees what was freed explicitly, nothing else.

        Raises:
            StateError: no cycle marks.
        """
        return self._work(lib.sw_gc_abandon)

    @property
    def cycles(self) -> Rows:
        """The cycles that have ended: a row each, with the fields of `Cycle`."""
        dicts = [cycle.to_dict() for cycle in list(self._cycles)]
        return rows_of(dicts, tuple(Cycle.__dataclass_fields__))

    @property
    def pauses(self) -> Rows:
        """The calls that worked on cycles: `cycle`, `phase` before, `ns`, `held_bytes` behind."""
        return as_rows(np.array(list(self._pauses), PAUSE_DTYPE))

    # --- looking ---

    def set_debug(
        self, *, checkmark: bool = False, clobber: bool = False, always: bool = False
    ) -> None:
        """Options that look for mistakes.

        Args:
            checkmark: each marking is compared with a second one, made in another way.
            clobber: what a sweep frees is filled with the byte 0xDB.
            always: `new` collects before each allocation.
        """
        chosen = [
            (checkmark, lib.SW_GC_CHECKMARK),
            (clobber, lib.SW_GC_CLOBBER),
            (always, lib.SW_GC_ALWAYS),
        ]
        with self._handle as c_gc:
            check(lib.sw_gc_set_debug(c_gc, sum(bit for wanted, bit in chosen if wanted)))

    def ledger(self) -> Ledger:
        """Where the heap's bytes are. What is not swept yet counts as live."""
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

    def plot_pauses(self, ax: Axes | None = None) -> Axes:
        """How long the calls took that worked on cycles: their share up to each time."""
        from spanwise.plots.collectors import pauses  # noqa: PLC0415

        return pauses(self.pauses, ax)

    def plot_cycles(self, ax: Axes | None = None) -> Axes:
        """What each cycle kept and freed."""
        from spanwise.plots.collectors import cycles  # noqa: PLC0415

        return cycles(self.cycles, ax)
