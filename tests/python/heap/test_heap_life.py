# SPDX-License-Identifier: Apache-2.0
"""Lifetimes of heaps and views, under limits, in forks, and at exit."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

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


VIEWS: dict[str, Callable[[sw.Block], Any]] = {
    "view": lambda block: block.view(),
    "asarray": np.asarray,
    "slice": lambda block: block.view()[10:20],
    "reshape": lambda block: block.view().reshape(10, 10).T,
    "other type": lambda block: block.view()[:96].view("<u4"),
    "memoryview of array": lambda block: memoryview(block.view()),  # type: ignore[arg-type]
    "from buffer": lambda block: np.frombuffer(memoryview(block.view()), np.uint8)[3:],  # type: ignore[arg-type]
    "element base": lambda block: np.lib.stride_tricks.as_strided(block.view(), (4,), (25,)),
}
if sys.version_info >= (3, 12):
    VIEWS["memoryview"] = memoryview  # type: ignore[assignment]
    VIEWS["slice of memoryview"] = lambda block: memoryview(block)[5:]


def test_array_protocol(heap: sw.Heap) -> None:
    block = heap.alloc(4, zero=True)
    wide = np.asarray(block, dtype=np.float64)
    assert wide.dtype == np.float64
    copied = np.array(block)
    copied[:] = 1
    assert not block.view().any()
    block.free()  # copies do not hold it


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


# --- address limits -------------------------------------------------------------------------------


pytest.importorskip("resource")

PROGRAM = """
import mmap, resource, threading
import spanwise as sw

MIB = 1 << 20
heap = sw.Heap()
early = heap.alloc(10)
collected, dry, slabs = {kinds}

def mapped():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize:"))

def limit_to(more):
    soft = resource.RLIM_INFINITY if more is None else mapped() + more
    resource.setrlimit(resource.RLIMIT_AS, (soft, resource.RLIM_INFINITY))

limit_to(256 * MIB)
assert sw.Heap().alloc(100) is not None
assert sw.CollectedHeap() is not None
dry_too = sw.Heap(dry=True)
dry_too.alloc(1 << 33)
assert sw.TieredSlabs(heap).alloc(300) is not None
said = []
thread = threading.Thread(target=lambda: said.append(heap.alloc(1000)))
thread.start()
thread.join()
assert len(said) == 1
assert len(bytearray(50 * MIB)) == 50 * MIB
assert len(mmap.mmap(-1, MIB)) == MIB
large = heap.alloc(100 * MIB)
view = large.view()
view[::4096] = 7
assert view[0] == view[100 * MIB - 4096] == 7
del view
for refused in (bytearray, heap.alloc):
    try:
        refused(300 * MIB)
    except MemoryError:
        continue
    raise AssertionError(refused)
large.free()
limit_to(None)
assert heap.alloc(300 * MIB).view()[-1] is not None
early.free()
heap.verify()
print("ok")
"""


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
