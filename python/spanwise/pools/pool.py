# SPDX-License-Identifier: Apache-2.0
"""Pools of blocks of one size (docs/design/pool.md, "Pools")."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, SupportsIndex

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise.errors import (
    BlockFreedError,
    HeapClosedError,
    InvalidError,
    OutOfMemoryError,
    UnsupportedError,
)
from spanwise.gc.heap import CollectedHeap
from spanwise.heap.block import Block
from spanwise.heap.handle import HeapUser
from spanwise.heap.heap import Heap
from spanwise.results.rows import Result

ORDERS = ("lifo", "fifo")
"""Which idle block is used next: the one that was put last, or first. As in sw_pool_order."""

TINY_BYTES = 16  # smaller blocks of a heap with tiny=True share slots


@dataclass(frozen=True)
class PoolStats(Result):
    """Figures of a pool.

    Attributes:
        idle: blocks that wait for their next use.
        gets: calls of get that gave a block.
        fresh: of these, new ones.
        puts: blocks that were put back.
        dropped: of these, freed at once because the pool was full.
        aged: freed by `age`.
    """

    idle: int
    gets: int
    fresh: int
    puts: int
    dropped: int
    aged: int


def _create(options: Any, thread_slots: bool, c_heap: Any) -> Any:
    """A C pool of a heap, with a place for each thread if thread_slots are asked for."""
    options.heap = c_heap
    c_pool = _lib.output_of(lib.sw_pool_create, options)
    status = lib.sw_pool_add_thread_slots(c_pool) if thread_slots else 0
    if status != 0:
        error = _lib.failure(status)
        lib.sw_pool_destroy(c_pool)
        raise error
    return c_pool


class Pool(HeapUser):
    """Blocks of one size that are used again instead of being freed. Every thread may call.

    A block that is not put back may be freed by its own `free`. A heap can be closed after its
    pools only; until then its `close` raises BlockBusyError. After the pool's `close` every call
    raises StateError.

    Example:
        with Heap() as heap, Pool(heap, 88, capacity=100) as pool:
            block = pool.get()
            block.view()[:] = 1
            pool.put(block)
    """

    def __init__(
        self,
        heap: Heap,
        item_bytes: SupportsIndex,
        *,
        capacity: SupportsIndex = 1024,
        order: str = "lifo",
        zero: bool = False,
        aged: bool = False,
        thread_slots: bool = False,
        construct: Callable[[Block], object] | None = None,
    ) -> None:
        """Makes an empty pool.

        Args:
            heap: where blocks come from, and where those go that the pool does not keep.
            item_bytes: of each block, at least 1.
            capacity: idle blocks that are kept, 1 to 2^32; further ones are freed.
            order: one of ORDERS.
            zero: blocks are cleared when they are put, and zeroed when new.
            aged: two generations, see `age`. Only of order "lifo".
            thread_slots: each thread keeps one more idle block for itself.
            construct: is called with each new block, and with none that is used again. If it
                raises, the block is freed.

        Raises:
            InvalidError: a number or the order is outside these limits.
            UnsupportedError: a heap that is dry, or that shares the slots of such small blocks; a
                combination that a pool cannot have.
            HeapClosedError: the heap is closed.
        """
        order_index = _lib.as_choice(order, "order", ORDERS)
        if construct is not None and zero:
            raise UnsupportedError("zero clears what construct has made: use one of them")
        self._bytes = _lib.as_index(item_bytes, "item_bytes")
        _lib.check_type(heap, Heap, "heap")
        _lib.check_callable(construct, "construct")
        handle = heap._handle
        if handle.dry or (handle.tiny and self._bytes < TINY_BYTES):
            kind = "dry: there is no memory" if handle.dry else "tiny: small blocks share slots"
            raise UnsupportedError(f"heap {handle.id} is {kind} that could be used again")
        options = _lib.options_of(
            "sw_pool_options",
            item_bytes=self._bytes,
            capacity=_lib.as_index(capacity, "capacity"),
            order=order_index,
            zero=int(zero),
            aged=int(aged),
            locked=int(thread_slots),
        )
        self._construct = construct
        self._ages_with: CollectedHeap | None = None
        create = functools.partial(_create, options, thread_slots)
        self._own(handle, create, lib.sw_pool_destroy)

    def get(self) -> Block:
        """An idle block as it was left (cleared with zero=True), else a new one.

        Raises:
            OutOfMemoryError: no memory, or the heap's limit is reached.
            Exception: what `construct` raises; the block is freed then.
        """
        with self._lock:
            fresh = self._output(lib.sw_pool_get_stats).fresh
            address = lib.sw_pool_get(self._open())
            if address == ffi.NULL:
                raise OutOfMemoryError(f"no memory for a block of {self._bytes} bytes")
            with self._handle as c_heap:
                usable = int(lib.sw_heap_usable_size(c_heap, address))
            where = int(ffi.cast("uintptr_t", address))
            block = Block._make(self._handle, where, self._bytes, usable, False)
            is_new = self._output(lib.sw_pool_get_stats).fresh > fresh
        if is_new and self._construct is not None:
            try:
                self._construct(block)
            except BaseException:
                block.free()
                raise
        return block

    def put(self, block: Block) -> None:
        """Takes a block back. It cannot be used any more; the next `get` makes another of it.

        Raises:
            BlockFreedError: it was put before, or freed; code is DOUBLE_PUT.
            BlockBusyError: a view of it is alive.
            InvalidError: it is of another size, or of another heap.
        """
        _lib.check_type(block, Block, "block")
        if block._handle is not self._handle:
            raise InvalidError(f"{block!r} is of another heap than the pool, {self._handle.id}")
        with self._lock:
            c_pool = self._open()
            if block.size_bytes != self._bytes:
                raise InvalidError(f"{block!r} in a pool of blocks of {self._bytes} bytes")
            with self._handle.lock:
                if block.freed:
                    raise BlockFreedError(f"{block!r} was put before, or freed", "DOUBLE_PUT")
                block._claim_free()
            check(lib.sw_pool_put(c_pool, ffi.cast("void *", block.address), self._bytes))

    def age(self) -> None:
        """Frees the blocks that have been idle since the last call; the idle ones are next.

        Raises:
            UnsupportedError: the pool is not aged.
        """
        self._checked(lib.sw_pool_age)

    def age_with(self, heap: CollectedHeap | None) -> None:
        """Ages once for each collection of the heap that begins, in the next call after it.

        So a block that two collections find idle is freed. When the heap is closed the pool ages by
        `age` alone again.

        Args:
            heap: the heap whose collections count; None: no heap's do.

        Raises:
            UnsupportedError: the pool is not aged.
            HeapClosedError: the heap is closed.
        """
        _lib.check_type(heap, (CollectedHeap, type(None)), "heap")
        self._leave_collector()
        if heap is None:
            self._checked(lib.sw_pool_age_with, ffi.NULL)
            return
        with heap._handle as c_gc, self._lock:
            check(lib.sw_pool_age_with(self._open(), c_gc))
            self._ages_with = heap

    def close(self) -> None:
        """Frees the idle blocks; a second call does nothing."""
        self._leave_collector()
        super().close()

    def _leave_collector(self) -> None:
        """Ends `age_with`; takes the heap's lock before the pool's, as all other code does."""
        heap, self._ages_with = self._ages_with, None
        if heap is None:
            return
        with contextlib.suppress(HeapClosedError), heap._handle, self._lock:
            if self._c is not None:
                check(lib.sw_pool_age_with(self._c, ffi.NULL))

    # --- figures ---

    def stats(self) -> PoolStats:
        """All figures at one moment."""
        return PoolStats(**_lib.struct_dict(self._output(lib.sw_pool_get_stats)))

    @property
    def item_bytes(self) -> int:
        """Bytes of each block."""
        return self._bytes

    def __repr__(self) -> str:
        with self._lock:
            if self._c is None:
                return f"<Pool of {self._bytes:,} B, closed>"
            stats = self.stats()
        return f"<Pool of {self._bytes:,} B: {stats.idle:,} idle, {stats.fresh:,} made>"
