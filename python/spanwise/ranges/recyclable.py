# SPDX-License-Identifier: Apache-2.0
"""Memory that owns blocks, of a scalable allocator or plain ones, and gives all back at once."""

from __future__ import annotations

from bisect import bisect_right
from typing import SupportsIndex

from spanwise import _lib
from spanwise._lib import check_type, ffi
from spanwise._owner import Count, refuse_views
from spanwise.errors import InvalidError, OutOfMemoryError
from spanwise.ranges.memory import Memory
from spanwise.ranges.scalable import BlockSource, Piece, ScalableAllocator, ScalableBlock


class _PlainBlocks:
    """Blocks of Python's own allocator, one by one: nothing stays for the next request."""

    def _take(self, size: int) -> Piece:
        if size == 0:
            raise InvalidError("a request of size 0: ask for 1 or more")
        try:
            block = ffi.new("unsigned char[]", size)
        except (MemoryError, OverflowError) as error:
            raise OutOfMemoryError(f"no memory for {size:,} bytes") from error
        return Piece(int(ffi.cast("uintptr_t", block)), size, _drop, block)


def _drop(*_: object) -> None:
    """Gives a plain block back: its last reference goes with the arguments."""


class RecyclableMemory(Memory):
    """A memory that owns blocks of a scalable allocator, and gives all of them back at once.

    Without an allocator it is *plain*: each block is one of Python's own allocator and goes back
    there, as a program would do that has no recyclable memory. All else is the same.

    `next_n` takes a block and adds it at the end. `recycle` gives the blocks back; while somebody
    has a view of one (from `next_n`, `views` or a Reader's `pieces`), it raises BlockBusyError and
    changes nothing. A memory that is dropped gives its blocks back with the last view.

    Example:
        with ScalableAllocator() as allocator:
            frame = RecyclableMemory(allocator)
            frame.next_n(4)[:] = b"abcd"
            frame.recycle()
    """

    def __init__(self, allocator: ScalableAllocator | None) -> None:
        """Makes a memory without buffers.

        Args:
            allocator: where blocks come from; None: the memory is plain.
        """
        check_type(allocator, (ScalableAllocator, type(None)), "allocator")
        super().__init__()
        self._source: BlockSource = _PlainBlocks() if allocator is None else allocator
        self._owned: dict[int, Piece] = {}  # by address
        self._block_views = Count()  # that are alive, the memory's own ones included

    @property
    def allocator(self) -> ScalableAllocator | None:
        """Where blocks come from; None: the memory is plain."""
        source = self._source
        return source if isinstance(source, ScalableAllocator) else None

    def clone(self, other: Memory) -> None:
        """Adds copies of another memory's buffers, in as many segments, which this one owns.

        Raises:
            OutOfMemoryError, StateError: as `next_n`; nothing is added then.
        """
        check_type(other, Memory, "other")
        copies: list[memoryview] = []
        taken: list[Piece] = []
        views = other.views()  # other's lock is released again before this one is taken
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
        """Takes a block, adds it at the end, and gives its bytes, which are not zeroed.

        Raises:
            InvalidError: size is 0 or negative.
            OutOfMemoryError: the allocator has no memory (LimitError: it has reached its limit).
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
        """Adds a block at the end, and owns it from now on: the block itself counts as freed.

        Raises:
            InvalidError: it is of another allocator, or the memory is plain.
            BlockFreedError: it was freed, or added before.
            BlockBusyError: a view of it is alive.
        """
        check_type(block, ScalableBlock, "block")
        with self._lock:
            if block._allocator is not self._source:
                raise InvalidError(f"{block!r} is of another allocator than {self!r}")
            piece = block._hand_over()
            self._owned[piece.address] = piece
            self.push(piece.export(self._block_views))

    def recycle(self) -> None:
        """Gives all blocks back and forgets all buffers. Readers of this memory are out of date.

        Raises:
            BlockBusyError: somebody has a view of a block.
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
        """As recycle."""
        self.recycle()

    def _place_of(self, view: memoryview, starts: list[int]) -> memoryview | tuple[int, int, int]:
        """Block, offset and size of a view into a block; or the view itself if it is of no block.

        `starts` has the addresses of all blocks, ascending.
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
        """Puts the views of blocks back into the lists; C's list was not changed."""
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
