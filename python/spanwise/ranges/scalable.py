# SPDX-License-Identifier: Apache-2.0
"""Scalable allocators, which cut requests from a few large blocks, and memory allocators."""

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
    may use an allocator. `close` raises BlockBusyError while a memory owns blocks of it; recycle
    the memory first. After `close`, every call raises StateError.

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
        """Create an allocator without a block.

        Args:
            first_bytes: size of the first block.
            child_limit_bytes: the size at which doubling ends; larger requests get their own block.
            limit_bytes: limit of the bytes of all blocks; None: no limit.
            idle_children: blocks without an allocated byte to retain.
            backing: the source of the blocks, one of BACKINGS.

        Raises:
            InvalidError: an argument is negative or too large, or the sizes do not ascend.
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
        """Allocate a block, without zeroing its bytes.

        Raises:
            InvalidError: size is 0 or negative.
            OutOfMemoryError: no memory (LimitError: the limit is reached).
        """
        number = _lib.as_index(size, "size")
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
        view = block.view()
        try:
            yield view
        finally:
            with suppress(BufferError):  # if a view is alive, block.free() raises
                view.release()
            block.free()

    def _refuse_close(self) -> None:
        taken = self.stats().taken_bytes
        if taken:
            raise BlockBusyError(f"{taken} bytes are allocated; recycle the memories that own them")

    def _take(self, size: int) -> Piece:
        with self._lock:
            c_allocator = self._open()
            address = lib.sw_scalable_alloc(c_allocator, size)
            if address == ffi.NULL:
                check(lib.sw_last_error().status)
            # A piece frees itself without a Python lock, because destructors do it.
            return Piece(int(ffi.cast("uintptr_t", address)), size, _free, c_allocator, self._life)

    def trim(self) -> None:
        """Return every unused block to the system."""
        self._checked(lib.sw_scalable_trim)

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


def _free(address: int, size: int, c_allocator: Any, _: Life) -> None:
    """Free a block of an allocator; the last argument has kept the allocator alive."""
    check(lib.sw_scalable_free(c_allocator, ffi.cast("void *", address), size))


class Piece:
    """An allocated block, freed by `give_back` or when the last reference is dropped.

    Attributes:
        address: address of the first byte.
        size_bytes: size of the block.
    """

    __slots__ = ("_life", "_size", "address")

    def __init__(self, address: int, size: int, give: Callable[..., object], *needs: Any) -> None:
        """Own a block that `give(address, size, *needs)` frees."""
        self.address = address
        self._size = [size]  # a list, because the Life outlives the piece
        self._life = Life(_give, give, address, self._size, *needs)

    @property
    def size_bytes(self) -> int:
        """Size of the block."""
        return self._size[0]

    @size_bytes.setter
    def size_bytes(self, size: int) -> None:
        self._size[0] = size

    def give_back(self) -> None:
        """Free the block now; a second call does nothing."""
        self._life.end()

    def export(self, views: Count) -> memoryview:
        """Return the bytes as a counted view, which keeps the block alive."""
        return view_at(self.address, self._size[0], views.taken(self._life))


def _give(give: Callable[..., object], address: int, size: list[int], *needs: Any) -> None:
    give(address, size[0], *needs)


class BlockSource(Protocol):
    """Anything that allocates blocks."""

    def _take(self, size: int) -> Piece: ...


class ScalableBlock(Made):
    """A block of a scalable allocator, allocated until `free` or until the last reference goes.

    While a view of the block is alive, it cannot be freed or shrunk (BlockBusyError).
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
        """Size of the block; 0 if it was freed."""
        piece = self._piece
        return 0 if piece is None else piece.size_bytes

    @property
    def freed(self) -> bool:
        """Whether it was freed."""
        return self._piece is None

    def view(self) -> memoryview:
        """Return the bytes, without a copy.

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
        """Free the block.

        Raises:
            BlockFreedError: it was already freed; the code is DOUBLE_FREE.
            BlockBusyError: a view of it is alive.
        """
        self._shorten(0)

    def shrink(self, keep: SupportsIndex) -> None:
        """Free all but the first `keep` bytes; the whole block if `keep` is 0.

        Raises:
            InvalidError: keep is negative, or larger than the block.
            BlockFreedError, BlockBusyError: as in `free`.
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
        """Transfer the piece to a memory, which frees it.

        Raises:
            BlockFreedError, BlockBusyError: as in `free`.
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
    """Allocates blocks from one large block of fixed size.

    It is a scalable allocator with one child, which is allocated with the first block.

    Example:
        with MemoryAllocator(1 << 20, backing="huge") as memory:
            block = memory.alloc(100)
            block.view()[:5] = b"hello"
            block.free()
    """

    def __init__(self, size: SupportsIndex, *, backing: str = "system") -> None:
        """Create an allocator; its memory is allocated with the first block.

        Args:
            size: bytes, 1 to 2^40.
            backing: one of BACKINGS.

        Raises:
            InvalidError: an argument is not within these limits.
        """
        _lib.as_index(size, "size")
        super().__init__(
            first_bytes=size, child_limit_bytes=size, limit_bytes=size, backing=backing
        )
