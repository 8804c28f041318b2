# SPDX-License-Identifier: Apache-2.0
"""Blocks of scalable allocators, and the pieces that free them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Count, Life, Owned, Viewed, refuse_views, view_at
from spanwise.errors import BlockFreedError, InvalidError, OverlapError

if TYPE_CHECKING:
    from spanwise.ranges.scalable import ScalableAllocator


def free_piece(address: int, size: int, shared: list[Owned]) -> None:
    """Free a block of the allocator in `shared`; do nothing if `close` has removed it.

    No lock is held, because destructors do this. The allocator that is read here lives until this
    call ends, even if another thread closes it meanwhile.
    """
    try:
        allocator = shared[0]
    except IndexError:
        return
    check(lib.sw_scalable_free(allocator.c, ffi.cast("void *", address), size))


class Piece:
    """An allocated block, freed by `give_back` or when the last reference is dropped.

    Attributes:
        size_bytes: size of the block.
    """

    __slots__ = ("_life", "_size", "address")

    def __init__(self, address: int, size: int, give: Callable[..., object], *needs: Any) -> None:
        """Own a block that `give(address, size, *needs)` frees."""
        self.address = address  # address of the first byte
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

    def export(self, views: Count, check_live: Callable[[], object]) -> memoryview:
        """Return the bytes as a counted view, which keeps the block alive.

        Args:
            views: counts the view. It is counted first, so that nothing frees the block from here
                on, nor closes its allocator.
            check_live: raises an exception if that has already happened.
        """
        life = views.taken(self._life)
        try:
            check_live()
        except BaseException:
            life.end()
            raise
        return view_at(self.address, self._size[0], life)


def _give(give: Callable[..., object], address: int, size: list[int], *needs: Any) -> None:
    if size[0]:
        give(address, size[0], *needs)


class BlockSource(Protocol):
    """Anything that allocates blocks.

    Attributes:
        _owners: counts the memories that own blocks.
        _owned_views: counts the views of such blocks.
    """

    _owners: Count
    _owned_views: Count

    def _take(self, size: int) -> Piece: ...

    def _check_open(self) -> None: ...


class ScalableBlock(Viewed):
    """A block of a scalable allocator, allocated until `free` or until the last reference goes.

    Any part can be freed, in any order; offsets are from the first byte of the whole block. While a
    view of the block is alive, no part can be freed, and the allocator cannot be closed
    (BlockBusyError). Closing the allocator frees the block; later calls raise StateError.

    >>> block = ScalableAllocator().alloc(100)
    >>> block.view()[:5] = b"hello"
    >>> bytes(block.view(0, 5))
    b'hello'
    >>> block.free()
    """

    __slots__ = ("__weakref__", "_address", "_allocator", "_pieces", "_size", "_views")
    _maker = "ScalableAllocator.alloc"

    def _set(self, allocator: ScalableAllocator, piece: Piece) -> None:
        self._allocator = allocator
        self._pieces = [piece]  # in address order
        self._address = piece.address
        self._size = piece.size_bytes
        self._views = Count(allocator._views)

    @property
    def address(self) -> int:
        """Address of the first byte of the whole block."""
        return self._address

    @property
    def size_bytes(self) -> int:
        """Bytes that are not freed."""
        return sum(stop - start for start, stop in self.parts)

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """The parts that are not freed, as pairs (start, stop) of offsets.

        >>> block = ScalableAllocator().alloc(100)
        >>> block.free(20, 50)
        >>> block.parts
        ((0, 20), (50, 100))
        """
        return () if self._allocator.closed else self._bounds()

    def _bounds(self) -> tuple[tuple[int, int], ...]:
        return tuple((self._start(one), self._start(one) + one.size_bytes) for one in self._pieces)

    @property
    def freed(self) -> bool:
        """Whether it was freed, by itself or with its allocator, or added to a memory."""
        return not self._pieces or self._allocator.closed

    def view(self, start: SupportsIndex = 0, stop: SupportsIndex | None = None) -> memoryview:
        """Return the bytes from `start` to `stop`, by default all, without a copy.

        `np.asarray(block)` and, from Python 3.12, `memoryview(block)` do the same for all bytes.

        Raises:
            BlockFreedError: it was freed, or a part of these bytes was.
            InvalidError: the offsets are outside the block.
            StateError: the allocator is closed.
        """
        with self._allocator._lock:
            self._allocator._open()
            first, last = self._range(start, stop)
            piece = self._piece(first, last, BlockFreedError)
            view = piece.export(self._views, lambda: self._check_has(piece))
            return view[first - self._start(piece) : last - self._start(piece)]

    def _check_has(self, piece: Piece) -> None:
        """Check that no `__del__` or signal handler has freed a piece. Needs the lock."""
        self._allocator._open()
        if not any(one is piece for one in self._pieces):
            raise BlockFreedError(f"{self!r}: it was freed", "DOUBLE_FREE")

    def free(self, start: SupportsIndex | None = None, stop: SupportsIndex | None = None) -> None:
        """Free the bytes from `start` to `stop`; by default all that are not freed.

        Raises:
            BlockFreedError: it was already freed; the code is DOUBLE_FREE.
            BlockBusyError: a view of it is alive.
            OverlapError: a part of these bytes was already freed; nothing changes.
            InvalidError: the offsets are outside the block, or start >= stop.
            StateError: the allocator is closed.

        >>> block = ScalableAllocator().alloc(100)
        >>> block.free(20, 50)
        >>> block.size_bytes, len(block.view(50, 100))
        (70, 50)
        >>> block.free()  # the rest
        """
        with self._allocator._lock:
            self._allocator._open()
            self._check_live()
            if start is None and stop is None:
                refuse_views(self._views.alive, self, "freeing it")
                pieces, self._pieces = self._pieces, []
                for piece in pieces:
                    piece.give_back()
                return
            self._free(*self._range(0 if start is None else start, stop, least=1))

    def shrink(self, keep: SupportsIndex) -> None:
        """Free all but the first `keep` bytes of the whole block; the block if `keep` is 0.

        Raises:
            InvalidError: keep is negative, or larger than the block.
            BlockFreedError, BlockBusyError, StateError: as in `free`.
        """
        with self._allocator._lock:
            c_allocator = self._allocator._open()
            self._check_live()
            end = self._bounds()[-1][1]
            first = _lib.as_index(keep, "keep", end)
            if first == 0:
                self.free()
            elif self._bounds() == ((0, end),) and first < end:
                refuse_views(self._views.alive, self, "shrinking it")
                at = ffi.cast("void *", self._address)
                check(lib.sw_scalable_shrink(c_allocator, at, end, first))
                self._pieces[0].size_bytes = first
            else:
                for start, stop in self._bounds():
                    if stop > first:
                        self._free(max(start, first), stop)

    def _range(
        self, start: SupportsIndex, stop: SupportsIndex | None, *, least: int = 0
    ) -> tuple[int, int]:
        """Return checked offsets of `least` bytes; a missing stop is the end of the last part."""
        first = _lib.as_index(start, "start", self._size)
        last = self._size if stop is None else _lib.as_index(stop, "stop", self._size)
        self._check_live()
        end = self._bounds()[-1][1]
        if stop is None and first <= end:
            last = end
        if last - first < least:
            raise InvalidError(f"start {first} is not below stop {last}")
        return first, last

    def _start(self, piece: Piece) -> int:
        return piece.address - self._address

    def _piece(self, first: int, last: int, kind: type[Exception]) -> Piece:
        """Return the piece that contains these bytes; raise `kind` if there is none."""
        self._check_live()
        for piece, (start, stop) in zip(self._pieces, self._bounds(), strict=True):
            if start <= first and last <= stop:
                return piece
        raise kind(f"{self!r}: some of the bytes {first} to {last} were freed")

    def _free(self, first: int, last: int) -> None:
        """Free bytes of one piece, which becomes up to two."""
        c_allocator = self._allocator._open()
        refuse_views(self._views.alive, self, "freeing a part of it")
        piece = self._piece(first, last, OverlapError)
        index, start = self._pieces.index(piece), self._start(piece)
        end = start + piece.size_bytes
        at = ffi.cast("void *", self._address + first)
        check(lib.sw_scalable_free(c_allocator, at, last - first))
        piece.size_bytes = first - start
        rest = [piece] if first > start else []
        if end > last:
            shared = self._allocator._shared
            rest.append(Piece(self._address + last, end - last, free_piece, shared))
        self._pieces[index : index + 1] = rest

    def _check_live(self) -> None:
        if not self._pieces:
            gone = f"the block at {self._address:#x} was freed, or added to a memory"
            raise BlockFreedError(gone, "DOUBLE_FREE")

    def _hand_over(self) -> Piece:
        """Transfer the piece to a memory, which frees it."""
        with self._allocator._lock:
            self._allocator._open()
            self._check_live()
            refuse_views(self._views.alive, self, "adding it to a memory")
            if len(self._pieces) > 1:
                raise InvalidError(f"{self!r} has several parts")
            return self._pieces.pop()

    def __len__(self) -> int:
        return self.size_bytes

    def __repr__(self) -> str:
        size = "freed" if self.freed else f"{self.size_bytes:,} B"
        return f"<ScalableBlock at {self._address:#x}: {size}>"
