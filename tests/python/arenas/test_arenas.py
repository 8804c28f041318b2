# SPDX-License-Identifier: Apache-2.0
"""Arenas: arrays that keep their arena, collected heaps, bad arguments, threads."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import spanwise as sw


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


def test_an_exception_of_the_body_is_not_hidden_by_live_views() -> None:
    """Its traceback keeps the body's arrays alive, so that the end of the block is refused."""

    def arena() -> None:
        with sw.Arena(tag="body") as made:
            kept = made.zeros(10)
            raise KeyError(len(kept))

    def savepoint() -> None:
        with sw.Arena() as made, made.savepoint():
            kept = made.zeros(10)
            raise KeyError(len(kept))

    def stack() -> None:
        with sw.Stack() as made, made.frame():
            view = made.push(10).view()
            raise KeyError(len(view))

    def borrow() -> None:
        with sw.ScalableAllocator() as made, made.borrow(10) as view:
            part = view[:10]
            raise KeyError(len(part))

    before = sw.Arena.pool_stats().arenas
    for body in (arena, savepoint, stack, borrow):
        with pytest.raises(KeyError, match="10") as caught:
            body()
        assert caught.value.__context__ is None
        del caught
    gc.collect()
    assert sw.Arena.pool_stats().arenas == before  # freed with the last array


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
        assert repr(arena) == "<Arena of 0 chunks, 0 of 0 B used, 1 object outside: 5,000 B>"
        del big
    with sw.Arena(chunk_bytes=4096, limit_bytes=4096, mode="force") as arena:
        arena.zeros(900, np.uint8)
        with pytest.raises(sw.LimitError, match="the limit is 4096"):
            for _ in range(10):
                arena.zeros(900, np.uint8)
        assert repr(arena).startswith("<Arena of 1 chunk, ")


BAD: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (sw.InvalidError, "mode 'x': must be one of", lambda: sw.Arena(mode="x")),
    (sw.InvalidError, "chunks of 5000 bytes", lambda: sw.Arena(chunk_bytes=5000)),
    (sw.InvalidError, "negative", lambda: sw.Arena(limit_bytes=-1)),
    (TypeError, "must be an integer", lambda: sw.Arena(chunk_bytes=True)),
    (sw.UnsupportedError, "its own chunks", lambda: sw.Arena(safe=True, mode="off")),
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


# --- collected arenas -----------------------------------------------------------------------------


def live(heap: sw.CollectedHeap) -> int:
    return heap.collect().marked_objects


def test_objects_live_as_long_as_the_arena_points_to_them() -> None:
    with sw.CollectedHeap() as heap, sw.Arena(chunk_bytes=4096) as arena:
        node = heap.add_type("node", 16, pointers=[0])
        arena.attach(heap)
        arena.attach(heap)
        kept = arena.pointers((2, 300))
        assert kept.shape == (2, 300)
        assert not kept.any()
        hidden = arena.zeros(10, np.uint64)
        for i in range(300):
            one, other = heap.new(node), heap.new(node)
            one[0] = other
            kept[i % 2, i] = one.address
        hidden[0] = heap.new(node).address
        del one, other
        assert live(heap) == 600
        kept[1, :] = 0
        assert live(heap) == 300
        arena.attach(None)
        assert live(heap) == 0
        del kept, hidden
        arena.attach(heap)
        again = arena.pointers(1)
        again[0] = heap.new(node).address + 8  # inside of it
        assert live(heap) == 1
        del again
        arena.reset()
        assert live(heap) == 0


def test_what_is_refused() -> None:
    first, second, arena = sw.CollectedHeap(), sw.CollectedHeap(), sw.Arena()
    arena.attach(first)
    with pytest.raises(sw.StateError, match=r"another heap is attached .*attach\(None\)"):
        arena.attach(second)
    with pytest.raises(TypeError, match="heap must be CollectedHeap or None, not int"):
        arena.attach(3)  # type: ignore[arg-type]
    first.close()
    assert not arena.zeros(3).any()
    assert arena.pointers(2).sum() == 0
    arena.attach(second)
    second.close()
    with pytest.raises(sw.HeapClosedError):
        arena.attach(second)
    arena.attach(None)
    arena.close()
    with pytest.raises(sw.StateError, match="the Arena is closed"):
        arena.attach(None)


DANGLES = """
import spanwise as sw
heap, arena = sw.CollectedHeap(), sw.Arena(safe=True, tag="requests")
heap.set_debug(dangling=True)
holder = sw.Arena()
holder.attach(heap)
array, kept = arena.zeros(5), holder.pointers(1)
kept[0] = array.ctypes.data + 8
heap.collect()
print("still there", flush=True)
del array
arena.close()
heap.collect()
print("not reached", flush=True)
"""


def test_a_dangling_pointer_is_reported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DANGLES], capture_output=True, text=True, check=False
    )
    assert done.stdout == "still there\n"
    assert "FREED_ARENA op=gc" in done.stderr
    assert "offset 8 of an object, 40 bytes" in done.stderr
    assert "tag requests" in done.stderr


# --- views, savepoints, holds ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["off", "auto", "force"])
def test_views_and_clones(mode: str) -> None:
    with sw.Arena(mode=mode) as arena:
        view = arena.alloc(100, align=4096, zero=True)
        assert (len(view), view.ctypes.data % 4096, bool(view.any())) == (100, 0, False)
        rows = arena.make_slice(10, "i2")
        rows[:] = np.arange(10)
        copy = arena.clone(rows[::2].reshape(5, 1))
        with pytest.raises(sw.InvalidError, match="Python objects"):
            arena.clone(np.array([None]))
        with pytest.raises(sw.InvalidError, match="power of two"):
            arena.alloc(1, align=3)
        with pytest.raises(sw.OutOfMemoryError):
            arena.make_slice(1 << 60, "u1")
        del view, rows
    assert copy.tolist() == [[0], [2], [4], [6], [8]]
    assert arena.closed


def test_a_savepoint_frees_what_came_after_it() -> None:
    with sw.Arena(chunk_bytes=4096, mode="force") as arena:
        kept = arena.zeros(10, "u1")
        with arena.savepoint():
            first = arena.make_slice(100, "u1").ctypes.data
            with arena.savepoint() as inner:
                arena.make_slice(1000, "u1")
        assert arena.make_slice(100, "u1").ctypes.data == first  # the same place again
        with pytest.raises(sw.StateError, match="freed before"):
            inner.rewind()
        outer, later = arena.savepoint(), arena.savepoint()
        array = arena.zeros(3)
        with pytest.raises(sw.BlockBusyError, match="after the savepoint"):
            outer.rewind()
        del array
        outer.rewind()
        with pytest.raises(sw.StateError):
            later.rewind()
        last = arena.savepoint()
        del kept
        arena.reset()
        with pytest.raises(sw.StateError):
            last.rewind()


def test_a_held_arena_stays() -> None:
    arena = sw.Arena()
    with arena.hold():
        for end in (arena.close, arena.reset):
            with pytest.raises(sw.BlockBusyError, match="held"):
                end()
    arena.close()
    with pytest.raises(sw.StateError), arena.hold():
        pass
