# SPDX-License-Identifier: Apache-2.0
"""Memory, Reader, scalable allocators: models, bad use, growth, recycling, live views."""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from hypothesis import given, settings
from hypothesis import strategies as st

PARTS = st.lists(st.binary(max_size=9), max_size=8)


@settings(max_examples=100, deadline=None)
@given(PARTS)
def test_a_reader_is_a_file(parts: list[bytes]) -> None:
    data = b"".join(parts)
    want, got = io.BytesIO(data), io.BufferedReader(sw.Reader(sw.Memory(*parts)), buffer_size=3)
    assert got.readlines() == want.readlines()
    for place in (len(data) // 2, 0, len(data)):
        assert got.seek(place) == want.seek(place)
        assert got.read() == want.read()
    raw = sw.Reader(data)
    assert raw.seek(0, os.SEEK_END) == len(data)
    assert raw.read() == b""
    assert raw.seek(-len(data), os.SEEK_CUR) == 0


def test_buffers_are_shared_both_ways() -> None:
    mine, array = bytearray(b"abc"), np.arange(4, dtype="<u2")
    memory = sw.Memory(mine, array, b"")
    assert (len(memory), memory.size_bytes) == (3, 11)
    mine[0] = ord("x")
    array[1] = 0x4142
    assert memory.to_bytes() == b"xbc\0\0BA\2\0\3\0"
    assert sw.Reader(memory).read_byte() == ord("x")
    memory.views()[0][1] = ord("y")
    assert mine == b"xyc"
    next(iter(sw.Reader(memory).pieces()))[2] = ord("z")
    assert mine == b"xyz"
    with pytest.raises(BufferError):
        mine.append(1)  # its bytes must stay where they are
    memory.reset()
    gc.collect()
    mine.append(1)


def test_memories_are_copied_compared_and_changed() -> None:
    memory = sw.Memory(b"abc", b"de")
    assert memory == sw.Memory(bytearray(b"abc"), b"de")
    assert memory != sw.Memory(b"ab", b"cde")
    assert memory != sw.Memory(b"abc", b"de", b"")
    memory.update(-1, b"xyz")
    assert (memory.size_bytes, bytes(memory)) == (6, b"abcxyz")
    memory.append(memory)
    memory.copy_from(memory)
    assert [view.nbytes for view in memory] == [3, 3, 3, 3, 12]
    out = bytearray(24)
    memory.copy_to(out)
    assert out == b"abcxyz" * 4
    with pytest.raises(sw.LimitError):
        memory.copy_to(bytearray(23))
    with pytest.raises(sw.InvalidError, match="read-only"):
        memory.copy_to(b"x" * 30)
    assert repr(memory) == "<Memory: 24 B in 5 buffers>"
    assert repr(sw.Memory(b"")) == "<Memory: 0 B in 1 buffer>"


@pytest.mark.parametrize("index", [2, -3, 1 << 70, -(1 << 70)])
def test_an_index_that_is_not_there(index: int) -> None:
    memory = sw.Memory(b"a", b"b")
    with pytest.raises(sw.InvalidError):
        memory.update(index, b"c")
    assert memory.to_bytes() == b"ab"


def test_what_is_no_buffer_is_refused_whole() -> None:
    memory = sw.Memory(b"a")
    with pytest.raises(TypeError):
        memory.push(b"b", "text")
    with pytest.raises(sw.InvalidError, match="contiguous"):
        memory.push(b"b", np.zeros((4, 4), np.uint8)[:, ::2])
    with pytest.raises(TypeError):
        sw.Reader(7)
    assert memory.to_bytes() == b"a"


def test_short_data_is_an_end_of_file_that_consumes_nothing() -> None:
    reader = sw.Reader(sw.Memory(b"\xff", b"\xff\xff"))
    for call in (
        lambda: reader.read_be(4),
        reader.read_leb128,
        lambda: reader.read_bytes(4),
        lambda: reader.read_bytes(1 << 60),
        lambda: reader.skip(4),
    ):
        with pytest.raises(sw.ShortError) as caught:
            call()
        assert isinstance(caught.value, EOFError)
        assert reader.tell() == 0
    for place in (-1, 4):
        with pytest.raises(sw.InvalidError):
            reader.seek(place)
    with pytest.raises(sw.InvalidError):
        reader.seek(0, 9)


def test_numbers_that_are_none() -> None:
    for data, code in ((b"\x80" * 10 + b"\0", "FORMAT"), (b"\xff" * 9 + b"\2", "LIMIT")):
        with pytest.raises(sw.InvalidError) as caught:
            sw.Reader(data).read_leb128()
        assert caught.value.code == code
    assert sw.Reader(b"\xff" * 9 + b"\1").read_leb128() == 2**64 - 1
    assert sw.Reader(b"\xab").read_byte(0x0F) == 0x0B


def test_a_reader_of_a_changed_memory_is_an_error_never_a_crash() -> None:
    memory = sw.Memory(bytearray(1 << 20))
    changes: list[Callable[[], object]] = [
        lambda: memory.update(0, b"x"),
        memory.reset,
        lambda: sw.Reader(memory).clip_front(),
    ]
    for change in changes:
        reader = sw.Reader(memory)
        change()
        gc.collect()
        for call in (reader.read, reader.read_byte, reader.tell, reader.current, reader.clip_front):
            with pytest.raises(sw.StateError):
                call()
        with pytest.raises(sw.StateError):
            list(reader.pieces())
        assert repr(reader) == "<Reader of a memory that was changed>"
        memory.push(bytearray(1 << 20))
    reader = sw.Reader(memory)
    size = reader.left_bytes
    memory.push(b"more")
    assert (reader.left_bytes, reader.readall()) == (size, bytes(size))
    assert reader.read() == b""


def test_a_closed_reader() -> None:
    with sw.Reader(b"abc") as reader:
        assert repr(reader) == "<Reader at 0 of 3 B>"
    assert repr(reader) == "<Reader, closed>"
    with pytest.raises(ValueError, match="closed"):
        reader.read()


def test_descriptors() -> None:
    front, back = os.pipe()
    try:
        memory = sw.Memory(*[b"", b"abc", b"defg"] * 50)
        reader = sw.Reader(memory)
        assert reader.write_to(back, 5) == 5
        assert reader.tell() == 5
        assert os.read(front, 9) == b"abcde"
        reader.skip(2)
        taken = reader.write_to(back)
        assert taken == 3 * 32 + 4 * 32  # 64 buffers that are not empty
        assert os.read(front, 999) == (b"abcdefg" * 50)[7 : 7 + taken]
        space = sw.Memory(bytearray(2), b"", bytearray(4))
        os.write(back, b"12345")
        assert space.read_from(front) == 5
        assert space.to_bytes() == b"12345\0"
        for wrong in (sw.Memory(), sw.Memory(b""), sw.Memory(b"abc")):
            with pytest.raises(sw.InvalidError):
                wrong.read_from(front)
        os.set_blocking(front, False)
        with pytest.raises(BlockingIOError):
            space.read_from(front)
    finally:
        os.close(front)
    try:
        with pytest.raises(BrokenPipeError):
            reader.write_to(back)
        assert reader.tell() == 7 + taken  # nothing was taken
    finally:
        os.close(back)


@given(
    st.lists(st.lists(st.sampled_from([b"a", b"\n", b"bb", b"c" * 200]), max_size=9), max_size=5),
    st.integers(-1, 300),
)
def test_lines_are_those_of_a_file(parts: list[list[bytes]], size: int) -> None:
    buffers = [b"".join(part) for part in parts]
    whole = b"".join(buffers)
    assert sw.Reader(sw.Memory(*buffers)).readlines() == io.BytesIO(whole).readlines()
    reader, file = sw.Reader(sw.Memory(*buffers)), io.BytesIO(whole)
    while line := file.readline(size):
        assert reader.readline(size) == line
        assert reader.tell() == file.tell()
        if size == 0:
            break


class _Counting(sw.Reader):
    """Counts the reads from the memory."""

    looks = 0

    def _next(self, limit: int) -> memoryview | None:
        self.looks += 1
        return super()._next(limit)

    def read(self, size: int | None = -1) -> bytes:
        self.looks += 1
        return super().read(size)


def test_a_long_line_is_not_read_byte_by_byte() -> None:
    """128 B, 256 B, ... 64 KiB: 10 looks for the first 130,944 B, then one for each 64 KiB."""
    reader = _Counting(bytes(200_000))
    assert reader.readlines() == [bytes(200_000)]
    assert reader.looks <= 10 + 2 + 3


# --- scalable and memory allocators, and RecyclableMemory -----------------------------------------


@pytest.mark.parametrize(
    "take",
    [
        lambda memory: memory.views()[1],
        lambda memory: np.frombuffer(memory.views()[1], np.uint8)[2:],
        lambda memory: next(sw.Reader(memory).pieces(2)),
        lambda memory: sw.Reader(memory).current()[1:],
        lambda memory: sw.Memory(memory.views()[1]),
        lambda memory: sw.Reader(sw.Memory(*memory.views())),
    ],
)
def test_a_view_that_is_alive_forbids_recycling(take: Callable[[sw.Memory], object]) -> None:
    allocator = sw.ScalableAllocator()
    memory = sw.RecyclableMemory(allocator)
    memory.next_n(4)[:] = b"abcd"
    memory.next_n(5)[:] = b"efghi"
    memory.push(b"shared")
    view = take(memory)
    for _ in range(2):
        with pytest.raises(sw.BlockBusyError, match="view"):
            memory.recycle()
        assert memory.to_bytes() == b"abcdefghishared"
        assert sw.Reader(memory).read() == b"abcdefghishared"
        with pytest.raises(sw.BlockBusyError, match="1 memory owns blocks of the Scal"):
            allocator.close()
    del view
    gc.collect()
    memory.recycle()
    assert allocator.stats().taken_bytes == 0


def test_clips_and_updates_do_not_lose_blocks() -> None:
    allocator = sw.ScalableAllocator()
    memory = sw.RecyclableMemory(allocator)
    for text in (b"abc", b"def", b"ghi"):
        memory.next_n(3)[:] = text
    memory.update(1, b"DEF")
    reader = sw.Reader(memory)
    reader.skip(7)
    parts = [bytes(part) for part in reader.clip_front()]
    assert (parts, memory.to_bytes()) == ([b"abc", b"DEF", b"g"], b"hi")
    view = memory.views()[0]
    with pytest.raises(sw.BlockBusyError):
        memory.recycle()
    assert memory.to_bytes() == b"hi"
    del view
    memory.recycle()
    assert allocator.stats().taken_bytes == 0


# --- plain, and clones ----------------------------------------------------------------------------


def test_a_plain_memory_does_the_same_without_an_allocator() -> None:
    memory = sw.RecyclableMemory(None)
    allocator = sw.ScalableAllocator()
    assert memory.allocator is None and sw.RecyclableMemory(allocator).allocator is allocator
    memory.next_n(3)[:] = b"abc"
    memory.push(b"shared")
    view = memory.next_n(2)
    view[:] = b"de"
    assert repr(memory) == "<RecyclableMemory: plain, 11 B, 2 blocks owned>"
    with pytest.raises(sw.BlockBusyError, match="view"):
        memory.recycle()
    assert sw.Reader(memory).read() == b"abcsharedde"
    del view
    gc.collect()
    memory.recycle()
    assert (memory.size_bytes, len(memory), len(memory._owned)) == (0, 0, 0)
    for size, kind in ((0, sw.InvalidError), (-1, sw.InvalidError), (1 << 62, sw.OutOfMemoryError)):
        with pytest.raises(kind):
            memory.next_n(size)
    assert len(memory) == 0


@pytest.mark.parametrize("plain", [False, True])
def test_a_clone_has_its_own_bytes(plain: bool) -> None:
    source = sw.Memory(b"abc", b"", bytearray(b"defgh"))
    clone = sw.RecyclableMemory(None if plain else sw.ScalableAllocator())
    clone.push(b"x")
    clone.clone(source)
    assert [bytes(view) for view in clone.views()] == [b"x", b"abc", b"", b"defgh"]
    clone.views()[3][0] = ord("D")
    assert source.to_bytes() == b"abcdefgh"
    clone.clone(clone)
    assert clone.to_bytes() == b"xabcDefghxabcDefgh"
    assert len(clone._owned) == 2 + 3
    clone.recycle()
    assert len(clone._owned) == 0


def test_a_clone_that_does_not_fit_adds_nothing() -> None:
    allocator = sw.ScalableAllocator(first_bytes=100, limit_bytes=250)
    clone = sw.RecyclableMemory(allocator)
    clone.next_n(10)
    with pytest.raises(sw.LimitError):
        clone.clone(sw.Memory(bytes(60), bytes(200)))
    assert (len(clone), clone.size_bytes, allocator.stats().taken_bytes) == (1, 10, 10)
    clone.recycle()
    allocator.close()


# --- blocks ---------------------------------------------------------------------------------------


def test_memories_that_clone_each_other_wait_for_neither() -> None:
    """Each reads the other before acquiring its own lock; two threads once deadlocked."""
    looked = threading.Event()

    class Watched(sw.Memory):
        def views(self) -> list[memoryview]:
            looked.set()
            return super().views()

    mine, other = sw.RecyclableMemory(None), Watched(b"abc")
    thread = threading.Thread(target=mine.clone, args=(other,))
    with other._lock:
        thread.start()
        assert looked.wait(60)
        free = mine._lock.acquire(blocking=False)  # else another thread would have to wait
        if free:
            mine._lock.release()
    thread.join()
    assert free
    assert mine.to_bytes() == b"abc"


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
    for start, stop in ((-1, 5), (5, 101), (7, 6), (5, 5), (100, None)):
        with pytest.raises(sw.InvalidError):
            block.free(start, stop)
    assert list(block.parts) == [(0, 100)]


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
    for _ in range(60):
        allocator = sw.ScalableAllocator(first_bytes=1 << 12)
        piles = [[allocator.alloc(64) for _ in range(300)] for _ in range(3)]
        begun = threading.Barrier(4)

        def drop(pile: list[sw.ScalableBlock], begun: threading.Barrier = begun) -> None:
            begun.wait()
            while pile:
                pile.pop()

        threads = [threading.Thread(target=drop, args=(pile,)) for pile in piles]
        for thread in threads:
            thread.start()
        begun.wait()
        allocator.close()
        for thread in threads:
            thread.join()


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
