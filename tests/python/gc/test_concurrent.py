# SPDX-License-Identifier: Apache-2.0
"""Collected heaps whose cycles a background thread marks."""

from __future__ import annotations

import threading

import pytest
import spanwise as sw

NODES = 2_000


def test_a_cycle_runs_while_threads_change_the_heap() -> None:
    with sw.CollectedHeap(concurrent=True) as heap:
        heap.set_debug(checkmark=True)
        node = heap.add_type("node", 16, [0])
        head = heap.new(node)
        for _ in range(NODES - 1):
            made = heap.new(node)
            made[0] = head
            head = made
        del made
        lists: dict[int, sw.CollectedObject] = {}

        def push(number: int) -> None:
            for _ in range(300):
                made = heap.new(node)
                made[0] = lists.get(number)
                lists[number] = made

        cut = head[0]
        assert heap.start().concurrent
        head[0] = None  # `cut` was reachable when the cycle began
        threads = [threading.Thread(target=push, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cycle = heap.wait()
        assert heap.phase == "idle"
        assert (cycle.concurrent, cycle.given_up, cycle.freed_objects) == (True, False, 0)
        assert cycle.start_stop_ns > 0
        assert cycle.end_stop_ns > 0
        assert cycle.end_stops >= 1
        assert cycle.stopped_ns == cycle.start_stop_ns + cycle.end_stop_ns
        pauses = heap.pauses
        assert int(pauses["ns"].sum()) == cycle.stopped_ns
        assert set(pauses["cycle"].tolist()) == {1}
        del cut
        lists.pop(0)
        heap.start()
        last = heap.wait()
        assert last.freed_objects == NODES - 1 + 300
        assert last.marked_objects == 1 + 2 * 300
        assert heap.cycles["concurrent"].tolist() == [True, True]
        assert heap.wait() == last  # none is running
        assert len(heap.cycles) == 2
        whole = heap.collect()  # with the world stopped
        assert (whole.concurrent, whole.stopped_ns) == (False, whole.mark_ns + whole.sweep_ns)


def test_a_pace_begins_concurrent_cycles() -> None:
    with sw.CollectedHeap(concurrent=True, conservative=True) as heap:
        leaf = heap.add_type("leaf", 1024)
        heap.set_pace(100)
        for _ in range(20_000):
            heap.new(leaf)
        heap.wait()
        assert heap.cycles["concurrent"].all()
        assert len(heap.cycles) >= 2
        assert int(heap.cycles["freed_objects"].sum()) > 5_000


def test_arguments() -> None:
    with pytest.raises(TypeError, match="concurrent"):
        sw.CollectedHeap(concurrent=1)  # type: ignore[arg-type]


def test_the_background_thread_has_events() -> None:
    """A cycle, the marking and sweeping between its stops, and the stops themselves."""
    with sw.CollectedHeap(concurrent=True) as heap:
        node = heap.add_type("node", 16, [0, 1])
        graph = heap.build(node, sw.binary_tree(14), keep=[0])
        heap.record_events()
        heap.start()
        heap.wait()
        events = heap.events()
        (cycle,) = events.of("cycle")
        own = threading.get_native_id()
        marks = [row for row in events.of("mark") if int(row["thread"]) != own]
        assert marks and len(events.of("pause")) >= 2 and graph is not None
        assert sum(int(row["ns"]) for row in marks) < int(cycle["ns"])
        assert len(events.of("sweep")) >= 1
        begin, end = int(cycle["start_ns"]), int(cycle["start_ns"] + cycle["ns"])
        for row in (*marks, *events.of("sweep")):
            assert begin <= int(row["start_ns"]) and int(row["start_ns"] + row["ns"]) <= end
