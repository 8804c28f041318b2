# SPDX-License-Identifier: Apache-2.0
"""Memory, Reader and RecyclableMemory: models, bad use, growth, recycling, live views."""

from __future__ import annotations

import gc
import io
import os
import threading
from collections.abc import Callable

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
