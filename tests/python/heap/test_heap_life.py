# SPDX-License-Identifier: Apache-2.0
"""Lifetimes of heaps and views, under limits, in forks, and at exit."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
import warnings

import numpy as np
import pytest
import spanwise as sw

from tests.python.helpers import ALLOC, FREE, in_threads, make_ops, python, random_ops


def test_blocks_keep_their_heap() -> None:
    block = sw.Heap().alloc(100)
    gc.collect()
    block.view()[:] = 1
    assert block.view().sum() == 100
    block.free()


def test_too_many_heaps() -> None:
    heaps = []
    with pytest.raises(sw.LimitError, match="heaps live already"):
        while True:
            heaps.append(sw.Heap())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_child_may_close() -> None:
    heap = sw.Heap()
    block = heap.alloc(100)
    block.view()[:] = 3
    child = os.fork()
    if child == 0:
        status = 1
        try:
            other = heap.alloc(50)
            other.free()
            same = bool((block.view() == 3).all())
            block.free()
            heap.close()
            status = 0 if same else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (block.view() == 3).all()
    block.free()
    heap.close()


SHUTDOWN = """
import sys, threading, spanwise as sw
heap = sw.Heap()
blocks = [heap.alloc(100) for _ in range(100)]
views = [block.view() for block in blocks[:10]]
class Late:
    def __del__(self):
        views[0][0] = 1
        for block in blocks[50:]:
            block.free()
        try:
            heap.close()
        except BufferError:
            pass
keep = Late()
sys.late = Late()
def spin():
    while True:
        heap.alloc(10).free()
threading.Thread(target=spin, daemon=True).start()
"""


@pytest.mark.parametrize("flags", [[], ["-X", "dev"], ["-X", "faulthandler"]])
def test_interpreter_shutdown(flags: list[str]) -> None:
    for _ in range(5):  # the thread stops at a random place
        done = python(*flags, "-c", SHUTDOWN)
        assert (done.returncode, done.stderr) == (0, "")


# --- heap views -----------------------------------------------------------------------------------


def test_array_protocol(heap: sw.Heap) -> None:
    block = heap.alloc(4, zero=True)
    wide = np.asarray(block, dtype=np.float64)
    assert wide.dtype == np.float64
    copied = np.array(block)
    copied[:] = 1
    assert not block.view().any()
    block.free()  # copies do not hold it


def test_views_take_bytes(heap: sw.Heap) -> None:
    """As a bytearray does, for all bytes or some; other lengths and types are refused."""
    block = heap.alloc(8, zero=True)
    view = block.view()
    view[:5] = b"hello"
    view[5] = b"!"
    view[[6, 7]] = b"ab"
    assert view.tobytes() == b"hello!ab"
    view.reshape(2, 4)[:, :2] = b"WXYZ"
    assert bytes(view) == b"WXllYZab" and not isinstance(view + 1, type(view))
    view[:2], view[2:] = bytearray(b"ok"), 7
    assert bytes(view[:3]) == b"ok\x07" and view.max() == ord("o")
    for value in (b"a", b"seven b"):
        with pytest.raises(ValueError, match="bytes cannot be assigned to 8 elements"):
            view[:] = value
    view += 1
    assert np.shares_memory(view, block.view()) and bytes(view[:2]) == b"pl"
    with sw.Arena() as arena:
        memory = arena.alloc(3)
        memory[:] = b"abc"
        assert memory.tolist() == [97, 98, 99]
        del memory


def test_leaving_never_masks_the_bodys_exception() -> None:
    for action in ("always", "error"):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter(action, ResourceWarning)
            with pytest.raises(KeyError, match="body"), sw.Heap() as heap:
                view = heap.alloc(8).view()
                raise KeyError("body")
            assert heap.closed
            assert len(view) == 8


def test_dry_blocks_have_no_memory() -> None:
    with sw.Heap(dry=True) as heap:
        block = heap.alloc(100)
        assert block.address > 0
        with pytest.raises(sw.UnsupportedError, match="has no memory: its heap is dry"):
            block.view()
        block.free()


# --- threads --------------------------------------------------------------------------------------


THREADS = 8


def test_blocks_are_freed_by_other_threads() -> None:
    with sw.Heap("go") as heap:
        baskets: list[list[sw.Block]] = [[] for _ in range(THREADS)]

        def fill(number: int) -> None:
            rng = random.Random(number)
            for i in range(2000):
                block = heap.alloc(rng.randrange(3000))
                block.view()[:] = number
                baskets[(number + i) % THREADS].append(block)

        def empty(number: int) -> None:
            for block in baskets[number]:
                view = block.view()
                assert not len(view) or (view == view[0]).all()
                del view
                block.free()

        for _ in range(3):
            in_threads(fill, THREADS)
            assert heap.stats().live_objects == 2000 * THREADS
            in_threads(empty, THREADS)
            for basket in baskets:
                basket.clear()
            assert heap.ledger().requested_bytes == 0
            heap.verify()


def test_one_run_at_a_time() -> None:
    heap = sw.Heap("go", manual_clock=True)
    ops = random_ops(1, 2000)
    refused = []

    def work(_: int) -> None:
        for _ in range(30):
            try:
                heap.run(ops)
            except sw.StateError as error:
                refused.append(str(error))

    in_threads(work)
    assert set(refused) <= {f"heap {heap.id}: another thread is running a workload here"}
    heap.drain()
    heap.verify()
    heap.close()


def test_run_releases_the_interpreter() -> None:
    """Other threads run while a workload runs.

    A busy system may prevent that in many runs, but not in all.
    """
    ops = make_ops(*[(ALLOC, 0, 200_000), (FREE, 0, 0)] * 200_000)
    with sw.Heap() as heap:
        heap.run(ops[:2])
        ticks, until = 0, time.monotonic() + 120
        while ticks <= 3 and time.monotonic() < until:
            runner = threading.Thread(target=heap.run, args=(ops,))
            ticks = 0
            runner.start()
            while runner.is_alive():
                ticks += 1
                time.sleep(0.0005)
        assert ticks > 3


def test_ctrl_c_while_the_thread_of_a_run_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the GIL `Thread.start` may return long after the thread has begun."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    ops = make_ops(*[(ALLOC, 0, 200_000), (FREE, 0, 0)] * 200_000)
    with sw.Heap() as heap:
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            heap.run(ops)
        heap.verify()
