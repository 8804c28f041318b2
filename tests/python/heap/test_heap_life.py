# SPDX-License-Identifier: Apache-2.0
"""Heaps: life and death, of them and of the process."""

from __future__ import annotations

import gc
import os
import weakref
from typing import Any

import pytest
import spanwise as sw

from tests.python.helpers import needs_python_malloc, python


def test_blocks_keep_their_heap() -> None:
    block = sw.Heap().alloc(100)
    gc.collect()
    block.view()[:] = 1
    assert block.view().sum() == 100
    block.free()


def test_a_dropped_heap_is_released() -> None:
    heap = sw.Heap()
    heap.alloc(1000)
    handle = weakref.ref(heap._handle)
    del heap
    gc.collect()
    assert handle() is None


def test_a_heap_in_a_cycle_is_released() -> None:
    heap = sw.Heap()
    cycle: list[Any] = [heap, heap.alloc(10), heap.alloc(10).view()]
    cycle.append(cycle)
    handle = weakref.ref(heap._handle)
    del heap, cycle
    gc.collect()
    assert handle() is None


def test_thousands_of_heaps() -> None:
    """More than may live at once: each goes when it is dropped."""
    handles = []
    for _ in range(5000):
        heap = sw.Heap()
        heap.alloc(8)
        handles.append(weakref.ref(heap._handle))
    del heap
    gc.collect()
    assert [handle() for handle in handles] == [None] * 5000


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
    for _ in range(5):  # where the thread is stopped is a matter of luck
        done = python(*flags, "-c", SHUTDOWN)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "allocator", [pytest.param("malloc", marks=needs_python_malloc()), "debug"]
)
def test_under_other_python_allocators(allocator: str) -> None:
    code = (
        "import spanwise as sw\nwith sw.Heap() as h:\n  b = h.alloc(9); b.view()[:] = 1; b.free()"
    )
    done = python("-c", code, env={"PYTHONMALLOC": allocator})
    assert done.returncode == 0, done.stderr


def test_a_table_whose_heap_is_open_at_the_end_is_no_misuse() -> None:
    """The library refuses to destroy a table that a heap uses: at exit nobody asks it to."""
    for order in ("table, heap, keep", "keep, heap, table"):
        program = f"""
import spanwise as sw
table = sw.SizeClassTable.geometric(1.2)
heap = sw.Heap(table=table)
keep = [heap.alloc(33), heap, table]
keep.append(keep)
del {order.split(",")[0]}
globals()["last"] = sw.SizeClassTable.geometric(1.3)
sw.Heap(table=last).alloc(3)
"""
        done = python("-c", program)
        assert (done.returncode, done.stderr) == (0, "")
