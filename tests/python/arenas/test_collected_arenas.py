# SPDX-License-Identifier: Apache-2.0
"""Arenas that a collected heap sees: what their arrays point to lives, and dies with them."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest
import spanwise as sw


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


def test_a_dropped_arena_lets_its_objects_go() -> None:
    with sw.CollectedHeap() as heap:
        node = heap.add_type("node", 16, pointers=[0])
        arena = sw.Arena(safe=True)
        arena.attach(heap)
        kept = arena.pointers(1)
        kept[0] = heap.new(node).address
        del arena
        gc.collect()
        assert live(heap) == 1  # its array keeps the arena
        del kept
        gc.collect()
        assert live(heap) == 0


def test_an_object_may_stand_for_an_arena() -> None:
    with sw.CollectedHeap() as heap:
        arena = sw.Arena()
        request = heap.new(heap.add_type("request", 16), finalizer=lambda _: arena.close())
        heap.collect()
        assert heap.run_finalizers() == 0
        del request
        heap.collect()
        assert not arena.closed
        assert heap.run_finalizers() == 1
        assert arena.closed


def test_what_is_refused() -> None:
    first, second, arena = sw.CollectedHeap(), sw.CollectedHeap(), sw.Arena()
    arena.attach(first)
    with pytest.raises(sw.StateError, match=r"another heap sees the arena: call attach\(None\)"):
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


def test_cycles_beside_threads_that_allocate() -> None:
    with sw.CollectedHeap() as heap, sw.Arena(chunk_bytes=4096) as arena:
        node = heap.add_type("node", 16, pointers=[0])
        arena.attach(heap)
        ends = threading.Barrier(4)

        def allocate() -> None:
            for _ in range(200):
                array = arena.pointers(50)
                made = heap.new(node)
                array[7] = made.address
                del made
                assert array.sum() != 0
            ends.wait(600)

        threads = [threading.Thread(target=allocate, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        while ends.n_waiting < 3:
            heap.collect()
        ends.wait(600)
        for thread in threads:
            thread.join(600)
        assert live(heap) == 600
        heap.verify()


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
