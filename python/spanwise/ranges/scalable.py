# SPDX-License-Identifier: Apache-2.0
"""A scalable allocator, and memory that gives all its blocks back at once."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, SupportsIndex

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise.errors import BlockBusyError, BlockFreedError, InvalidError, OutOfMemoryError
from spanwise.ranges.memory import HasFileno, Memory, as_bytes_view, descriptor_of
from spanwise.results.values import Result

BACKINGS = ("system", "libc", "pools", "buddy", "huge")
"""Where blocks lie, in the order of sw_backing (include/spanwise/backing.h)."""


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

    def to_dict(self) -> dict[str, int]:
        """All of it, for JSON."""
        return asdict(self)


class ScalableAllocator(_lib.Owner):
    """Bytes from a few large blocks, each twice as large as the one before, up to a cap.

    `alloc` takes a block; `RecyclableMemory` takes many and gives them back at once. Every thread
    may call.

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
            backing: where the blocks lie, one of BACKINGS.

        Raises:
            InvalidError: one of them is negative or too large, or they do not ascend.
        """
        if backing not in BACKINGS:
            raise InvalidError(f"backing {backing!r}: must be one of {', '.join(BACKINGS)}")
        options = ffi.new("sw_scalable_options *")
        lib.sw_scalable_options_init(options)
        options.first_bytes = _lib.as_index(first_bytes, "first_bytes")
        options.child_bytes_max = _lib.as_index(child_limit_bytes, "child_limit_bytes")
        options.idle_max = _lib.as_index(idle_children, "idle_children", (1 << 32) - 1)
        if limit_bytes is not None:
            options.limit_bytes = max(_lib.as_index(limit_bytes, "limit_bytes"), 1)
        options.memory = lib.sw_allocator_of(BACKINGS.index(backing))
        out = ffi.new("sw_scalable **")
        check(lib.sw_scalable_create(options, out))
        super().__init__(out[0], lib.sw_scalable_destroy)

    def close(self) -> None:
        """Ends it and gives all blocks back; a second call does nothing.

        Raises:
            BlockBusyError: a memory still has blocks of it; recycle that first.
        """
        super().close()

    # --- blocks ---

    def alloc(self, size: SupportsIndex) -> ScalableBlock:
        """Takes a block, whose bytes are not zeroed.

        Raises:
            InvalidError: size is 0 or negative.
            OutOfMemoryError: no memory (LimitError: the limit is reached).
            StateError: the allocator is closed.
        """
        number = _lib.as_index(size, "size")
        with self._lock:
            return ScalableBlock(self, self._take(number), number)

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
        block = self.alloc(size)
        try:
            count = os.readv(descriptor_of(file), [block.view()])
        except BaseException:
            block.free()
            raise
        block.shrink(count)
        return block if count else None

    @contextmanager
    def borrow(self, size: SupportsIndex) -> Iterator[memoryview]:
        """`with allocator.borrow(100) as view:` takes bytes for as long as the body runs.

        Raises:
            BlockBusyError: at the end, a view of them is alive; its bytes stay taken as long.
        """
        block = self.alloc(size)
        view = block.view()
        try:
            yield view
        finally:
            with suppress(BufferError):  # what has it is told by free
                view.release()
            block.free()

    def _end(self) -> None:
        taken = self.stats().taken_bytes
        if taken:
            raise BlockBusyError(f"{taken} bytes are taken; recycle the memories that have them")
        super()._end()

    def _take(self, size: int) -> int:
        with self._lock:
            address = lib.sw_scalable_alloc(self._open(), size)
            if address == ffi.NULL:
                check(lib.sw_last_error().status)
            return int(ffi.cast("uintptr_t", address))

    def _give(self, address: int, size: int) -> None:
        """Frees a block. Destructors call it, so it waits for no lock of Python's.

        It cannot be closed meanwhile, because the block is taken. But where both are garbage of one
        cycle, its finalizer may have ended it before, with all blocks.
        """
        if self._finalizer.alive:
            check(lib.sw_scalable_free(self._c, ffi.cast("void *", address), size))

    def trim(self) -> None:
        """Gives every block back of which nothing is taken."""
        with self._lock:
            check(lib.sw_scalable_trim(self._open()))

    def stats(self) -> ScalableStats:
        """All figures at one moment.

        Raises:
            StateError: it is closed.
        """
        stats = ffi.new("sw_scalable_stats *")
        with self._lock:
            check(lib.sw_scalable_get_stats(self._open(), stats))
        return ScalableStats(**_lib.struct_dict(stats))

    def verify(self) -> None:
        """Compares the allocator with itself.

        Raises:
            SpanwiseError: a rule does not hold; the message has it.
        """
        with self._lock:
            check(lib.sw_scalable_verify(self._open()))

    def __repr__(self) -> str:
        if self._c is None:
            return f"<{type(self).__name__}, closed>"
        stats = self.stats()
        return f"<{type(self).__name__}: {stats.taken_bytes:,} of {stats.held_bytes:,} B taken>"


class _PlainBlocks:
    """Blocks of Python's own allocator, one by one: nothing stays for the next request."""

    def __init__(self) -> None:
        self._kept: dict[int, Any] = {}

    def _take(self, size: int) -> int:
        if size == 0:
            raise InvalidError("a request of size 0: ask for 1 or more")
        try:
            block = ffi.new("unsigned char[]", size)
        except (MemoryError, OverflowError) as error:
            raise OutOfMemoryError(f"no memory for {size:,} bytes") from error
        address = int(ffi.cast("uintptr_t", block))
        self._kept[address] = block
        return address

    def _give(self, address: int, size: int) -> None:
        del size
        del self._kept[address]


class _Blocks:
    """What a recyclable memory owns. It is given back once: by `recycle`, or when nobody has it."""

    def __init__(self, allocator: ScalableAllocator | _PlainBlocks) -> None:
        self.allocator = allocator
        self.owned: dict[int, int] = {}  # address -> size
        self.exports = 0  # views that are alive, the memory's own ones included

    def export(self, address: int) -> Any:
        """The bytes of a block, as a buffer that is counted as long as anybody has it."""
        self.exports += 1
        pointer = ffi.gc(ffi.cast("unsigned char *", address), self._unexport)
        return ffi.buffer(pointer, self.owned[address])

    def _unexport(self, _: object) -> None:
        self.exports -= 1

    def give_back(self) -> None:
        """Frees all blocks."""
        while self.owned:
            self.allocator._give(*self.owned.popitem())

    def __del__(self) -> None:
        """Nobody has a view or the memory any more."""
        self.give_back()


class ScalableBlock(_lib.Uncopied):
    """Bytes of a scalable allocator. They are taken until `free`, or until nobody has the block.

    While a view of it is alive the block cannot be freed or made shorter (BlockBusyError).
    """

    def __init__(self, allocator: ScalableAllocator, address: int, size: int) -> None:
        self._allocator = allocator
        self._blocks = _Blocks(allocator)
        self._blocks.owned[address] = size
        self._address = address
        self._bytes = size

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return self._address

    @property
    def size_bytes(self) -> int:
        """Its length; 0: it was freed."""
        return self._bytes

    @property
    def freed(self) -> bool:
        """Whether it was freed."""
        return self._bytes == 0

    def view(self) -> memoryview:
        """The bytes, where they are.

        Raises:
            BlockFreedError: it was freed.
        """
        with self._allocator._lock:
            self._check()
            return memoryview(self._blocks.export(self._address)).cast("B")

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
        self._shorten(_lib.as_index(keep, "keep", self._bytes))

    def _check(self) -> None:
        if self._bytes == 0:
            raise BlockFreedError(f"the block at {self._address:#x} was freed", "DOUBLE_FREE")

    def _shorten(self, keep: int) -> None:
        blocks = self._blocks
        with self._allocator._lock:
            self._check()
            if keep >= self._bytes:
                return
            if blocks.exports:
                alive = (
                    f"{blocks.exports} view{'s' if blocks.exports > 1 else ''} of {self!r} alive"
                )
                raise BlockBusyError(f"{alive}; release what view() gave first")
            if keep == 0:
                self._bytes = 0
                blocks.give_back()
                return
            at = ffi.cast("void *", self._address)
            c_allocator = self._allocator._open()
            check(lib.sw_scalable_shrink(c_allocator, at, self._bytes, keep))
            self._bytes = blocks.owned[self._address] = keep

    def __len__(self) -> int:
        return self._bytes

    def __repr__(self) -> str:
        size = f"{self._bytes:,} B" if self._bytes else "freed"
        return f"<ScalableBlock at {self._address:#x}: {size}>"


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
        super().__init__()
        self._blocks = _Blocks(_PlainBlocks() if allocator is None else allocator)

    @property
    def allocator(self) -> ScalableAllocator | None:
        """Where blocks come from; None: the memory is plain."""
        source = self._blocks.allocator
        return source if isinstance(source, ScalableAllocator) else None

    def clone(self, other: Memory) -> None:
        """Adds copies of another memory's buffers, in as many segments, which this one owns.

        Raises:
            OutOfMemoryError, StateError: as `next_n`; nothing is added then.
        """
        copies: list[memoryview] = []
        taken: list[int] = []
        views = other.views()  # under its lock, which nobody waits for who has this one's
        with self._lock:
            blocks = self._blocks
            try:
                for view in views:
                    if view.nbytes == 0:
                        copies.append(view)
                        continue
                    taken.append(blocks.allocator._take(view.nbytes))
                    blocks.owned[taken[-1]] = view.nbytes
                    copies.append(as_bytes_view(blocks.export(taken[-1])))
                    copies[-1][:] = view
                self.push(*copies)
            except BaseException:
                copies.clear()
                for address in taken:
                    blocks.allocator._give(address, blocks.owned.pop(address))
                raise

    def next_n(self, size: SupportsIndex) -> memoryview:
        """Takes a block, adds it at the end, and gives its bytes, which are not zeroed.

        Raises:
            InvalidError: size is 0 or negative.
            OutOfMemoryError: the allocator has no memory (LimitError: it has reached its limit).
            StateError: the allocator is closed.
        """
        number = _lib.as_index(size, "size")
        with self._lock:
            address = self._blocks.allocator._take(number)
            self._blocks.owned[address] = number
            self.push(self._blocks.export(address))
            return self._views[-1][:]

    def recycle(self) -> None:
        """Gives all blocks back and forgets all buffers. Readers of this memory are out of date.

        Raises:
            BlockBusyError: somebody has a view of a block.
        """
        with self._lock:
            blocks = self._blocks
            starts = sorted(blocks.owned)
            found = [self._place_of(view, starts) for view in self._views]
            self._views.clear()
            self._kept.clear()
            if blocks.exports:
                alive = blocks.exports
                self._restore(found)
                raise BlockBusyError(
                    f"{alive} view{'s' if alive > 1 else ''} of blocks of {self!r} are alive;"
                    " release them before recycling"
                )
            super().reset()
            blocks.give_back()

    def reset(self) -> None:
        """As recycle."""
        self.recycle()

    def _place_of(self, view: memoryview, starts: list[int]) -> memoryview | tuple[int, int, int]:
        """A view that is not of a block; or block, offset and size of one that is.

        `starts` has the addresses of all blocks, ascending.
        """
        if view.nbytes == 0:
            return view
        address = int(ffi.cast("uintptr_t", ffi.from_buffer(view)))
        before = bisect_right(starts, address)
        block = starts[before - 1] if before else 0
        if before and address < block + self._blocks.owned[block]:
            return block, address - block, view.nbytes
        return view

    def _restore(self, found: list[memoryview | tuple[int, int, int]]) -> None:
        """Puts the views of blocks into the lists again; C still has its own."""
        for place in found:
            if isinstance(place, tuple):
                block, offset, size = place
                view = memoryview(self._blocks.export(block)).cast("B")[offset : offset + size]
            else:
                view = place
            self._views.append(view)
            self._kept.append(ffi.from_buffer(view))

    def __repr__(self) -> str:
        owned, kind = len(self._blocks.owned), "plain, " if self.allocator is None else ""
        return f"<RecyclableMemory: {kind}{self.size_bytes:,} B, {owned:,} blocks owned>"
