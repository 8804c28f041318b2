# SPDX-License-Identifier: Apache-2.0
"""Blocks of scalable and memory allocators: parts, views, files, the end of an allocator."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest
import spanwise as sw

from tests.python.helpers import in_threads
from tests.python.plots.drawn import KIB, bars


def test_a_block_is_taken_shortened_and_freed() -> None:
    with sw.ScalableAllocator(first_bytes=1024) as allocator:
        block = allocator.alloc(100)
        block.view()[:] = bytes(range(100))
        block.shrink(100)
        assert (len(block), allocator.stats().taken_bytes) == (100, 100)
        block.shrink(10)
        assert (len(block), allocator.stats().taken_bytes) == (10, 10)
        assert bytes(block.view()) == bytes(range(10))
        after = allocator.alloc(1014)  # what was freed is there again
        assert after.address == block.address + 10
        assert allocator.stats().children == 1
        after.free()
        block.shrink(0)
        assert (block.freed, after.freed, allocator.stats().taken_bytes) == (True, True, 0)
        assert repr(block) == f"<ScalableBlock at {block.address:#x}: freed>"
        assert np.frombuffer(allocator.alloc(8).view(), np.uint64).shape == (1,)
        gc.collect()
        assert allocator.stats().taken_bytes == 0  # the last reference is gone
        allocator.verify()


def test_a_block_is_added_to_a_memory() -> None:
    with sw.ScalableAllocator() as allocator, sw.ScalableAllocator() as other:
        frame = sw.RecyclableMemory(allocator)
        frame.next_n(2)[:] = b"ab"
        block = allocator.alloc(3)
        block.view()[:] = b"cde"
        frame.add(block)
        assert (frame.to_bytes(), len(frame), block.freed) == (b"abcde", 2, True)
        assert allocator.stats().taken_bytes == 5  # it stays taken, and the block cannot free it
        for use in (block.free, block.view, lambda: block.shrink(1), lambda: frame.add(block)):
            with pytest.raises(sw.BlockFreedError, match="added to a memory"):
                use()
        viewed = allocator.alloc(4)
        view = viewed.view()
        with pytest.raises(sw.BlockBusyError, match="1 view of"):
            frame.add(viewed)
        view.release()
        foreign = other.alloc(1)
        with pytest.raises(sw.InvalidError, match="does not belong to the allocator"):
            frame.add(foreign)
        with pytest.raises(sw.InvalidError, match="does not belong to the allocator"):
            sw.RecyclableMemory(None).add(foreign)
        frame.add(viewed)
        frame.add(allocator.alloc(2))  # nobody has this block any more, and its bytes stay
        gc.collect()
        assert allocator.stats().taken_bytes == 11
        frame.recycle()
        assert (allocator.stats().taken_bytes, other.stats().taken_bytes) == (0, 1)
        foreign.free()


@pytest.mark.parametrize(
    "take",
    [lambda block: block.view(), lambda block: np.frombuffer(block.view(), np.uint8)[5:]],
)
def test_a_block_with_a_view_stays(take: Callable[[sw.ScalableBlock], object]) -> None:
    allocator = sw.ScalableAllocator()
    block = allocator.alloc(100)
    view = take(block)
    for keep in (99, 1, 0):
        with pytest.raises(sw.BlockBusyError, match="1 view of"):
            block.shrink(keep)
    with pytest.raises(sw.BlockBusyError, match="1 view of"):
        block.free()
    with pytest.raises(sw.BlockBusyError):
        allocator.close()
    del block
    gc.collect()
    assert allocator.stats().taken_bytes == 100  # the view has it
    del view
    gc.collect()
    allocator.close()


def test_bytes_are_borrowed_for_a_while() -> None:
    with sw.ScalableAllocator() as allocator:
        with allocator.borrow(1000) as view, allocator.borrow(1000) as other:
            view[:] = b"a" * 1000
            other[:] = b"b" * 1000
            assert set(view) == {ord("a")}
            assert allocator.stats().taken_bytes == 2000
        assert allocator.stats().taken_bytes == 0
        with pytest.raises(ValueError, match="released"):
            view[0]
        with pytest.raises(BufferError), allocator.borrow(1000) as view:
            kept = np.frombuffer(view, np.uint8)
        assert kept.nbytes == 1000
        del kept, view
        gc.collect()
        assert allocator.stats().taken_bytes == 0
        with pytest.raises(sw.InvalidError), allocator.borrow(0):
            pass


def test_a_block_is_read_from_a_file() -> None:
    front, back = os.pipe()
    with sw.ScalableAllocator() as allocator:
        try:
            os.write(back, b"hello")
            block = allocator.read(front, 1500)
            assert block is not None
            assert (bytes(block.view()), allocator.stats().taken_bytes) == (b"hello", 5)
            block.free()
            os.set_blocking(front, False)
            with pytest.raises(BlockingIOError):
                allocator.read(front, 1500)
            os.close(back)
            assert allocator.read(front, 1500) is None
        finally:
            os.close(front)
        with pytest.raises(OSError, match="descriptor"):
            allocator.read(front, 1500)
        assert allocator.stats().taken_bytes == 0


# --- parts of a block -----------------------------------------------------------------------------


def test_parts_are_freed_in_any_order() -> None:
    with sw.ScalableAllocator(first_bytes=1024) as allocator:
        block = allocator.alloc(1000)
        block.view()[:] = bytes(i % 251 for i in range(1000))
        block.free(200, 300)
        block.free(500, 1000)
        assert list(block.parts) == [(0, 200), (300, 500)]
        assert (block.size_bytes, allocator.free_bytes) == (400, 624)
        assert bytes(block.view(300, 310)) == bytes(i % 251 for i in range(300, 310))
        for start, stop in ((250, 260), (100, 250), (100, 400), (450, 510)):
            with pytest.raises(sw.OverlapError, match="were freed"):
                block.free(start, stop)
            with pytest.raises(sw.BlockFreedError):
                block.view(start, stop)
        with pytest.raises(sw.BlockFreedError):
            block.view()
        view = block.view(0, 10)
        with pytest.raises(sw.BlockBusyError):
            block.free(300, 310)
        del view
        block.free(0, 200)
        assert list(block.parts) == [(300, 500)]
        assert allocator.alloc(200).address == block.address  # the hole at the front
        block.shrink(400)
        assert list(block.parts) == [(300, 400)]
        block.free()
        assert (list(block.parts), block.freed) == ([], True)
        with pytest.raises(sw.BlockFreedError):
            block.free(0, 1)
        allocator.verify()
        gc.collect()
        assert allocator.stats().taken_bytes == 0


def test_offsets_that_a_block_does_not_have() -> None:
    block = sw.ScalableAllocator().alloc(100)
    for start, stop, said in (
        (-1, 5, "start -1 is negative"),
        (5, 101, "stop 101 is too large"),
        (7, 6, "start 7 is not below stop 6"),
        (5, 5, "start 5 is not below stop 5"),
        (100, None, "start 100 is not below stop 100"),
    ):
        with pytest.raises(sw.InvalidError, match=said):
            block.free(start, stop)
    assert list(block.parts) == [(0, 100)] and len(block.view(100)) == 0
    block.free(60, 100)
    with pytest.raises(sw.OverlapError, match="bytes 70 to 100 were freed"):
        block.free(70)
    with pytest.raises(sw.BlockFreedError, match="bytes 70 to 100 were freed"):
        block.view(70)
    with pytest.raises(sw.InvalidError, match="start 7 is not below stop 6"):
        block.view(7, 6)


def test_numpy_reads_blocks() -> None:
    """As views, not as objects of 0 dimensions."""
    with sw.ScalableAllocator() as allocator, sw.Stack() as stack, sw.Heap() as heap:
        slabs = sw.TieredSlabs(heap)
        for block in (allocator.alloc(8), stack.push(8), slabs.alloc(8)):
            array = np.asarray(block)
            array[:] = range(8)
            assert (array.dtype.name, array.shape) == ("uint8", (8,))
            assert bytes(block.view()) == bytes(range(8))
            assert np.asarray(block, np.int64).sum() == np.array(block).sum() == 28
            del array
        slabs.close()


@pytest.mark.parametrize(
    "make",
    [
        sw.Arena,
        sw.ScalableAllocator,
        sw.Stack,
        partial(sw.RangeAllocator, 10),
        partial(sw.Pool, sw.Heap(), 16),
    ],
)
def test_what_is_closed_is_not_entered(make: Callable[[], Any]) -> None:
    with make() as closed:
        pass
    with pytest.raises(sw.StateError, match="closed; make another"), closed:
        pytest.fail("the body ran")


def test_a_limit_is_named_with_what_is_held() -> None:
    with sw.ScalableAllocator(limit_bytes=20_000) as allocator:
        block = allocator.alloc(100)
        said = "18000 bytes would exceed limit_bytes=20000; 16384 are held"
        with pytest.raises(sw.LimitError, match=said):
            allocator.alloc(18_000)
        block.free()


def test_a_block_in_parts_is_not_added_to_a_memory() -> None:
    allocator = sw.ScalableAllocator()
    memory, block = sw.RecyclableMemory(allocator), allocator.alloc(100)
    block.free(10, 20)
    with pytest.raises(sw.InvalidError, match="several parts"):
        memory.add(block)
    block.free(0, 10)
    memory.add(block)
    assert memory.size_bytes == 80


# --- the end of an allocator ----------------------------------------------------------------------


@pytest.mark.parametrize("make", [sw.ScalableAllocator, lambda: sw.MemoryAllocator(1 << 20)])
def test_blocks_end_with_their_allocator(make: Callable[[], sw.ScalableAllocator]) -> None:
    with make() as allocator:
        blocks = [allocator.alloc(4096) for _ in range(50)]
        blocks[0].free(1024, 3072)
        blocks[1].view()[:5] = b"hello"
    block = blocks[0]
    assert allocator.closed and block.freed
    assert (block.parts, block.size_bytes, len(block)) == ((), 0, 0)
    assert repr(block) == f"<ScalableBlock at {block.address:#x}: freed>"
    with make() as other:
        memory = sw.RecyclableMemory(other)
        uses: list[Callable[[], object]] = [
            block.view,
            block.free,
            partial(block.free, 0, 10),
            partial(block.shrink, 5),
            partial(block.view, 0, 10),
            lambda: bytes(allocator.alloc(10).view()),
            allocator.stats,
            lambda: sw.RecyclableMemory(allocator).next_n(5),
            partial(sw.RecyclableMemory(allocator).add, block),
            lambda: sw.RecyclableMemory(allocator).clone(sw.Memory(b"abc")),
        ]
        for use in uses:
            with pytest.raises(sw.StateError, match="Allocator is closed; make another"):
                use()
        assert (len(memory), other.stats().taken_bytes) == (0, 0)
    del block, uses
    while blocks:  # in any order, and after the allocator's memory is gone
        blocks.pop(len(blocks) // 2)
    gc.collect()
    allocator.close()


@pytest.mark.parametrize("body_fails", [False, True])
def test_what_python_exposes_keeps_an_allocator_open(body_fails: bool) -> None:
    """If the body raises, its exception comes out; the memory ends with the last view."""
    allocator = sw.ScalableAllocator()
    views: list[object] = []
    error = ZeroDivisionError if body_fails else sw.BlockBusyError
    with pytest.raises(error), allocator:
        block, dropped = allocator.alloc(100), allocator.alloc(50)
        views += [block.view(), np.frombuffer(dropped.view(10, 20), np.uint8)[2:]]
        del dropped
        if body_fails:
            raise ZeroDivisionError
    assert not allocator.closed
    with pytest.raises(sw.BlockBusyError) as caught:
        allocator.close()
    assert str(caught.value) == (
        "2 views of blocks of the ScalableAllocator are alive; before closing it delete the arrays"
        " and memoryviews of it"
    )
    memories = [sw.RecyclableMemory(allocator) for _ in range(2)]
    for memory in memories:
        memory.next_n(10)
    with pytest.raises(sw.BlockBusyError) as caught:
        allocator.close()
    assert str(caught.value) == (
        "2 memories own blocks of the ScalableAllocator and 2 views of blocks of the"
        " ScalableAllocator are alive; before closing it recycle the memories and delete the arrays"
        " and memoryviews of it"
    )
    block.view()[0] = 1
    views.clear()
    kept = memories[0].views()
    memories.clear()
    del memory
    gc.collect()
    with pytest.raises(sw.BlockBusyError, match="1 view of blocks"):  # of a dropped memory
        allocator.close()
    kept[0][:] = b"x" * 10
    kept.clear()
    allocator.close()
    assert block.freed


def test_a_memory_that_owns_nothing_lets_its_allocator_close() -> None:
    allocator = sw.ScalableAllocator(limit_bytes=1 << 14)
    memory = sw.RecyclableMemory(allocator)
    with pytest.raises(sw.LimitError):
        memory.next_n(1 << 20)
    memory.push(b"shared")
    memory.next_n(5)
    memory.recycle()
    allocator.close()
    memory.push(b"more")
    memory.recycle()
    with pytest.raises(sw.StateError, match="closed"):
        memory.next_n(5)
    assert memory.size_bytes == 0


def test_blocks_that_threads_drop_while_their_allocator_closes() -> None:
    """Frees of blocks take no lock; the C allocator outlives those that have begun."""

    def end(allocator: sw.ScalableAllocator, piles: list[list[Any]], number: int) -> None:
        if number == len(piles):
            allocator.close()
        while number < len(piles) and piles[number]:
            piles[number].pop()

    for _ in range(60):
        allocator = sw.ScalableAllocator(first_bytes=1 << 12)
        piles = [[allocator.alloc(64) for _ in range(300)] for _ in range(3)]
        in_threads(partial(end, allocator, piles))


def test_a_view_made_while_its_allocator_closes() -> None:
    """A `__del__` or signal handler may run between any two lines of `close`."""
    outcomes: list[type | None] = []
    while not outcomes or outcomes[-1] is not None:  # None: close has fewer lines
        outcomes.append(_view_at_line_of_close(len(outcomes)))
    assert sw.StateError in outcomes and memoryview in outcomes and len(outcomes) > 10


def _view_at_line_of_close(line: int) -> type | None:
    allocator = sw.ScalableAllocator()
    block = allocator.alloc(1 << 20)
    found: list[Any] = []
    lines = iter(range(1000))
    names = ("close", "_refuse_close", "refuse_views", "alive", "_ending")

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        inside = frame.f_code.co_name in names
        if inside and event == "line" and next(lines) == line:
            try:
                found.append(block.view())
            except sw.StateError as error:
                found.append(error.with_traceback(None))
        return look if inside else None

    before = sys.gettrace()
    sys.settrace(look)
    try:
        with suppress(sw.BlockBusyError):
            allocator.close()
    finally:
        sys.settrace(before)
    for view in found:
        if isinstance(view, memoryview):
            assert not allocator.closed
            view[0] = view[-1] = 1
        else:
            assert allocator.closed
    return type(found[0]) if found else None


@pytest.mark.parametrize("close_in_cycle", [False, True])
def test_a_cycle_of_an_allocator_with_its_blocks_and_views(close_in_cycle: bool) -> None:
    """Code that Python's collector runs, in whatever order, reads and writes the views."""
    done: list[str] = []

    class User:
        def __init__(self) -> None:
            self.allocator = sw.ScalableAllocator()
            self.blocks = [self.allocator.alloc(1 << 16) for _ in range(4)]
            self.views = [block.view() for block in self.blocks[:2]]
            self.memory = sw.RecyclableMemory(self.allocator)
            self.memory.next_n(1 << 16)
            self.itself = self

        def __del__(self) -> None:
            if close_in_cycle:
                with pytest.raises(sw.BlockBusyError):
                    self.allocator.close()
                self.views.clear()
                self.memory.recycle()
                self.allocator.close()
                with pytest.raises(sw.StateError):
                    self.blocks[0].view()
            else:
                for view in self.views:
                    view[0] = view[-1] = 1
                self.memory.views()[0][:] = b"a" * (1 << 16)
            done.append("ok")

    User()
    gc.collect()
    assert done == ["ok"]


def test_the_blocks_of_a_scalable_allocator() -> None:
    """A block of 1 KiB with 400 bytes free, 300 of them in one hole; then one of 2 KiB."""
    with sw.ScalableAllocator(first_bytes=KIB) as allocator:
        one, other = allocator.alloc(KIB), allocator.alloc(2 * KIB)
        one.free(0, 300)
        one.free(500, 600)
        ax: Any = allocator.plot()
        order = sorted([one.address, other.address])
        first = order.index(one.address)
        found = {name: [bar[2] * KIB for bar in bars_] for name, bars_ in bars(ax).items()}
        assert [round(sizes[first]) for sizes in found.values()] == [624, 100, 300]
        assert [round(sizes[1 - first]) for sizes in found.values()] == [2 * KIB, 0, 0]
        assert [text.get_text() for text in ax.get_yticklabels()] == [f"{at:#x}" for at in order]
        ax.figure.canvas.draw()
        assert ax.title.get_window_extent().x1 <= ax.figure.bbox.x1
