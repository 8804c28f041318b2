# SPDX-License-Identifier: Apache-2.0
"""Pools of blocks of one size, and tiered slabs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Count, refuse_views
from spanwise.errors import (
    BlockFreedError,
    HeapClosedError,
    InvalidError,
    OutOfMemoryError,
    UnsupportedError,
)
from spanwise.gc.heap import CollectedHeap
from spanwise.heap.block import Block, Slot
from spanwise.heap.handle import HeapUser
from spanwise.heap.heap import Heap
from spanwise.results.rows import Result, Rows, as_rows

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

    Args:
        heap: allocates and frees the blocks.
        item_bytes: size of a block, at least 1.
        capacity: the most idle blocks, 1 to 2^32; further ones are freed.
        order: "lifo" reuses the block put back last, "fifo" the one put back first.
        zero: clear blocks when they are put back, and zero new ones.
        aged: keep two generations, see `age`. Only with order "lifo".
        thread_slots: each thread also keeps one idle block.
        construct: called with each new block, but not with a reused one. If it raises, the
            block is freed.

    Raises:
        InvalidError: an argument is outside these limits.
        UnsupportedError: the heap is dry or shares the slots of such small blocks, or the
            options exclude each other.
        HeapClosedError: the heap is closed.
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
            raise InvalidError(f"{block!r} does not belong to the heap of pool {self._handle.id}")
        with self._lock:
            c_pool = self._open()
            if block.size_bytes != self._bytes:
                raise InvalidError(f"{block!r} in a pool of blocks of {self._bytes} bytes")
            with self._handle.lock:
                if block._claim.taken:
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


# --- tiered slabs ---------------------------------------------------------------------------------

TIERS = (256, 1024, 4096)
"""The default slot sizes in bytes."""

_TIER_DTYPE = _lib.dtype_of("sw_slab_tier_stats")


@dataclass(frozen=True)
class SlabsStats(Result):
    """The counters of tiered slabs.

    Attributes:
        tiers: number of tiers.
        used_slots: slots in use in all tiers.
        used_bytes: bytes of these slots.
        held_bytes: committed memory of the tiers.
        over_tier: requests that were larger than any slot.
        full: requests whose tier was full.
        own_objects: live heap blocks that such requests got instead.
    """

    tiers: int
    used_slots: int
    used_bytes: int
    held_bytes: int
    over_tier: int
    full: int
    own_objects: int


class SlabBlock(Slot):
    """The memory of one `TieredSlabs.alloc`, in use until `free` or until the slabs are closed.

    Dropping the last reference does not free it. While a view of it is alive, freeing it or closing
    its slabs raises BlockBusyError (a BufferError).
    """

    __slots__ = ("_slabs",)
    _maker = "TieredSlabs.alloc"

    def _set(self, slabs: TieredSlabs, address: int, size: int, usable_bytes: int) -> None:
        self._slabs = slabs
        self._set_slot(address, size, usable_bytes)

    def _is_closed(self) -> bool:
        return self._slabs.closed

    def free(self) -> None:
        """Free the slot.

        Raises:
            BlockFreedError: it was already freed; the code is DOUBLE_FREE.
            BlockBusyError: a view of it is alive.
        """
        slabs = self._slabs
        with slabs._lock:
            c_slabs = slabs._open()
            self._claim_free()
            check(lib.sw_slabs_free(c_slabs, ffi.cast("void *", self._address)))

    def view(self) -> NDArray[np.uint8]:
        """Return the requested bytes as a writable uint8 array of shape (size_bytes,), not a copy.

        `np.asarray(block)` and, from Python 3.12, `memoryview(block)` do the same.

        Raises:
            BlockFreedError: it was freed.
        """
        slabs = self._slabs
        with slabs._lock:
            slabs._open()
            array = self._array(lambda: self._views.taken(slabs._views.taken(slabs._life)))
            slabs._open()  # a __del__ that ran inside may have closed the slabs
            return array

    def __repr__(self) -> str:
        size = f"{self.size_bytes:,} B, {self.usable_bytes:,} usable"
        return f"<SlabBlock at {self._address:#x}: {size}{', freed' if self.freed else ''}>"


class TieredSlabs(HeapUser):
    """Slots of a few fixed sizes, for objects as long-lived as a connection. Thread-safe.

    A request gets a slot of the smallest tier that fits. If it is larger than all slots, or its
    tier is full, it gets a block of the heap, which is counted and reported to `alert`. After
    `close`, every call raises StateError.

    >>> with Heap() as heap, TieredSlabs(heap) as slabs:
    ...     buffer = slabs.alloc(900)
    ...     buffer.view()[:5] = b"hello"
    ...     buffer.free()

    Args:
        heap: serves requests that get no slot.
        tiers: slot sizes in bytes, ascending; 1 to 8 multiples of 16 up to 2^20.
        capacity: the most slots per tier, at least 1. Addresses for them are reserved.
        alert: called with "over-tier" or "full", the size of the request, and the number of
            requests so far that got no slot: at the first such request, and then at every
            `alert_every`-th one.
        alert_every: at least 1.

    Raises:
        InvalidError: an argument is outside these limits, or tiers do not ascend.
        UnsupportedError: the heap is dry.
        HeapClosedError: the heap is closed.
    """

    def __init__(
        self,
        heap: Heap,
        tiers: Sequence[SupportsIndex] = TIERS,
        *,
        capacity: SupportsIndex = 1 << 20,
        alert: Callable[[str, int, int], object] | None = None,
        alert_every: SupportsIndex = 1,
    ) -> None:
        _lib.check_type(heap, Heap, "heap")
        _lib.check_callable(alert, "alert")
        handle = heap._handle
        if handle.dry:
            raise UnsupportedError(f"heap {handle.id} is dry: it has no memory")
        options = _lib.options_of(
            "sw_slabs_options", capacity=_lib.as_index(capacity, "capacity"), locked=1
        )
        sizes = [_lib.as_index(size, "tiers") for size in _lib.as_iterable(tiers, "tiers")]
        if not 1 <= len(sizes) <= lib.SW_SLABS_TIERS_MAX:
            raise InvalidError(f"{len(sizes)} tiers: use 1 to {lib.SW_SLABS_TIERS_MAX}")
        options.tier_count = len(sizes)
        for i, size in enumerate(sizes):
            options.slot_bytes[i] = size
        self._every = _lib.as_index(alert_every, "alert_every")
        if self._every == 0:
            raise InvalidError("alert_every 0: use 1 or more")
        self._alert = alert
        self._views = Count()

        def create(c_heap: Any) -> Any:
            options.heap = c_heap
            return _lib.output_of(lib.sw_slabs_create, options)

        self._own(handle, create, lib.sw_slabs_destroy)

    def _refuse_close(self) -> None:
        refuse_views(self._views.alive, "blocks of the slabs", "closing them")

    def alloc(self, size: SupportsIndex, *, zero: bool = False) -> SlabBlock:
        """Allocate a block of `size` bytes; size 0 gets a slot of the smallest tier.

        Raises:
            InvalidError: the size is negative.
            OutOfMemoryError: no memory, or the heap's limit is reached.
            Exception: `alert` raised it; the block is freed.
        """
        number = _lib.as_index(size, "size")
        with self._lock, self._handle:
            c_slabs = self._open()
            before = self._misses()
            address = lib.sw_slabs_alloc(c_slabs, number, lib.SW_ZERO if zero else 0)
            count = self._misses()
            if address == ffi.NULL:
                raise OutOfMemoryError(f"no memory for a block of {number:,} bytes")
            usable = int(lib.sw_slabs_usable_size(c_slabs, address))
            block = SlabBlock._make(self, int(ffi.cast("uintptr_t", address)), number, usable)
        if self._alert is not None and count > before and (count - 1) % self._every == 0:
            try:
                self._alert("over-tier" if number > self._largest() else "full", number, count)
            except BaseException:
                block.free()
                raise
        return block

    def _misses(self) -> int:
        """Return the number of requests that got no slot."""
        stats = self._stats()
        return int(stats.over_tier + stats.full)

    def _largest(self) -> int:
        return int(self.tiers()["slot_bytes"][-1])

    def trim(self) -> int:
        """Return the memory after each tier's last used slot to the system; return its bytes."""
        with self._lock:
            return int(lib.sw_slabs_trim(self._open()))

    # --- figures ---

    def _stats(self) -> Any:
        return self._output(lib.sw_slabs_get_stats)

    def stats(self) -> SlabsStats:
        """Return a snapshot of the counters."""
        return SlabsStats(**_lib.struct_dict(self._stats()))

    def tiers(self) -> Rows:
        """Return one row per tier, smallest slots first.

        The columns are `slot_bytes`, `capacity` (slots with reserved addresses), `used_slots`,
        `peak_used_slots`, `allocs` (requests that got a slot), `requested_bytes` (of these
        requests) and `held_bytes`.
        """
        with self._lock:
            rows = np.zeros(self._stats().tiers, _TIER_DTYPE)
            for i in range(len(rows)):
                tier = _lib.output_of(lib.sw_slabs_get_tier, self._open(), i)
                rows[i] = tuple(_lib.struct_dict(tier).values())
        return as_rows(rows)

    def __repr__(self) -> str:
        with self._lock:
            if self._c is None:
                return "<TieredSlabs, closed>"
            tiers = "/".join(str(size) for size in self.tiers()["slot_bytes"].tolist())
            stats = self.stats()
        return f"<TieredSlabs of {tiers} B: {stats.used_slots:,} slots in use>"
