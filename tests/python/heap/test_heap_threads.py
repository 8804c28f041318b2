# SPDX-License-Identifier: Apache-2.0
"""Heaps from many Python threads: nothing is lost, nothing crashes."""

from __future__ import annotations

import random
import threading
import time

import pytest
import spanwise as sw

from tests.python.helpers import ALLOC, FREE, in_threads, make_ops, random_ops

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
