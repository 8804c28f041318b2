# SPDX-License-Identifier: Apache-2.0
"""Scalable allocators, their blocks, and memory allocators."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, SupportsIndex

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Count, Life, Made, Owner, refuse_views, view_at
from spanwise.errors import BlockBusyError, BlockFreedError
from spanwise.ranges.memory import HasFileno, descriptor_of
from spanwise.results.rows import Result

BACKINGS = ("system", "libc", "pools", "buddy", "huge")
"""Where blocks come from, in the order of sw_backing (include/spanwise/backing.h)."""


@dataclass(frozen=True)
class ScalableStats(Result):
    """Figures of a scalable allocator.

    Attributes:
        children: blocks that it holds, from which requests are cut.
        idle_children: of these, without a taken byte.
        held_bytes: of all children.
        taken_bytes: of these, taken: allocated_bytes less freed_bytes.
        allocated_bytes: that requests got since it was made.
        freed_bytes: that were freed since then.
        child_allocs: children that were taken from the system.
        child_frees: children that were given back to it.
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
    """Bytes from a few large blocks, each twice as large as the one before, up to a cap.

    `alloc` takes a block; `RecyclableMemory` takes many and gives them back at once. Every thread
    may call. `close` raises BlockBusyError while a memory has blocks of it; recycle that first.
    After `close` every call raises StateError.

    Example:
        with ScalableAllocator() as allocator:
            block = allocator.read(socket, 1500)
            print(bytes(block.view()))
            block.free()
    """

    def __init__(
        self,
        *,
        first_bytes: SupportsIndex = 16 << 10,
        child_limit_bytes: SupportsIndex = 4 << 20,
        limit_bytes: SupportsIndex | None = None,
        idle_children: SupportsIndex = 1,
        backing: str = "system",
    ) -> None:
        """Makes an allocator without a block.

        Args:
            first_bytes: of the first block.
            child_limit_bytes: where doubling ends; larger requests get a block of their own.
            limit_bytes: the most that all blocks may have; None: no limit.
            idle_children: blocks without a taken byte that are kept.
            backing: where the blocks come from, one of BACKINGS.

        Raises:
            InvalidError: one of them is negative or too large, or they do not ascend.
        """
        memory = lib.sw_allocator_of(_lib.as_choice(backing, "backing", BACKINGS))
        options = _lib.options_of(
            "sw_scalable_options",
            first_bytes=_lib.as_index(first_bytes, "first_bytes"),
            child_bytes_max=_lib.as_index(child_limit_bytes, "child_limit_bytes"),
            idle_max=_lib.as_index(idle_children, "idle_children", (1 << 32) - 1),
            memory=memory,
        )
        if limit_bytes is not None:
            options.limit_bytes = max(_lib.as_index(limit_bytes, "limit_bytes"), 1)
        super().__init__(_lib.output_of(lib.sw_scalable_create, options), lib.sw_scalable_destroy)

    # --- blocks ---

    def alloc(self, size: SupportsIndex) -> ScalableBlock:
        """Takes a block, whose bytes are not zeroed.

        Raises:
            InvalidError: size is 0 or negative.
            OutOfMemoryError: no memory (LimitError: the limit is reached).
        """
        number = _lib.as_index(size, "size")
        with self._lock:
            return ScalableBlock._make(self, self._take(number))

    def read(self, file: int | HasFileno, size: SupportsIndex) -> ScalableBlock | None:
        """Takes a block, fills it by one read of a file, and frees what was not filled.

        Args:
            file: a descriptor, or what has one.
            size: the most that is read.

        Returns:
            The block, of as many bytes as came; None at the end of the file.

        Raises:
            OSError: of the system; nothing is taken then. Else as `alloc`.
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
        """`with allocator.borrow(100) as view:` takes bytes while the body runs.

        Raises:
            BlockBusyError: at the end, a view of them is alive; its bytes stay taken as long.
        """
        block = self.alloc(size)
        view = block.view()
        try:
            yield view
        finally:
            with suppress(BufferError):  # free below raises for a view that is alive
                view.release()
            block.free()

    def _refuse_close(self) -> None:
        taken = self.stats().taken_bytes
        if taken:
            raise BlockBusyError(f"{taken} bytes are taken; recycle the memories that have them")

    def _take(self, size: int) -> Piece:
        with self._lock:
            c_allocator = self._open()
            address = lib.sw_scalable_alloc(c_allocator, size)
            if address == ffi.NULL:
                check(lib.sw_last_error().status)
            # A piece frees itself without a lock of Python's, because destructors do it.
            return Piece(int(ffi.cast("uintptr_t", address)), size, _free, c_allocator, self._life)

    def trim(self) -> None:
        """Returns every unused block to the system."""
        self._checked(lib.sw_scalable_trim)

    def stats(self) -> ScalableStats:
        """All figures at one moment."""
        return ScalableStats(**_lib.struct_dict(self._output(lib.sw_scalable_get_stats)))

    def verify(self) -> None:
        """Compares the allocator with itself.

        Raises:
            SpanwiseError: a rule does not hold; the message has it.
        """
        self._checked(lib.sw_scalable_verify)

    def __repr__(self) -> str:
        if self._c is None:
            return f"<{type(self).__name__}, closed>"
        stats = self.stats()
        return f"<{type(self).__name__}: {stats.taken_bytes:,} of {stats.held_bytes:,} B taken>"


def _free(address: int, size: int, c_allocator: Any, _: Life) -> None:
    """Frees a block of an allocator, which the last argument has kept."""
    check(lib.sw_scalable_free(c_allocator, ffi.cast("void *", address), size))


class Piece:
    """A block that was taken. It is given back by `give_back`, or when nobody has it any more.

    Attributes:
        address: of the first byte.
        size_bytes: its length.
    """

    __slots__ = ("_life", "_size", "address")

    def __init__(self, address: int, size: int, give: Callable[..., object], *needs: Any) -> None:
        """`give(address, size, *needs)` will give it back."""
        self.address = address
        self._size = [size]  # a list, because the life outlives the piece
        self._life = Life(_give, give, address, self._size, *needs)

    @property
    def size_bytes(self) -> int:
        """Its length."""
        return self._size[0]

    @size_bytes.setter
    def size_bytes(self, size: int) -> None:
        self._size[0] = size

    def give_back(self) -> None:
        """Gives it back now; a second call does nothing."""
        self._life.end()

    def export(self, views: Count) -> memoryview:
        """Its bytes, counted while anybody has them; they keep the block alive."""
        return view_at(self.address, self._size[0], views.taken(self._life))


def _give(give: Callable[..., object], address: int, size: list[int], *needs: Any) -> None:
    give(address, size[0], *needs)


class BlockSource(Protocol):
    """Whatever blocks are taken from."""

    def _take(self, size: int) -> Piece: ...


class ScalableBlock(Made):
    """Bytes of a scalable allocator. They are taken until `free`, or until nobody has the block.

    While a view of it is alive the block cannot be freed or made shorter (BlockBusyError).
    """

    __slots__ = ("__weakref__", "_address", "_allocator", "_piece", "_views")
    _maker = "ScalableAllocator.alloc"

    def _set(self, allocator: ScalableAllocator, piece: Piece) -> None:
        self._allocator = allocator
        self._piece: Piece | None = piece
        self._address = piece.address
        self._views = Count()

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return self._address

    @property
    def size_bytes(self) -> int:
        """Its length; 0: it was freed."""
        piece = self._piece
        return 0 if piece is None else piece.size_bytes

    @property
    def freed(self) -> bool:
        """Whether it was freed."""
        return self._piece is None

    def view(self) -> memoryview:
        """The bytes, where they are.

        Raises:
            BlockFreedError: it was freed.
        """
        with self._allocator._lock:
            view = self._open().export(self._views)
            self._open()  # a __del__ that ran since may have freed it
            return view

    def __buffer__(self, flags: int, /) -> memoryview:
        return self.view()

    def free(self) -> None:
        """Gives the bytes back.

        Raises:
            BlockFreedError: it was freed before; code is DOUBLE_FREE.
            BlockBusyError: a view of it is alive.
        """
        self._shorten(0)

    def shrink(self, keep: SupportsIndex) -> None:
        """Frees all but the first `keep` bytes; all of them if it is 0.

        Raises:
            InvalidError: keep is negative, or more than there are.
            BlockFreedError, BlockBusyError: as `free`.
        """
        with self._allocator._lock:
            self._shorten(_lib.as_index(keep, "keep", self._open().size_bytes))

    def _open(self) -> Piece:
        piece = self._piece
        if piece is None:
            gone = f"the block at {self._address:#x} was freed, or added to a memory"
            raise BlockFreedError(gone, "DOUBLE_FREE")
        return piece

    def _hand_over(self) -> Piece:
        """Hands the piece over to a memory, which frees it.

        Raises:
            BlockFreedError, BlockBusyError: as `free`.
        """
        with self._allocator._lock:
            piece = self._open()
            refuse_views(self._views.alive, self, "adding it to a memory")
            self._piece = None
            return piece

    def _shorten(self, keep: int) -> None:
        with self._allocator._lock:
            c_allocator = self._allocator._open()
            piece = self._open()
            if keep >= piece.size_bytes:
                return
            refuse_views(self._views.alive, self, "freeing or shrinking it")
            if keep == 0:
                self._piece = None
                piece.give_back()
                return
            at = ffi.cast("void *", piece.address)
            check(lib.sw_scalable_shrink(c_allocator, at, piece.size_bytes, keep))
            piece.size_bytes = keep

    def __len__(self) -> int:
        return self.size_bytes

    def __repr__(self) -> str:
        size = "freed" if self.freed else f"{self.size_bytes:,} B"
        return f"<ScalableBlock at {self._address:#x}: {size}>"


class MemoryAllocator(ScalableAllocator):
    """Bytes of a size that is chosen once; blocks of any size are cut from them.

    It is a scalable allocator of one child, which the first block takes.

    Example:
        with MemoryAllocator(1 << 20, backing="huge") as memory:
            block = memory.alloc(100)
            block.view()[:5] = b"hello"
            block.free()
    """

    def __init__(self, size: SupportsIndex, *, backing: str = "system") -> None:
        """Makes an allocator; its bytes are taken by the first block.

        Args:
            size: bytes that it has, 1 to 2^40.
            backing: one of BACKINGS.

        Raises:
            InvalidError: one of them is not within these limits.
        """
        _lib.as_index(size, "size")
        super().__init__(
            first_bytes=size, child_limit_bytes=size, limit_bytes=size, backing=backing
        )
