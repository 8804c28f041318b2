# SPDX-License-Identifier: Apache-2.0
"""Multi-buffer memory that owns its blocks and frees all of them at once."""

from __future__ import annotations

from bisect import bisect_right
from typing import SupportsIndex

from spanwise import _lib
from spanwise._lib import check_type, ffi
from spanwise._owner import Count, refuse_views
from spanwise.errors import InvalidError, OutOfMemoryError
from spanwise.ranges.blocks import BlockSource, Piece, ScalableBlock
from spanwise.ranges.memory import Memory
from spanwise.ranges.scalable import ScalableAllocator


class _PlainBlocks:
    """Allocates each block separately with Python's allocator, without caching."""

    def _take(self, size: int) -> Piece:
        if size == 0:
            raise InvalidError("size 0: request at least 1")
        try:
            block = ffi.new("unsigned char[]", size)
        except (MemoryError, OverflowError) as error:
            raise OutOfMemoryError(f"no memory for {size:,} bytes") from error
        return Piece(int(ffi.cast("uintptr_t", block)), size, _drop, block)


def _drop(*_: object) -> None:
    """Free a plain block: the arguments hold its last reference."""


class RecyclableMemory(Memory):
    """A memory that owns blocks of a scalable allocator, and frees all of them at once.

    Without an allocator it is *plain*: Python's allocator allocates and frees each block, as a
    program without recyclable memory would do. Everything else is the same.

    `next_n` allocates and appends a block. `recycle` frees the blocks; while a view of one is alive
    (from `next_n`, `views` or a Reader's `pieces`), it raises BlockBusyError and changes nothing.
    When the memory is dropped, the blocks are freed with the last view.

    >>> with ScalableAllocator() as allocator:
    ...     frame = RecyclableMemory(allocator)
    ...     frame.next_n(4)[:] = b"abcd"
    ...     frame.recycle()
    """

    def __init__(self, allocator: ScalableAllocator | None) -> None:
        """Create a memory without buffers.

        Args:
            allocator: allocates the blocks; None: the memory is plain.
        """
        check_type(allocator, (ScalableAllocator, type(None)), "allocator")
        super().__init__()
        self._source: BlockSource = _PlainBlocks() if allocator is None else allocator
        self._owned: dict[int, Piece] = {}  # by address
        self._block_views = Count()  # live views, including the memory's own

    @property
    def allocator(self) -> ScalableAllocator | None:
        """The allocator of the blocks; None: the memory is plain."""
        source = self._source
        return source if isinstance(source, ScalableAllocator) else None

    def clone(self, other: Memory) -> None:
        """Append copies of another memory's buffers, one owned block per buffer.

        Raises:
            OutOfMemoryError, StateError: as in `next_n`; nothing is appended.
        """
        check_type(other, Memory, "other")
        copies: list[memoryview] = []
        taken: list[Piece] = []
        views = other.views()  # releases other's lock before this one is acquired
        with self._lock:
            try:
                for view in views:
                    if view.nbytes == 0:
                        copies.append(view)
                        continue
                    taken.append(self._source._take(view.nbytes))
                    copies.append(taken[-1].export(self._block_views))
                    copies[-1][:] = view
                self.push(*copies)
            except BaseException:
                copies.clear()
                taken.clear()
                raise
            self._owned.update({piece.address: piece for piece in taken})

    def next_n(self, size: SupportsIndex) -> memoryview:
        """Allocate a block, append it, and return its bytes, which are not zeroed.

        Raises:
            InvalidError: size is 0 or negative.
            OutOfMemoryError: no memory (LimitError: the allocator's limit is reached).
            StateError: the allocator is closed.
        """
        number = _lib.as_index(size, "size")
        with self._lock:
            piece = self._source._take(number)
            self._owned[piece.address] = piece
            view = piece.export(self._block_views)
            self.push(view)
            return view[:]

    def add(self, block: ScalableBlock) -> None:
        """Append a block and take over its ownership; `block` then counts as freed.

        Raises:
            InvalidError: it belongs to another allocator, or the memory is plain.
            BlockFreedError: it was already freed or added.
            BlockBusyError: a view of it is alive.
        """
        check_type(block, ScalableBlock, "block")
        with self._lock:
            if block._allocator is not self._source:
                raise InvalidError(f"{block!r} belongs to another allocator than {self!r}")
            piece = block._hand_over()
            self._owned[piece.address] = piece
            self.push(piece.export(self._block_views))

    def recycle(self) -> None:
        """Free all blocks and remove all buffers. Readers of this memory become invalid.

        Raises:
            BlockBusyError: a view of a block is alive.
        """
        with self._lock:
            starts = sorted(self._owned)
            found = [self._place_of(view, starts) for view in self._views]
            self._views.clear()
            self._kept.clear()
            alive = self._block_views.alive
            if alive:
                self._restore(found)
                refuse_views(alive, f"blocks of {self!r}", "recycling them")
            super().reset()
            while self._owned:
                self._owned.popitem()[1].give_back()

    def reset(self) -> None:
        """Do the same as `recycle`."""
        self.recycle()

    def _place_of(self, view: memoryview, starts: list[int]) -> memoryview | tuple[int, int, int]:
        """Return block, offset and size of a view into an owned block, or else the view itself.

        `starts` is the ascending addresses of all owned blocks.
        """
        if view.nbytes == 0:
            return view
        address = int(ffi.cast("uintptr_t", ffi.from_buffer(view)))
        before = bisect_right(starts, address)
        block = starts[before - 1] if before else 0
        if before and address < block + self._owned[block].size_bytes:
            return block, address - block, view.nbytes
        return view

    def _restore(self, found: list[memoryview | tuple[int, int, int]]) -> None:
        """Restore the views in the lists; C's list was not changed."""
        for place in found:
            if isinstance(place, tuple):
                block, offset, size = place
                bytes_ = self._owned[block].export(self._block_views)
                view = bytes_[offset : offset + size]
            else:
                view = place
            self._views.append(view)
            self._kept.append(ffi.from_buffer(view))

    def __repr__(self) -> str:
        owned, kind = len(self._owned), "plain, " if self.allocator is None else ""
        return f"<RecyclableMemory: {kind}{self.size_bytes:,} B, {owned:,} blocks owned>"
