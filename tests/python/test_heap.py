# SPDX-License-Identifier: Apache-2.0
"""Heaps and blocks from Python: use, misuse, views, life and death."""

from __future__ import annotations

import copy
import gc
import itertools
import math
import os
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.python.helpers import ALLOC, FREE, assert_identity, make_ops, python, random_ops

HUGE = 2**63


@pytest.fixture
def heap() -> Iterator[sw.Heap]:
    with sw.Heap("go") as made:
        yield made


# --- allocation -----------------------------------------------------------------------------------


def test_a_block_has_what_was_asked_for(heap: sw.Heap) -> None:
    block = heap.alloc(100)
    assert (block.size, len(block), block.usable, block.freed) == (100, 100, 112, False)
    assert block.address % 8 == 0
    assert repr(block) == (f"<Block of heap {heap.id}: 100 B, 112 usable, at {block.address:#x}>")
    block.free()
    assert block.freed
    assert heap.stats().live_objects == 0
    heap.verify()


@pytest.mark.parametrize("size", [0, 1, 24, 500, 40000, 3 << 20])
def test_zeroed_blocks_read_as_zero_after_reuse(heap: sw.Heap, size: int) -> None:
    for _ in range(3):
        block = heap.alloc(size, zero=True)
        assert not block.view().any()
        block.view()[:] = 0xFF
        block.free()


@pytest.mark.parametrize("align", [1, 2, 8, 16, 64, 4096, 8192, 65536, 1 << 20])
@pytest.mark.parametrize("size", [0, 1, 100, 5000, 100_000])
def test_alignment(heap: sw.Heap, size: int, align: int) -> None:
    block = heap.alloc(size, align=align)
    assert block.address % align == 0
    assert block.usable >= size
    block.free()


def test_scanned_blocks_live_in_spans_of_their_own(heap: sw.Heap) -> None:
    heap.alloc(64)
    heap.alloc(64, scan=True)
    spans = heap.spans()
    assert sorted(spans["scan"].tolist()) == [0, 1]
    assert spans["live"].tolist() == [1, 1]


BAD_SIZES: list[tuple[Any, type[Exception], str]] = [
    (-1, ValueError, "size -1 is negative; give 0 or more"),
    (-(2**100), ValueError, f"size {-(2**100)} is negative; give 0 or more"),
    (HUGE, ValueError, f"size {HUGE} is too large; give at most {HUGE - 1}"),
    (2**64, ValueError, f"size {2**64} is too large; give at most {HUGE - 1}"),
    (2**100, ValueError, f"size {2**100} is too large; give at most {HUGE - 1}"),
    (10**5000, ValueError, f"size of 16610 bits is too large; give at most {HUGE - 1}"),
    (True, TypeError, "size must be an integer, not bool"),
    (1.0, TypeError, "size must be an integer, not float"),
    (None, TypeError, "size must be an integer, not NoneType"),
    ("8", TypeError, "size must be an integer, not str"),
    (b"8", TypeError, "size must be an integer, not bytes"),
    ([8], TypeError, "size must be an integer, not list"),
]


@pytest.mark.parametrize(("size", "kind", "message"), BAD_SIZES, ids=range(len(BAD_SIZES)))
def test_bad_size(heap: sw.Heap, size: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        heap.alloc(size)
    assert str(caught.value) == message
    with pytest.raises(kind):
        heap.explain(size)
    assert heap.stats().live_objects == 0


@pytest.mark.parametrize("align", [0, 3, 12, -8, HUGE, True, 8.0, "8"])
def test_bad_alignment(heap: sw.Heap, align: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        heap.alloc(8, align=align)
    assert heap.stats().live_objects == 0


def test_alignment_that_is_no_power_of_two(heap: sw.Heap) -> None:
    with pytest.raises(sw.InvalidError, match=r"^alignment 24 is not a power of two$"):
        heap.alloc(8, align=24)


@pytest.mark.parametrize("size", [HUGE - 1, HUGE - 4096, 1 << 62, 1 << 50])
def test_more_than_there_is(heap: sw.Heap, size: int) -> None:
    with pytest.raises(MemoryError) as caught:
        heap.alloc(size)
    assert str(caught.value) == f"heap {heap.id}: {size} bytes: out of memory"
    heap.verify()


def test_limit() -> None:
    with sw.Heap("go", limit=1 << 20) as heap:
        with pytest.raises(sw.LimitError) as caught:
            heap.alloc(2 << 20)
        assert str(caught.value) == f"heap {heap.id}: {2 << 20} bytes: limit reached"
        blocks = []
        with pytest.raises(MemoryError):
            while True:
                blocks.append(heap.alloc(1000))
        assert heap.held_bytes <= 1 << 20
        heap.verify()
        for block in blocks:
            block.free()
        assert heap.alloc(1000).usable == 1024


class Sly:
    """An integer whose __index__ does something first."""

    def __init__(self, value: int, act: Callable[[], object]) -> None:
        self.value, self.act = value, act

    def __index__(self) -> int:
        self.act()
        return self.value


def test_index_that_raises(heap: sw.Heap) -> None:
    def fail() -> None:
        raise KeyError("from __index__")

    with pytest.raises(KeyError, match="from __index__"):
        heap.alloc(Sly(8, fail))
    assert heap.stats().live_objects == 0


def test_index_that_changes_the_heap(heap: sw.Heap) -> None:
    assert heap.alloc(Sly(8, lambda: heap.alloc(8))).size == 8
    assert heap.stats().live_objects == 2


def test_index_that_closes_the_heap() -> None:
    heap = sw.Heap()
    with pytest.raises(sw.HeapClosedError):
        heap.alloc(Sly(8, heap.close))


# --- misuse ---------------------------------------------------------------------------------------


def test_double_free(heap: sw.Heap) -> None:
    block = heap.alloc(33)
    shown = repr(block)
    block.free()
    with pytest.raises(sw.BlockFreedError) as caught:
        block.free()
    assert str(caught.value) == f"{shown} is already free"
    assert caught.value.code == "DOUBLE_FREE"
    with pytest.raises(sw.BlockFreedError, match=r" is free$"):
        block.view()


def test_closed_heap() -> None:
    heap = sw.Heap("go")
    block = heap.alloc(8)
    number = heap.id
    heap.close()
    heap.close()
    assert heap.closed
    calls: list[Callable[[], object]] = [
        lambda: heap.alloc(8),
        block.free,
        block.view,
        heap.ledger,
        heap.stats,
        heap.verify,
        heap.spans,
        heap.trim,
        heap.drain,
        lambda: heap.run(make_ops((ALLOC, 0, 8))),
        lambda: heap.set_time(1),
        lambda: heap.held_bytes,
        heap.__enter__,
    ]
    for call in calls:
        with pytest.raises(sw.HeapClosedError) as caught:
            call()
        assert str(caught.value) == f"heap {number} is closed"
    assert repr(heap) == f"<Heap {number}: table go, tracked, closed>"
    assert heap.explain(33).rounded == 48
    assert heap.table == sw.SizeClassTable.go()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_no_copies(heap: sw.Heap, copied: Callable[[object], object]) -> None:
    for thing in (heap, heap.alloc(8)):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copied(thing)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            {"placement": "best"},
            ValueError,
            "placement 'best' is unknown; use one of lifo, address, fullest",
        ),
        ({"limit": 0}, ValueError, "limit 0 leaves no room; give bytes, or None for no limit"),
        ({"limit": -1}, ValueError, "limit -1 is negative; give 0 or more"),
        ({"limit": 1.5}, TypeError, "limit must be an integer, not float"),
        ({"decay_ms": -1}, ValueError, "decay_ms -1 is not a time; give 0 or more"),
        ({"decay_ms": math.nan}, ValueError, "decay_ms nan is not a time; give 0 or more"),
        ({"decay_ms": "1"}, TypeError, "decay_ms must be a number, not str"),
        ({"batch": 65536}, ValueError, "batch 65536 is too large; give at most 65535"),
        ({"table": None}, TypeError, "table must be a SizeClassTable or a name, not NoneType"),
    ],
)
def test_bad_options(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        sw.Heap(**arguments)
    assert str(caught.value) == message


# --- views ----------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_keeps_its_block(heap: sw.Heap, name: str) -> None:
    block = heap.alloc(100)
    shown = repr(block)
    view = VIEWS[name](block)
    with pytest.raises(BufferError) as caught:
        block.free()
    assert str(caught.value) == (
        f"{shown} has 1 live view; release what view(), np.asarray() or memoryview() gave before"
        " freeing"
    )
    with pytest.raises(BufferError) as caught:
        heap.close()
    assert str(caught.value) == (
        f"heap {heap.id}: 1 view of its blocks is alive; release what view(), np.asarray() or"
        " memoryview() gave before closing"
    )
    assert not heap.closed
    del view
    gc.collect()
    block.free()


def test_views_see_the_same_bytes(heap: sw.Heap) -> None:
    block = heap.alloc(16, zero=True)
    first, second = block.view(), np.asarray(block)
    first[3] = 7
    assert second[3] == 7
    assert first.ctypes.data == second.ctypes.data == block.address
    assert first.dtype == np.uint8
    assert first.flags.writeable
    with pytest.raises(BufferError, match="has 2 live views"):
        block.free()


def test_array_protocol(heap: sw.Heap) -> None:
    block = heap.alloc(4, zero=True)
    wide = np.asarray(block, dtype=np.float64)
    assert wide.dtype == np.float64
    copied = np.array(block)
    copied[:] = 1
    assert not block.view().any()
    block.free()  # copies do not hold it


def test_empty_view(heap: sw.Heap) -> None:
    block = heap.alloc(0)
    view = block.view()
    assert view.shape == (0,)
    del view
    block.free()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="blocks are buffers from Python 3.12 on")
def test_no_memoryview_before_312(heap: sw.Heap) -> None:
    with pytest.raises(TypeError):
        memoryview(heap.alloc(8))


def test_leaving_with_a_view_warns_and_puts_release_off() -> None:
    with pytest.warns(ResourceWarning) as caught, sw.Heap() as heap:
        view = heap.alloc(100).view()
        view[:] = 5
    assert len(caught) == 1
    assert str(caught[0].message) == (
        f"heap {heap.id} is closed with 1 live view; its memory goes with the last"
    )
    assert heap.closed
    assert (view == 5).all()
    view[:] = 6  # still ours
    del view
    gc.collect()


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


# --- life and death -------------------------------------------------------------------------------


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
    for _ in range(5000):
        sw.Heap().alloc(8)


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


@pytest.mark.parametrize("allocator", ["malloc", "debug"])
def test_under_other_python_allocators(allocator: str) -> None:
    code = (
        "import spanwise as sw\nwith sw.Heap() as h:\n  b = h.alloc(9); b.view()[:] = 1; b.free()"
    )
    done = python("-c", code, env={"PYTHONMALLOC": allocator})
    assert done.returncode == 0, done.stderr


# --- accounts -------------------------------------------------------------------------------------


def test_ledger_of_a_live_heap(heap: sw.Heap) -> None:
    blocks = [heap.alloc(size) for size in range(0, 70000, 97)]
    for block in blocks[::3]:
        block.free()
    ledger = heap.ledger()
    assert_identity(ledger)
    live = [block for block in blocks if not block.freed]
    assert ledger.live_objects == len(live) == heap.stats().live_objects
    assert ledger.requested_bytes == sum(block.size for block in live)
    rounded = ledger.roundup_bytes + ledger.large_rounding_bytes
    assert rounded == sum(block.usable - block.size for block in live)
    assert ledger.rss_bytes is not None
    assert ledger.rss_bytes > 0
    assert heap.held_bytes == ledger.held_bytes
    spans = heap.spans()
    assert int(spans["live"].sum()) == len(live)
    assert int(spans["bytes"].sum()) == int(ledger.classes["span_bytes"].sum())
    heap.verify()


def test_untracked_heap_knows_no_requests() -> None:
    with sw.Heap("go", tracked=False) as heap:
        heap.alloc(33)
        ledger = heap.ledger()
        assert (ledger.requested_bytes, ledger.roundup_bytes) == (48, 0)
        assert not ledger.tracked


def test_trim_gives_pages_back() -> None:
    with sw.Heap(decay_ms=math.inf) as heap:
        heap.alloc(1 << 20).free()
        assert heap.ledger().free_page_bytes >= 1 << 20
        assert heap.trim() >= 1 << 20
        assert heap.ledger().free_page_bytes == 0
        heap.verify()


def test_manual_clock_gives_pages_back() -> None:
    with sw.Heap(manual_clock=True, decay_ms=10) as heap:
        heap.alloc(1 << 20).free()
        assert heap.ledger().free_page_bytes >= 1 << 20
        for tick in range(1, 5):
            heap.set_time(tick * 0.02)
        assert heap.ledger().free_page_bytes == 0
    for bad in (-1, math.inf, math.nan, "1"):
        with sw.Heap(manual_clock=True) as heap, pytest.raises(ValueError, match="give seconds"):
            heap.set_time(bad)  # type: ignore[arg-type]


# --- workloads ------------------------------------------------------------------------------------


def test_run_keeps_objects_between_runs(heap: sw.Heap) -> None:
    stats = heap.run(make_ops((ALLOC, 0, 100), (ALLOC, 1, 200)))
    assert (stats.allocs, stats.live_objects, stats.requested_bytes) == (2, 2, 300)
    stats = heap.run(make_ops((FREE, 0, 0), (ALLOC, 0, 50)), touch=True)
    assert (stats.ops, stats.requested_bytes, stats.peak_requested_bytes) == (4, 250, 300)
    assert heap.ledger().requested_bytes == 250
    heap.drain()
    assert heap.stats().live_objects == 0
    heap.verify()


def test_run_counts_what_cannot_be(heap: sw.Heap) -> None:
    stats = heap.run(make_ops((FREE, 7, 0), (ALLOC, 0, 8), (ALLOC, 0, 8)))
    assert (stats.ops, stats.skipped, stats.failed, stats.live_objects) == (3, 2, 0, 1)


def test_run_refuses_what_is_no_workload(heap: sw.Heap) -> None:
    with pytest.raises(TypeError, match=r"spanwise\.OPS_DTYPE, not list"):
        heap.run([1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not float64"):
        heap.run(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one dimension, not 2"):
        heap.run(np.zeros((2, 2), sw.OPS_DTYPE))
    with pytest.raises(ValueError, match="op 1: kind 9 is unknown"):
        heap.run(make_ops((ALLOC, 0, 8), (9, 0, 8)))


def test_run_takes_strided_arrays(heap: sw.Heap) -> None:
    ops = make_ops((ALLOC, 0, 8), (9, 0, 0), (ALLOC, 1, 8), (9, 0, 0))
    assert heap.run(ops[::2]).allocs == 2


def test_long_run_equals_many_short_ones() -> None:
    ops = random_ops(5, 300_000)
    with sw.Heap("go", manual_clock=True) as whole, sw.Heap("go", manual_clock=True) as parts:
        stats = whole.run(ops)
        for part in np.array_split(ops, 7):
            last = parts.run(part)
        assert stats == last
        whole.verify()


INTERRUPTED = """
import os, signal, threading, time, numpy as np, spanwise as sw
ops = np.zeros(4_000_000, sw.OPS_DTYPE)
ops["kind"][1::2] = 1
ops["size"][::2] = 300_000
heap = sw.Heap()
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
started = time.monotonic()
try:
    for _ in range(1000):
        heap.run(ops)
except KeyboardInterrupt:
    took = time.monotonic() - started
    heap.verify()
    heap.close()
    print("stopped", took < 5)
"""


def test_ctrl_c_stops_a_run() -> None:
    done = python("-c", INTERRUPTED)
    assert done.stdout == "stopped True\n", done.stderr


# --- against a model ------------------------------------------------------------------------------


class HeapMachine(RuleBasedStateMachine):
    """Random use of one heap against a dictionary of what it must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.heap = sw.Heap("go")
        self.blocks: dict[int, tuple[sw.Block, int]] = {}
        self.views: list[tuple[int, Any]] = []
        self.count = 0

    @rule(size=st.integers(0, 40000), zero=st.booleans(), scan=st.booleans())
    def alloc(self, size: int, zero: bool, scan: bool) -> None:
        """Allocates, and marks every byte."""
        block = self.heap.alloc(size, zero=zero, scan=scan)
        mark = self.count % 251
        block.view()[:] = mark
        self.blocks[self.count] = (block, mark)
        self.count += 1

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        """Frees what has no view; its bytes are as they were marked."""
        key = data.draw(st.sampled_from(sorted(self.blocks)))
        block, mark = self.blocks[key]
        assert (block.view() == mark).all()
        if any(owner == key for owner, _ in self.views):
            with pytest.raises(BufferError):
                block.free()
        else:
            block.free()
            del self.blocks[key]
            with pytest.raises(sw.BlockFreedError):
                block.free()

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        """Takes a view."""
        key = data.draw(st.sampled_from(sorted(self.blocks)))
        self.views.append((key, self.blocks[key][0].view()[:7]))

    @precondition(lambda self: self.views)
    @rule()
    def look_away(self) -> None:
        """Drops a view."""
        self.views.pop()

    @rule()
    def account(self) -> None:
        """The ledger agrees with the model."""
        self.heap.verify()
        ledger = self.heap.ledger()
        assert_identity(ledger)
        assert ledger.live_objects == len(self.blocks)
        assert ledger.requested_bytes == sum(block.size for block, _ in self.blocks.values())

    def teardown(self) -> None:
        """Closes."""
        self.views.clear()
        self.heap.close()


TestHeapMachine = HeapMachine.TestCase


@given(st.lists(st.tuples(st.integers(0, 3000), st.sampled_from([None, 8, 64, 4096])), max_size=50))
def test_blocks_do_not_overlap(requests: list[tuple[int, int | None]]) -> None:
    with sw.Heap("c16") as heap:
        blocks = [heap.alloc(size, align=align) for size, align in requests]
        ends = sorted((block.address, block.address + block.usable) for block in blocks)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
