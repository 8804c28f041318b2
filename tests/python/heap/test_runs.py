# SPDX-License-Identifier: Apache-2.0
"""Heap.run: workloads that it refuses, Ctrl-C, threads, random operations, shared blocks."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw

from tests.python.helpers import ALLOC, FREE, REALLOC, in_threads, make_ops, python, random_ops


def test_run_refuses_what_is_no_workload(heap: sw.Heap) -> None:
    with pytest.raises(TypeError, match=r"spanwise\.OPS_DTYPE, not list"):
        heap.run([1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not float64"):
        heap.run(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one dimension, not 2"):
        heap.run(np.zeros((2, 2), sw.OPS_DTYPE))
    with pytest.raises(ValueError, match="op 1: kind 9 is unknown"):
        heap.run(make_ops((ALLOC, 0, 8), (9, 0, 8)))


INTERRUPTED = """
import os, signal, threading, time, numpy as np, spanwise as sw
ops = np.zeros(4_000_000, sw.OPS_DTYPE)
ops["kind"][1::2] = 1
ops["size"][::2] = 300_000
heap = sw.Heap()
runs = 0
try:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    for runs in range(1000):
        heap.run(ops)
except KeyboardInterrupt:
    heap.verify()
    heap.close()
    print("stopped", runs < 900)
"""


def test_ctrl_c_stops_a_run() -> None:
    done = python("-c", INTERRUPTED)
    assert done.stdout == "stopped True\n", done.stderr


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


def test_a_resident_ledger_says_that_a_run_wrote_nothing() -> None:
    ops = random_ops(3, 500)
    with sw.Heap(manual_clock=True) as heap, sw.Heap(manual_clock=True) as written:
        heap.run(ops)
        written.run(ops, touch="ends")
        remark = "objects of run() were not written (touch='none')"
        assert remark in str(heap.ledger(resident=True))
        assert remark in str(heap.map(resident=True).ledger)
        assert heap.ledger().remark == written.ledger(resident=True).remark == ""
        heap.drain()
        assert heap.ledger(resident=True).remark == ""


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
