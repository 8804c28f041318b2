# SPDX-License-Identifier: Apache-2.0
"""Tiered slabs: slots of a few fixed sizes (docs/design/pool.md, "Tiered slabs")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Count, refuse_views
from spanwise.errors import InvalidError, OutOfMemoryError, UnsupportedError
from spanwise.heap.block import Slot
from spanwise.heap.handle import HeapUser
from spanwise.heap.heap import Heap
from spanwise.results.rows import Result, Rows, as_rows

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
        return f"<SlabBlock at {self._address:#x}: {size}>"


class TieredSlabs(HeapUser):
    """Slots of a few fixed sizes, for objects as long-lived as a connection. Thread-safe.

    A request gets a slot of the smallest tier that fits. If it is larger than all slots, or its
    tier is full, it gets a block of the heap, which is counted and reported to `alert`. After
    `close`, every call raises StateError.

    >>> with Heap() as heap, TieredSlabs(heap) as slabs:
    ...     buffer = slabs.alloc(900)
    ...     buffer.view()[:5] = b"hello"
    ...     buffer.free()
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
        """Create slabs without a slot in use.

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
