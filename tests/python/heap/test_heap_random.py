# SPDX-License-Identifier: Apache-2.0
"""Random use of heaps: against a model, and arrays of any content."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.python.helpers import ALLOC, FREE, REALLOC, assert_identity, make_ops, python


class HeapMachine(RuleBasedStateMachine):
    """Random use of one heap, compared with a dictionary of its expected content."""

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
        """Create a view."""
        key = data.draw(st.sampled_from(sorted(self.blocks)))
        self.views.append((key, self.blocks[key][0].view()[:7]))

    @precondition(lambda self: self.views)
    @rule()
    def look_away(self) -> None:
        """Drop a view."""
        self.views.pop()

    @rule()
    def account(self) -> None:
        """The ledger agrees with the model."""
        self.heap.verify()
        ledger = self.heap.ledger()
        assert_identity(ledger)
        assert ledger.live_objects == len(self.blocks)
        assert ledger.requested_bytes == sum(block.size_bytes for block, _ in self.blocks.values())

    def teardown(self) -> None:
        """Closes."""
        self.views.clear()
        self.heap.close()


TestHeapMachine = HeapMachine.TestCase


@given(st.lists(st.tuples(st.integers(0, 3000), st.sampled_from([None, 8, 64, 4096])), max_size=50))
def test_blocks_do_not_overlap(requests: list[tuple[int, int | None]]) -> None:
    with sw.Heap("c16") as heap:
        blocks = [heap.alloc(size, align=align) for size, align in requests]
        ends = sorted((block.address, block.address + block.usable_bytes) for block in blocks)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))


# --- run misuse -----------------------------------------------------------------------------------


PROGRAM = Path(__file__).with_name("random_heaps.py")
PARTS = 2


@pytest.mark.parametrize("part", range(PARTS))
def test_random_arrays_end_no_process(part: int) -> None:
    """Random arrays in heaps with every combination of options do not crash."""
    done = python(PROGRAM, str(part), str(PARTS), timeout=600)
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"{last}: {done.stderr[-2000:]}"
    assert last == ["done"]


TINY = [
    [(ALLOC, 0, 4), (FREE, 0, 0)],
    [(ALLOC, 0, 4), (ALLOC, 1, 4), (FREE, 1, 0)],
    [(ALLOC, 0, 4), (REALLOC, 0, 12), (REALLOC, 0, 100)],
    [(ALLOC, 0, 16), (FREE, 0, 0)],
    [(ALLOC, 0, 4)],
]


def test_tiny_objects_are_freed_by_no_fault() -> None:
    """Real and dry heaps, each in a separate process, because a fault would end it."""
    code = (
        "import os, sys, numpy as np, spanwise as sw\n"
        "for rows in eval(sys.argv[1]):\n"
        "  for dry in False, True:\n"
        "    if os.fork(): print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True); continue\n"
        "    o = np.array(rows, sw.OPS_DTYPE)\n"
        "    h = sw.Heap(tiny=True, dry=dry); h.run(o); h.drain(); h.verify()\n"
        "    s = h.run(o[:0]); print(s.live_objects, s.requested_bytes, end=' ', flush=True)\n"
        "    os._exit(0)"
    )
    done = python("-c", code, str([make_ops(*rows).tolist() for rows in TINY]))
    assert (done.returncode, done.stdout) == (0, 2 * len(TINY) * "0 0 0\n"), done.stderr


def test_shared_frees_are_counted() -> None:
    """By hand: three objects of 4 B share one block; two are freed, one grows out of it."""
    rows = [(ALLOC, 0, 4), (ALLOC, 1, 4), (ALLOC, 2, 4), (FREE, 0, 0), (FREE, 1, 0)]
    with sw.Heap("go", tiny=True) as heap:
        assert heap.run(make_ops(*rows)).shared_frees == 2
        stats = heap.run(make_ops((REALLOC, 2, 40)))
        assert (stats.shared_frees, stats.requested_bytes, stats.live_objects) == (3, 40, 1)
        ledger = heap.ledger()
        assert (ledger.requested_bytes, ledger.live_objects) == (16 + 40, 2)
        assert "left in shared blocks" in str(stats)
    with sw.Heap("go") as plain:
        assert plain.run(make_ops(*rows)).shared_frees == 0


def test_a_single_large_id_is_refused() -> None:
    """A single large id would make the runner allocate tens of gigabytes."""
    ops = make_ops((ALLOC, 0, 8), (ALLOC, 0, 8))
    ops["object"][1] = 2**32 - 1
    with sw.Heap("go", dry=True) as heap:
        with pytest.raises(sw.InvalidError, match="operation 1: object 4294967295 is not dense"):
            heap.run(ops)
        assert heap.run(ops[:0]).ops == 0
        ops["object"][1] = 4095
        assert heap.run(ops).live_objects == 2


def test_ids_may_grow_with_the_runs() -> None:
    ops = np.zeros(5000, sw.OPS_DTYPE)
    ops["object"] = np.arange(5000)
    with sw.Heap("go", dry=True) as heap:
        heap.run(ops)
        ops["object"] += 5000
        assert heap.run(ops).live_objects == 10000
