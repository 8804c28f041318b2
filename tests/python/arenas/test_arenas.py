# SPDX-License-Identifier: Apache-2.0
"""Arenas in Python: arrays that keep their arena, ends that are refused, bad arguments, threads."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import spanwise as sw


def test_arrays_are_zeroed_and_apart() -> None:
    with sw.Arena(chunk_bytes=4096) as arena:
        arrays = [arena.zeros((3, i), np.int32) for i in range(1, 60)]
        for number, array in enumerate(arrays):
            assert array.shape == (3, number + 1)
            assert not array.any()
            assert array.ctypes.data % 64 == 0
            array[:] = number
        assert all((array == number).all() for number, array in enumerate(arrays))
        assert arena.stats().chunks > 1
        del array, arrays


def test_an_arena_with_arrays_is_not_freed() -> None:
    arena = sw.Arena()
    part = arena.zeros(100)[10:20]  # the array itself is gone, what was derived from it lives
    for end in (arena.close, arena.reset, lambda: arena.__exit__(None, None, None)):
        with pytest.raises(sw.BlockBusyError, match="1 view of arrays of the arena is alive"):
            end()
    part[:] = 3
    assert part.sum() == 30
    del part
    arena.reset()
    assert arena.stats().resets == 1
    arena.close()
    arena.close()
    assert arena.closed
    assert repr(arena) == "<Arena, closed>"
    with pytest.raises(sw.StateError, match="the Arena is closed"):
        arena.zeros(1)


@pytest.mark.parametrize("safe", [False, True])
def test_an_array_keeps_its_arena(safe: bool) -> None:
    with sw.ArenaTracker() as tracker:
        arena = sw.Arena(safe=safe)
        array = arena.zeros(1000, np.uint8)
        array[:] = 7
        del arena
        gc.collect()
        assert tracker.totals().tracked_arenas == 1
        assert array.sum() == 7000
        del array
        gc.collect()
        assert tracker.totals().tracked_arenas == 0


def test_memory_is_used_again() -> None:
    with sw.Arena(chunk_bytes=4096) as arena:
        first = arena.zeros(10).ctypes.data
        arena.reset()
        assert arena.zeros(10).ctypes.data == first


def test_figures() -> None:
    with sw.Arena(chunk_bytes=4096, mode="auto") as arena:
        big = arena.zeros(5000, np.uint8)
        assert arena.stats().to_dict() | {"used_bytes": 0} == {
            "chunks": 0,
            "chunk_bytes": 0,
            "used_bytes": 0,
            "slack_bytes": 0,
            "own_objects": 1,
            "own_bytes": 5000,
            "fallbacks": 0,
            "resets": 0,
        }
        del big
    with sw.Arena(chunk_bytes=4096, limit_bytes=4096, mode="force") as arena:
        arena.zeros(900, np.uint8)
        with pytest.raises(sw.LimitError, match="the limit is 4096"):
            for _ in range(10):
                arena.zeros(900, np.uint8)
        assert repr(arena).startswith("<Arena of 1 chunks, ")


BAD: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (sw.InvalidError, "mode 'x': must be one of", lambda: sw.Arena(mode="x")),
    (sw.InvalidError, "chunks of 5000 bytes", lambda: sw.Arena(chunk_bytes=5000)),
    (sw.InvalidError, "negative", lambda: sw.Arena(limit_bytes=-1)),
    (TypeError, "must be an integer", lambda: sw.Arena(chunk_bytes=True)),
    (sw.UnsupportedError, "chunks of its own", lambda: sw.Arena(safe=True, mode="off")),
    (sw.InvalidError, "shape -1 is negative", lambda: sw.Arena().zeros(-1)),
    (sw.InvalidError, "size .* is too large", lambda: sw.Arena().zeros((1 << 40, 1 << 40))),
    (sw.OutOfMemoryError, "no memory", lambda: sw.Arena().zeros(1 << 59)),
    (sw.InvalidError, "Python objects", lambda: sw.Arena().zeros(3, object)),
    (TypeError, "must be an integer", lambda: sw.Arena().zeros((2.5,))),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("error", "words", "call"), BAD)
def test_bad_arguments(error: type[Exception], words: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=words):
        call()


def test_threads_share_an_arena() -> None:
    with sw.Arena(chunk_bytes=4096) as arena:

        def work(number: int) -> bool:
            arrays = [arena.zeros(50, np.int64) for _ in range(50)]
            for array in arrays:
                array[:] = number
            return all((array == number).all() for array in arrays)

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(40)))
        gc.collect()
