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
"""Which idle block is reused first: the one put back last, or first (see sw_pool_order)."""

TINY_BYTES = 16  # smaller blocks of a heap with tiny=True share slots


@dataclass(frozen=True)
class PoolStats(Result):
    """The counters of a pool.

    Attributes:
        idle: blocks in the pool.
        gets: calls of `get` that returned a block.
        fresh: calls of `get` that returned a new block.
        puts: blocks put back.
        dropped: blocks put back but freed, because the pool was full.
        aged: blocks freed by `age`.
    """

    idle: int
    gets: int
    fresh: int
    puts: int
    dropped: int
    aged: int


def _create(options: Any, thread_slots: bool, c_heap: Any) -> Any:
    """Return a C pool of a heap, with a slot for each thread if thread_slots is true."""
    options.heap = c_heap
    c_pool = _lib.output_of(lib.sw_pool_create, options)
    status = lib.sw_pool_add_thread_slots(c_pool) if thread_slots else 0
    if status != 0:
        error = _lib.failure(status)
        lib.sw_pool_destroy(c_pool)
        raise error
    return c_pool


class Pool(HeapUser):
    """Blocks of one size that are reused instead of freed. Any thread may use it.

    A block that is not put back may be freed by its own `free`. A heap can only be closed after
    its pools; until then its `close` raises BlockBusyError. After the pool's `close`, every call
    raises StateError.

    >>> with Heap() as heap, Pool(heap, 88, capacity=100) as pool:
    ...     block = pool.get()
    ...     block.view()[:] = 1
    ...     pool.put(block)
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
        """Create an empty pool.

        Args:
            heap: allocates and frees the blocks.
            item_bytes: size of a block, at least 1.
            capacity: the most idle blocks, 1 to 2^32; further ones are freed.
            order: "lifo" reuses the block put back last, "fifo" the one put back first.
            zero: clear blocks when they are put back, and zero new ones.
            aged: keep two generations, see `age`. Only with order "lifo".
            thread_slots: each thread also keeps one idle block of its own.
            construct: called with each new block, but not with a reused one. If it raises, the
                block is freed.

        Raises:
            InvalidError: an argument is outside these limits.
            UnsupportedError: the heap is dry or shares the slots of such small blocks, or the
                options exclude each other.
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
        """Return an idle block with its old content (zeros with zero=True), or else a new one.

        Raises:
            OutOfMemoryError: no memory, or the heap's limit is reached.
            Exception: `construct` raised it; the block is freed.
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
        """Put a block back. The Block is no longer usable; a later `get` returns another for it.

        Raises:
            BlockFreedError: it was already put back or freed; the code is DOUBLE_PUT.
            BlockBusyError: a view of it is alive.
            InvalidError: it has another size, or belongs to another heap.
        """
        _lib.check_type(block, Block, "block")
        if block._handle is not self._handle:
            raise InvalidError(f"{block!r} belongs to another heap than pool {self._handle.id}")
        with self._lock:
            c_pool = self._open()
            if block.size_bytes != self._bytes:
                raise InvalidError(f"{block!r} in a pool of blocks of {self._bytes} bytes")
            with self._handle.lock:
                if block.freed:
                    raise BlockFreedError(f"{block!r} was already put back or freed", "DOUBLE_PUT")
                block._claim_free()
            check(lib.sw_pool_put(c_pool, ffi.cast("void *", block.address), self._bytes))

    def age(self) -> None:
        """Free the blocks that have been idle since the last call; the other idle blocks are next.

        Raises:
            UnsupportedError: the pool is not aged.
        """
        self._checked(lib.sw_pool_age)

    def age_with(self, heap: CollectedHeap | None) -> None:
        """Age once for each collection of the heap, in the first call after it begins.

        So a block that two collections find idle is freed. After the heap is closed, only `age`
        ages the pool.

        Args:
            heap: the heap whose collections count; None: no heap.

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
        """Free the idle blocks; a second call does nothing."""
        self._leave_collector()
        super().close()

    def _leave_collector(self) -> None:
        """Undo `age_with`; take the heap's lock before the pool's, as all other code does."""
        heap, self._ages_with = self._ages_with, None
        if heap is None:
            return
        with contextlib.suppress(HeapClosedError), heap._handle, self._lock:
            if self._c is not None:
                check(lib.sw_pool_age_with(self._c, ffi.NULL))

    # --- figures ---

    def stats(self) -> PoolStats:
        """Return a snapshot of the counters."""
        return PoolStats(**_lib.struct_dict(self._output(lib.sw_pool_get_stats)))

    @property
    def item_bytes(self) -> int:
        """Size of a block."""
        return self._bytes

    def __repr__(self) -> str:
        with self._lock:
            if self._c is None:
                return f"<Pool of {self._bytes:,} B, closed>"
            stats = self.stats()
        return f"<Pool of {self._bytes:,} B: {stats.idle:,} idle, {stats.fresh:,} made>"
