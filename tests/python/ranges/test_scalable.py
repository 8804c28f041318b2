# SPDX-License-Identifier: Apache-2.0
"""ScalableAllocator and RecyclableMemory: growth, recycling, and views that are alive meanwhile."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import numpy as np
import pytest
import spanwise as sw


def test_children_double_and_one_idle_one_is_kept() -> None:
    with sw.ScalableAllocator(first_bytes=1024) as allocator:
        memory = sw.RecyclableMemory(allocator)
        for _ in range(16):
            memory.next_n(1024)
        stats = allocator.stats()
        assert (stats.children, stats.held_bytes, stats.taken_bytes) == (5, 31 * 1024, 16 * 1024)
        memory.recycle()
        stats = allocator.stats()
        assert (stats.children, stats.idle_children, stats.held_bytes) == (1, 1, 16 * 1024)
        allocator.trim()
        assert allocator.stats().held_bytes == 0
        allocator.verify()
    assert repr(allocator) == "<ScalableAllocator, closed>"
    with pytest.raises(sw.StateError):
        memory.next_n(1)


def test_blocks_are_read_and_written_where_they_are() -> None:
    allocator = sw.ScalableAllocator()
    memory = sw.RecyclableMemory(allocator)
    memory.next_n(4)[:] = b"\x00\x00\x00\x05"
    memory.push(b"he")
    memory.next_n(3)[:] = b"llo"
    reader = sw.Reader(memory)
    assert reader.read_bytes(reader.read_be(4)) == b"hello"
    memory.views()[2][0] = ord("L")
    assert memory.to_bytes() == b"\0\0\0\5heLlo"
    assert repr(memory) == "<RecyclableMemory: 9 B, 2 blocks owned>"
    del reader
    memory.recycle()
    assert (memory.size_bytes, len(memory), allocator.stats().taken_bytes) == (0, 0, 0)


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
        with pytest.raises(sw.BlockBusyError, match="9 bytes are taken"):
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


def test_a_dropped_memory_gives_its_blocks_back_with_the_last_view() -> None:
    allocator = sw.ScalableAllocator()
    memory = sw.RecyclableMemory(allocator)
    view = memory.next_n(100)
    view[:] = b"x" * 100
    del memory
    gc.collect()
    assert allocator.stats().taken_bytes == 100
    assert bytes(view) == b"x" * 100
    del view
    gc.collect()
    assert allocator.stats().taken_bytes == 0


def test_garbage_of_one_cycle_ends_in_whatever_order() -> None:
    for _ in range(20):
        allocator = sw.ScalableAllocator()
        ring: list[object] = [allocator]
        memory = sw.RecyclableMemory(allocator)
        ring += [memory, memory.next_n(100), ring]
        vars(allocator)["ring"] = ring
        del allocator, memory, ring
        gc.collect()


def test_what_is_refused_changes_nothing() -> None:
    allocator = sw.ScalableAllocator(first_bytes=100, limit_bytes=250)
    memory = sw.RecyclableMemory(allocator)
    memory.next_n(100)
    for size, kind in ((0, sw.InvalidError), (-1, sw.InvalidError), (1 << 62, sw.OutOfMemoryError)):
        with pytest.raises(kind):
            memory.next_n(size)
    with pytest.raises(sw.LimitError):
        memory.next_n(200)
    assert (len(memory), allocator.stats().taken_bytes) == (1, 100)
    wrong: tuple[dict[str, int], ...] = (
        {"first_bytes": 0},
        {"first_bytes": 2, "child_limit_bytes": 1},
        {"idle_children": -1},
        {"limit_bytes": -1},
    )
    for options in wrong:
        with pytest.raises(sw.InvalidError):
            sw.ScalableAllocator(**options)


def test_threads_share_an_allocator() -> None:
    allocator, failed = sw.ScalableAllocator(first_bytes=256), []

    def work(mark: int) -> None:
        try:
            memory = sw.RecyclableMemory(allocator)
            for turn in range(60):
                for size in range(1, 12):
                    memory.next_n(size * 20)[:] = bytes([mark]) * size * 20
                assert set(memory.to_bytes()) == {mark}
                if turn % 3 == 0:
                    memory.recycle()
            memory.recycle()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert allocator.stats().taken_bytes == 0
    allocator.verify()
