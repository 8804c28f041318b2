# SPDX-License-Identifier: Apache-2.0
"""Explicit thread caches of a heap."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

from spanwise import _lib
from spanwise._lib import ffi, lib, output_of
from spanwise.errors import InvalidError
from spanwise.heap.block import Block, new_block, reallocate, request_of
from spanwise.heap.handle import HeapHandle, HeapUser

if TYPE_CHECKING:
    from spanwise.heap.heap import Heap


class ThreadCache(HeapUser):
    """A cache of a heap, from which blocks are allocated without the heap's lock.

    A thread has one cache per heap; explicit ones let one thread act for many. Calls of several
    threads are serialised. The heap can be closed once its caches are; `close` returns the cache's
    spans to the heap, and keeps its blocks.

    >>> with Heap() as heap, heap.open_cache() as one, heap.open_cache() as other:
    ...     block = one.alloc(100)
    ...     other.free(block)
    """

    def __init__(self, heap: Heap) -> None:
        """Open a cache; `Heap.open_cache` is the same.

        Raises:
            HeapClosedError: the heap is closed.
            OutOfMemoryError: there is no memory for a cache.
        """
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
