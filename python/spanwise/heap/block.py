# SPDX-License-Identifier: Apache-2.0
"""Allocated blocks of a heap."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import ffi, lib, output_of
from spanwise._owner import Claim, Count, Life, Viewed, array_at, refuse_views
from spanwise.errors import (
    BlockFreedError,
    InvalidError,
    OutOfMemoryError,
    SpanwiseError,
    StateError,
    UnsupportedError,
)
from spanwise.heap.handle import HeapHandle, HeapUser

if TYPE_CHECKING:
    from spanwise.heap.heap import Heap


class Slot(Viewed):
    """Base of blocks: an address, two sizes, a free that succeeds once, and views."""

    __slots__ = ("__weakref__", "_address", "_claim", "_size", "_usable", "_views")

    def _set_slot(self, address: int, size: int, usable_bytes: int) -> None:
        self._address = address
        self._size = size
        self._usable = usable_bytes
        self._views = Count()
        self._claim = Claim()

    @property
    def size_bytes(self) -> int:
        """Bytes that were requested."""
        return self._size

    @property
    def usable_bytes(self) -> int:
        """Bytes of the slot, or of the pages of a large object."""
        return self._usable

    @property
    def address(self) -> int:
        """Address of the first byte; only a number in a dry heap."""
        return self._address

    @property
    def freed(self) -> bool:
        """Whether it was freed, by itself or by closing what allocated it."""
        return self._claim.taken or self._is_closed()

    def _is_closed(self) -> bool:
        """Return whether what allocated it is closed."""
        raise NotImplementedError

    def _claim_free(self, before: str = "freeing it") -> None:
        """Claim the block for a free; of concurrent calls exactly one succeeds."""
        if not self._claim.take():
            raise BlockFreedError(f"{self!r} is already free", "DOUBLE_FREE")
        alive = self._views.alive
        if alive:
            self._claim.give_back()
            refuse_views(alive, self, before)

    def _array(self, life: Callable[[], Life]) -> NDArray[np.uint8]:
        """Return the bytes, which cannot be freed after `life()`. The caller holds the lock."""
        if not self._claim.taken:
            view_life = life()
            if not self._claim.taken:  # a __del__ that ran inside may have freed it
                return array_at(self._address, self._size, view_life)
            view_life.end()
        raise BlockFreedError(f"{self!r} is free")

    def __len__(self) -> int:
        return self.size_bytes


class Block(Slot):
    """The memory of one `Heap.alloc`, allocated until `free()` or until the heap is closed.

    Dropping the last reference does not free a block, as with C's malloc. Any thread may free it.
    `np.asarray(block)`, `view()` and, from Python 3.12, `memoryview(block)` return its bytes
    without a copy. While such a view, or an array derived from one, is alive, freeing the block or
    closing its heap raises BlockBusyError (a BufferError). In free-threaded Python, a view that a
    thread other than its creator drops stays alive until the creator runs Python code again, or
    ends.
    """

    __slots__ = ("_handle", "_scan")
    _maker = "Heap.alloc"

    def _set(
        self, handle: HeapHandle, address: int, size: int, usable_bytes: int, scan: bool
    ) -> None:
        self._handle = handle
        self._scan = scan
        self._set_slot(address, size, usable_bytes)

    def _is_closed(self) -> bool:
        return self._handle.closed

    def free(self, size: SupportsIndex | None = None) -> None:
        """Free the block.

        Args:
            size: its size in bytes, or one of the same class, for a sized free (C's `free_sized`,
                and `free_aligned_sized` for a block with an alignment); None: a plain free.

        Raises:
            BlockFreedError: the block is already free.
            BlockBusyError: a view of the block is alive.
            HeapClosedError: the heap is closed.
            InvalidError: `size` is of another class than the block.
            StateError: the block shares its slot (a tiny block of a heap with tiny=True).

        >>> heap = Heap()
        >>> heap.alloc(100).free()
        >>> heap.alloc(100).free(100)
        """
        wanted = None if size is None else _lib.as_index(size, "size")
        with self._handle as heap:
            self._claim_free()
            p = ffi.cast("void *", self._address)
            if wanted is None:
                lib.sw_heap_free(heap, p)
                return
            if wanted == self._size:  # an alignment may have given it a larger class
                wanted = self._usable
            if not self._handle.protected:  # there, the usable bytes are the requested ones
                wanted_slot = self._handle.table.round_up(max(wanted, 1))
            else:
                wanted_slot = wanted
            if wanted_slot != self._usable:
                self._claim.give_back()
                raise InvalidError(
                    f"{self!r}: {wanted} B belong to another class; give {self._size}",
                    "SIZE_MISMATCH",
                )
            lib.sw_heap_free_sized(heap, p, wanted)

    def realloc(self, size: SupportsIndex, *, zero: bool = False) -> None:
        """Resize this block; it may move, and the bytes up to the smaller size keep their values.

        Nothing is returned: the object stays the block. An alignment that `Heap.alloc` was given is
        not kept.

        Args:
            size: bytes; 0 shrinks to the smallest slot.
            zero: clear the new bytes.

        Raises:
            OutOfMemoryError: no memory, or the heap's limit is reached; the block is unchanged.
            Others: as `free`.

        >>> block = Heap().alloc(3)
        >>> block.view()[:] = 7
        >>> block.realloc(5, zero=True)
        >>> block.view().tolist()
        [7, 7, 7, 0, 0]
        """
        wanted = _lib.as_index(size, "size")
        with self._handle as heap:
            reallocate(lib.sw_heap_realloc, heap, self, wanted, zero)

    def _claim_free(self, before: str = "freeing it") -> None:
        with self._handle.lock:
            super()._claim_free(before)
            if self._handle.tiny and not self._scan and self._usable == 16:
                self._claim.give_back()
                raise StateError(f"{self!r} shares its slot with others and is freed with its heap")

    def view(self) -> NDArray[np.uint8]:
        """Return the requested bytes as a writable uint8 array of shape (size_bytes,), not a copy.

        `block.view()[:5] = b"hello"` writes bytes.

        Raises:
            BlockFreedError: the block is free.
            HeapClosedError: the heap is closed.
            UnsupportedError: the heap is dry, so it has no memory.
        """
        handle = self._handle
        if handle.dry:
            raise UnsupportedError(f"{self!r} has no memory: its heap is dry")
        with handle.lock:
            return self._array(lambda: handle.view_taken(self._views))

    def __repr__(self) -> str:
        return (
            f"<Block of heap {self._handle.id}: {self.size_bytes} B, {self._usable} usable,"
            f" at {self._address:#x}{', freed' if self.freed else ''}>"
        )


Request: TypeAlias = tuple[int, int | None, int]
"""Size, alignment and flags of an allocation."""


def request_of(size: SupportsIndex, zero: bool, align: SupportsIndex | None, scan: bool) -> Request:
    """Check the arguments of `Heap.alloc` before the heap is entered: they may close it."""
    wanted = _lib.as_index(size, "size")
    flags = (lib.SW_ZERO if zero else 0) | (lib.SW_SCAN if scan else 0)
    return wanted, None if align is None else _lib.as_index(align, "align", least=1), flags


def new_block(
    handle: HeapHandle, c_heap: Any, c_source: Any, functions: tuple[Any, Any], request: Request
) -> Block:
    """Allocate a block from a heap or a cache by its functions; the caller pins the heap."""
    size, align, flags = request
    alloc, aligned = functions
    p = alloc(c_source, size, flags) if align is None else aligned(c_source, size, align, flags)
    if p == ffi.NULL:
        raise _failure(handle, size, align)
    scan = flags >= lib.SW_SCAN
    usable = _usable(handle, c_heap, p, size, scan)
    return Block._make(handle, int(ffi.cast("uintptr_t", p)), size, usable, scan)


def reallocate(function: Any, c_source: Any, block: Block, size: int, zero: bool) -> None:
    """Resize a block by a function of its heap or cache; the caller pins the heap."""
    handle = block._handle
    flags = (lib.SW_ZERO if zero else 0) | (lib.SW_SCAN if block._scan else 0)
    with handle.lock:
        block._claim_free("resizing it")  # no other call may free or view it meanwhile
        try:
            p = function(c_source, ffi.cast("void *", block._address), size, flags)
            if p == ffi.NULL:
                raise _failure(handle, size)
            block._address, block._size = int(ffi.cast("uintptr_t", p)), size
            block._usable = _usable(handle, handle._c, p, size, block._scan)
        finally:
            block._claim.give_back()


def _usable(handle: HeapHandle, c_heap: Any, p: Any, size: int, scan: bool) -> int:
    if handle.tiny and not scan and 0 < size < 16:
        return 16  # the C library cannot look up p, which may be inside a shared slot
    usable = int(lib.sw_heap_usable_size(c_heap, p))
    # With tiny objects the C library returns 0 for any slot of 16 B, because it might be shared.
    return usable or (16 if handle.tiny else 0)


def _failure(handle: HeapHandle, size: int, align: int | None = None) -> SpanwiseError:
    last = lib.sw_last_error()
    name = _lib.text(lib.sw_status_name(last.status))
    error: SpanwiseError = OutOfMemoryError(f"heap {handle.id}: {size} bytes: out of memory")
    if name in ("NOMEM", "LIMIT", "INVALID"):
        error = _lib.failure(last.status)
    if align is not None and isinstance(error, OutOfMemoryError):
        return type(error)(f"{error}, with align={align}")
    return error


# --- thread caches --------------------------------------------------------------------------------


class ThreadCache(HeapUser):
    """A cache of a heap, from which blocks are allocated without the heap's lock.

    A thread has one cache per heap; explicit ones let one thread act for many. Calls of several
    threads are serialised. The heap can be closed once its caches are; `close` returns the cache's
    spans to the heap, and keeps its blocks.

    >>> with Heap() as heap, heap.open_cache() as one, heap.open_cache() as other:
    ...     block = one.alloc(100)
    ...     other.free(block)

    Args:
        heap: the heap; `Heap.open_cache` does the same.

    Raises:
        HeapClosedError: the heap is closed.
        OutOfMemoryError: there is no memory for a cache.
    """

    def __init__(self, heap: Heap) -> None:
        handle = getattr(heap, "_handle", None)
        if not isinstance(handle, HeapHandle):
            raise TypeError(f"heap must be Heap, not {type(heap).__name__}")
        self._own(handle, lambda c_heap: output_of(lib.sw_cache_open, c_heap), lib.sw_cache_close)

    def alloc(
        self,
        size: SupportsIndex,
        *,
        zero: bool = False,
        align: SupportsIndex | None = None,
        scan: bool = False,
    ) -> Block:
        """Allocate a block, as `Heap.alloc`.

        Raises:
            StateError: the cache is closed; and those of `Heap.alloc`.
        """
        request = request_of(size, zero, align, scan)
        with self._handle as c_heap, self._lock:
            functions = lib.sw_cache_alloc, lib.sw_cache_alloc_aligned
            return new_block(self._handle, c_heap, self._open(), functions, request)

    def realloc(self, block: Block, size: SupportsIndex, *, zero: bool = False) -> None:
        """Resize a block, as `Block.realloc`."""
        self._check(block)
        wanted = _lib.as_index(size, "size")
        with self._handle, self._lock:
            reallocate(lib.sw_cache_realloc, self._open(), block, wanted, zero)

    def free(self, block: Block) -> None:
        """Free a block of the heap, whichever cache allocated it; errors as in `Block.free`."""
        self._check(block)
        with self._handle, self._lock:
            cache = self._open()
            block._claim_free()
            lib.sw_cache_free(cache, ffi.cast("void *", block.address))

    def trim(self) -> None:
        """Return the cache's empty spans to the heap."""
        with self._handle, self._lock:
            lib.sw_cache_trim(self._open())

    def _check(self, block: Block) -> None:
        _lib.check_type(block, Block, "block")
        if block._handle is not self._handle:
            raise InvalidError(f"{block!r} belongs to another heap")

    def __repr__(self) -> str:
        return f"<ThreadCache of heap {self._handle.id}{', closed' if self.closed else ''}>"
