# SPDX-License-Identifier: Apache-2.0
"""A scalable allocator, and memory that gives all its blocks back at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, SupportsIndex

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise.errors import BlockBusyError
from spanwise.ranges.memory import Memory
from spanwise.results.values import Result


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

    `RecyclableMemory` takes its blocks from one. Every thread may call.
    """

    def __init__(
        self,
        *,
        first_bytes: SupportsIndex = 16 << 10,
        child_limit_bytes: SupportsIndex = 4 << 20,
        limit_bytes: SupportsIndex | None = None,
        idle_children: SupportsIndex = 1,
    ) -> None:
        """Makes an allocator without a block.

        Args:
            first_bytes: of the first block.
            child_limit_bytes: where doubling ends; larger requests get a block of their own.
            limit_bytes: the most that all blocks may have; None: no limit.
            idle_children: blocks without a taken byte that are kept.

        Raises:
            InvalidError: one of them is negative or too large, or they do not ascend.
        """
        options = ffi.new("sw_scalable_options *")
        lib.sw_scalable_options_init(options)
        options.first_bytes = _lib.as_index(first_bytes, "first_bytes")
        options.child_bytes_max = _lib.as_index(child_limit_bytes, "child_limit_bytes")
        options.idle_max = _lib.as_index(idle_children, "idle_children", (1 << 32) - 1)
        if limit_bytes is not None:
            options.limit_bytes = max(_lib.as_index(limit_bytes, "limit_bytes"), 1)
        out = ffi.new("sw_scalable **")
        check(lib.sw_scalable_create(options, out))
        super().__init__(out[0], lib.sw_scalable_destroy)

    def close(self) -> None:
        """Ends it and gives all blocks back; a second call does nothing.

        Raises:
            BlockBusyError: a memory still has blocks of it; recycle that first.
        """
        super().close()

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
            return "<ScalableAllocator, closed>"
        stats = self.stats()
        return f"<ScalableAllocator: {stats.taken_bytes:,} of {stats.held_bytes:,} B taken>"


class _Blocks:
    """What a recyclable memory owns. It is given back once: by `recycle`, or when nobody has it."""

    def __init__(self, allocator: ScalableAllocator) -> None:
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


class RecyclableMemory(Memory):
    """A memory that owns blocks of a scalable allocator, and gives all of them back at once.

    `next_n` takes a block and adds it at the end. `recycle` gives the blocks back; while somebody
    has a view of one (from `next_n`, `views` or a Reader's `pieces`), it raises BlockBusyError and
    changes nothing. A memory that is dropped gives its blocks back with the last view.

    Example:
        with ScalableAllocator() as allocator:
            frame = RecyclableMemory(allocator)
            frame.next_n(4)[:] = b"abcd"
            frame.recycle()
    """

    def __init__(self, allocator: ScalableAllocator) -> None:
        """Makes a memory without buffers.

        Args:
            allocator: where blocks come from.
        """
        super().__init__()
        self._blocks = _Blocks(allocator)

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
            return self._views[-1]

    def recycle(self) -> None:
        """Gives all blocks back and forgets all buffers. Readers of this memory are out of date.

        Raises:
            BlockBusyError: somebody has a view of a block.
        """
        with self._lock:
            blocks = self._blocks
            found = [self._place_of(view) for view in self._views]
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

    def _place_of(self, view: memoryview) -> memoryview | tuple[int, int, int]:
        """A view that is not of a block; or block, offset and size of one that is."""
        if view.nbytes == 0:
            return view
        address = int(ffi.cast("uintptr_t", ffi.from_buffer(view)))
        for block, size in self._blocks.owned.items():
            if block <= address < block + size:
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
        owned = len(self._blocks.owned)
        return f"<RecyclableMemory: {self.size_bytes:,} B, {owned:,} blocks owned>"
