# SPDX-License-Identifier: Apache-2.0
"""Random use of heaps: against a model, and arrays of any content."""

from __future__ import annotations

from pathlib import Path

import pytest
import spanwise as sw

from tests.python.helpers import ALLOC, FREE, REALLOC, make_ops, python

# --- run misuse -----------------------------------------------------------------------------------


PROGRAM = Path(__file__).with_name("random_heaps.py")


def test_random_arrays_end_no_process() -> None:
    """In heaps with a fifth of the combinations of options; `./dev stress python_arrays`: all."""
    done = python(PROGRAM, "0", "5")
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"{last}: {done.stderr[-2000:]}"
    assert last == ["done"]


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
