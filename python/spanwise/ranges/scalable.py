# SPDX-License-Identifier: Apache-2.0
"""Scalable allocators, which cut requests from large blocks, and memory that owns the blocks."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np

from spanwise import _lib
from spanwise._lib import check, check_type, ffi, lib
from spanwise._owner import Count, Life, Owned, Owner, end_body, refuse_views
from spanwise.errors import InvalidError, OutOfMemoryError
from spanwise.ranges.allocators import backend_number
from spanwise.ranges.blocks import BlockSource, Piece, ScalableBlock, free_piece
from spanwise.ranges.memory import HasFileno, Memory, descriptor_of
from spanwise.results.rows import Result, Rows, as_rows, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BACKINGS = ("system", "libc", "pools", "buddy", "huge")
"""The source of blocks, in the order of sw_backing (include/spanwise/backing.h)."""


@dataclass(frozen=True)
class ScalableStats(Result):
    """The counters of a scalable allocator.

    Attributes:
        children: large blocks, from which requests are cut.
        idle_children: children without an allocated byte.
        held_bytes: bytes of all children.
        taken_bytes: live bytes: allocated_bytes - freed_bytes.
        allocated_bytes: bytes allocated since the creation.
        freed_bytes: bytes freed since the creation.
        child_allocs: children allocated from the system.
        child_frees: children returned to the system.
    """

    children: int
    idle_children: int
    held_bytes: int
    taken_bytes: int
    allocated_bytes: int
    freed_bytes: int
    child_allocs: int
    child_frees: int


class ScalableAllocator(Owner):
    """Allocates bytes from a few large blocks, each twice as large as the last, up to a cap.

    `alloc` returns a block; `RecyclableMemory` owns many blocks and frees them at once. Any thread
    may use an allocator. `close` frees all blocks, but raises BlockBusyError while a view of one is
    alive or a memory owns one: delete the view, or recycle the memory, first. After `close`, every
    call raises StateError, those of its blocks, too.

    >>> with ScalableAllocator() as allocator:
    ...     block = allocator.alloc(1024)
    ...     block.free(0, 512)  # any part, in any order
    ...     block.free(512, 1024)
    ...     allocator.free_bytes
    16384

    Args:
        first_bytes: size of the first block.
        child_limit_bytes: the size at which doubling ends; larger requests get their own block.
        limit_bytes: limit of the bytes of all blocks; None: no limit.
        idle_children: blocks without an allocated byte to retain.
        backing: the source of the blocks: "system" (mappings), "libc" (malloc), "pools" (freed
            blocks are reused), "buddy" (regions of 64 MiB) or "huge" (huge pages).
        backend: the range allocator of each block, as in RangeAllocator: "btree" and "treap"
            have first fit, "two-treaps" has best fit.

    Raises:
        InvalidError: an argument is negative or too large, or the sizes do not ascend.
        UnsupportedError: the backend is "buddy".
    """

    def __init__(
        self,
        *,
        first_bytes: SupportsIndex = 16 << 10,
        child_limit_bytes: SupportsIndex = 4 << 20,
        limit_bytes: SupportsIndex | None = None,
        idle_children: SupportsIndex = 1,
        backing: str = "system",
        backend: str = "btree",
    ) -> None:
        memory = lib.sw_allocator_of(_lib.as_choice(backing, "backing", BACKINGS))
        options = _lib.options_of(
            "sw_scalable_options",
            first_bytes=_lib.as_index(first_bytes, "first_bytes"),
            child_bytes_max=_lib.as_index(child_limit_bytes, "child_limit_bytes"),
            idle_max=_lib.as_index(idle_children, "idle_children", (1 << 32) - 1),
            memory=memory,
            backend=backend_number(backend),
        )
        if limit_bytes is not None:
            options.limit_bytes = max(_lib.as_index(limit_bytes, "limit_bytes"), 1)
        allocator = Owned(_lib.output_of(lib.sw_scalable_create, options), lib.sw_scalable_destroy)
        # Blocks and the views of them have the list, and thereby keep the C allocator. `close`
        # empties it, and the C allocator ends with the last call that has read the list before.
        self._shared = [allocator]
        self._views = Count()  # of ScalableBlocks
        self._owners = Count()  # memories that own blocks
        self._owned_views = Count()  # of their blocks, including the memories' own views
        super().__init__(allocator.c, _keep)

    # --- blocks ---

    def alloc(self, size: SupportsIndex) -> ScalableBlock:
        """Allocate a block, without zeroing its bytes.

        Raises:
            InvalidError: size is 0 or negative.
            OutOfMemoryError: no memory (LimitError: the limit is reached).
        """
        number = _lib.as_index(size, "size", least=1)
        with self._lock:
            return ScalableBlock._make(self, self._take(number))

    def read(self, file: int | HasFileno, size: SupportsIndex) -> ScalableBlock | None:
        """Allocate a block, fill it by one read of a file, and free the rest.

        Args:
            file: a descriptor, or an object with fileno().
            size: the maximum number of bytes to read.

        Returns:
            The block, shrunk to the bytes that were read; None at the end of the file.

        Raises:
            OSError: the read failed, and nothing is allocated. Other errors as in `alloc`.
        """
        descriptor = descriptor_of(file)
        block = self.alloc(size)
        try:
            count = os.readv(descriptor, [block.view()])
        except BaseException:
            block.free()
            raise
        block.shrink(count)
        return block if count else None

    @contextmanager
    def borrow(self, size: SupportsIndex) -> Iterator[memoryview]:
        """Allocate bytes for the body of a `with` statement: `with a.borrow(100) as view:`.

        Raises:
            BlockBusyError: a view is alive at the end; its bytes stay allocated until it ends.
        """
        block = self.alloc(size)
        view, failed = block.view(), True
        try:
            yield view
            failed = False
        finally:
            with suppress(BufferError):  # if a view is alive, block.free() raises
                view.release()
            end_body(block.free, failed)

    def _refuse_close(self) -> None:
        c_allocator, self._c = self._c, None  # a signal handler that runs meanwhile gets no view
        try:
            memories = self._owners.alive
            refuse_views(
                self._views.alive + (0 if memories else self._owned_views.alive),
                f"blocks of the {self._named()}",
                "closing it",
                users=memories,
                user=("memory owns", "memories own"),
                end="recycle the memories",
            )
        except BaseException:
            self._c = c_allocator
            raise

    def _ending(self) -> Callable[[], object]:
        return self._shared.clear

    def _check_open(self) -> None:
        with self._lock:  # so that no other thread is about to close it
            self._open()

    def _take(self, size: int) -> Piece:
        with self._lock:
            c_allocator = self._open()
            address = lib.sw_scalable_alloc(c_allocator, size)
            if address == ffi.NULL:
                check(lib.sw_last_error().status)
            return Piece(int(ffi.cast("uintptr_t", address)), size, free_piece, self._shared)

    def find(self, size: SupportsIndex) -> int:
        """Return the address that `alloc` would return now; the call may add a block.

        Raises:
            As `alloc`.

        >>> with ScalableAllocator() as allocator:
        ...     allocator.find(100) == allocator.alloc(100).address
        True
        """
        number = _lib.as_index(size, "size", least=1)
        with self._lock:
            address = lib.sw_scalable_borrow(self._open(), number)
            if address == ffi.NULL:
                check(lib.sw_last_error().status)
            return int(ffi.cast("uintptr_t", address))

    def children(self) -> Rows:
        """Return the large blocks by ascending address.

        Columns: address, size, free_size, largest_hole (bytes of the largest request that fits).

        >>> with ScalableAllocator(first_bytes=1024) as allocator:
        ...     block = allocator.alloc(100)
        ...     allocator.children()["free_size"].tolist()
        ...     block.free()
        [924]
        """
        count = ffi.new("size_t *")
        with self._lock:
            c_allocator = self._open()
            check(lib.sw_scalable_get_children(c_allocator, ffi.NULL, 0, count))
            rows = np.zeros(count[0], _lib.dtype_of("sw_scalable_child"))
            out = _lib.pointer(rows, "sw_scalable_child *")
            check(lib.sw_scalable_get_children(c_allocator, out, len(rows), count))
            return as_rows(rows)

    @property
    def free_bytes(self) -> int:
        """Bytes of the large blocks that are not allocated.

        >>> with ScalableAllocator(first_bytes=1024) as allocator:
        ...     block = allocator.alloc(100)
        ...     allocator.free_bytes
        ...     block.free()
        924
        """
        stats = self.stats()
        return stats.held_bytes - stats.taken_bytes

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the bytes of each large block, taken and free; return the matplotlib Axes."""
        return draw("scalable_children", self, ax)

    def trim(self) -> None:
        """Return every unused block to the system."""
        self._checked(lib.sw_scalable_trim)

    @staticmethod
    def backing_stats() -> dict[str, int]:
        """Return what the backings "pools" and "buddy" of the process keep, as sw_backing_stats."""
        made = ffi.new("sw_backing_stats *")
        lib.sw_backing_get_stats(made)
        return _lib.struct_dict(made)

    @staticmethod
    def trim_backings() -> int:
        """Free what the backings of the process keep; return its bytes.

        >>> with MemoryAllocator(4096, backing="pools") as memory:
        ...     memory.alloc(1).free()
        >>> ScalableAllocator.trim_backings() >= 4096
        True
        """
        return int(lib.sw_backing_trim())

    def stats(self) -> ScalableStats:
        """Return a snapshot of the counters."""
        return ScalableStats(**_lib.struct_dict(self._output(lib.sw_scalable_get_stats)))

    def verify(self) -> None:
        """Check all invariants.

        Raises:
            SpanwiseError: an invariant is violated; the message names it.
        """
        self._checked(lib.sw_scalable_verify)

    def __repr__(self) -> str:
        if self._c is None:
            return f"<{type(self).__name__}, closed>"
        stats = self.stats()
        return f"<{type(self).__name__}: {stats.taken_bytes:,} of {stats.held_bytes:,} B taken>"


def _keep(_: object) -> None:
    """End an allocator's `Life`, which destroys nothing: `ScalableAllocator._shared` does."""


class MemoryAllocator(ScalableAllocator):
    """Allocates blocks from one large block of fixed size.

    It is a scalable allocator with one child, which is allocated with the first block.

    >>> with MemoryAllocator(1 << 20, backing="huge") as memory:
    ...     block = memory.alloc(100)
    ...     block.view()[:5] = b"hello"
    ...     block.free()

    Args:
        size: bytes, 1 to 2^40.
        backing: as in ScalableAllocator.

    Raises:
        InvalidError: an argument is not within these limits.
    """

    def __init__(self, size: SupportsIndex, *, backing: str = "system") -> None:
        _lib.as_index(size, "size", least=1)
        super().__init__(
            first_bytes=size, child_limit_bytes=size, limit_bytes=size, backing=backing
        )


class _PlainBlocks:
    """Allocates each block separately with Python's allocator, without caching."""

    def __init__(self) -> None:
        self._owners = Count()
        self._owned_views = Count()

    def _check_open(self) -> None:
        """Do nothing: it is never closed."""

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

    Args:
        allocator: allocates the blocks; None: the memory is plain.
    """

    def __init__(self, allocator: ScalableAllocator | None) -> None:
        check_type(allocator, (ScalableAllocator, type(None)), "allocator")
        super().__init__()
        self._source: BlockSource = _PlainBlocks() if allocator is None else allocator
        self._owned: dict[int, Piece] = {}  # by address
        self._block_views = Count(self._source._owned_views)  # live views, with the memory's own
        self._ownership: Life | None = None  # counts this memory as an owner of blocks

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
                    copies.append(self._export(taken[-1]))
                    copies[-1][:] = view
                self.push(*copies)
            except BaseException:
                copies.clear()
                taken.clear()
                raise
            self._own(*taken)

    def next_n(self, size: SupportsIndex) -> memoryview:
        """Allocate a block, append it, and return its bytes, which are not zeroed.

        Raises:
            InvalidError: size is 0 or negative.
            OutOfMemoryError: no memory (LimitError: the allocator's limit is reached).
            StateError: the allocator is closed.
        """
        number = _lib.as_index(size, "size", least=1)
        with self._lock:
            piece = self._source._take(number)
            view = self._export(piece)
            self._own(piece)
            self.push(view)
            return view[:]

    def _export(self, piece: Piece) -> memoryview:
        return piece.export(self._block_views, self._source._check_open)

    def _own(self, *pieces: Piece) -> None:
        """Become the owner of pieces, of each of which a view is alive."""
        if pieces and self._ownership is None:
            self._ownership = self._source._owners.taken()
        self._owned.update({piece.address: piece for piece in pieces})

    def add(self, block: ScalableBlock) -> None:
        """Append a block and take over its ownership; `block` then counts as freed.

        Raises:
            InvalidError: it belongs to another allocator, or the memory is plain.
            BlockFreedError: it was already freed or added.
            BlockBusyError: a view of it is alive.
            StateError: the allocator is closed.
        """
        check_type(block, ScalableBlock, "block")
        with self._lock:
            if block._allocator is not self._source:
                raise InvalidError(f"{block!r} does not belong to the allocator of {self!r}")
            piece = block._hand_over()
            view = self._export(piece)
            self._own(piece)
            self.push(view)

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
            ownership, self._ownership = self._ownership, None
            if ownership is not None:
                ownership.end()

    def reset(self) -> None:
        """Do the same as `recycle`."""
        self.recycle()

    def _place_of(self, view: memoryview, starts: list[int]) -> memoryview | tuple[int, int, int]:
        """Return block, offset and size of a view into an owned block, or else the view itself."""
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
                bytes_ = self._export(self._owned[block])
                view = bytes_[offset : offset + size]
            else:
                view = place
            self._views.append(view)
            self._kept.append(ffi.from_buffer(view))

    def __repr__(self) -> str:
        owned, kind = len(self._owned), "plain, " if self.allocator is None else ""
        return f"<RecyclableMemory: {kind}{self.size_bytes:,} B, {owned:,} blocks owned>"
