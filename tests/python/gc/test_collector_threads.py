# SPDX-License-Identifier: Apache-2.0
"""Collected heaps with threads: concurrent cycles, conservative roots, threads that join."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise._lib import lib

from tests.python.helpers import in_threads, wait_for

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
        assert len(pauses) == 1 + cycle.end_stops
        assert int(pauses["ns"].max()) <= max(cycle.start_stop_ns, cycle.end_stop_ns)
        assert cycle.longest_ns <= int(pauses["ns"].max())  # each has its marking
        assert set(pauses["cycle"].tolist()) == {1}
        assert pauses["phase"].tolist() == ["idle"] + cycle.end_stops * ["marking"]
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


@pytest.mark.parametrize("markers", [1, 2, 4])
def test_several_threads_mark_what_one_marks(markers: int) -> None:
    edges = sw.random_graph(50_000, 3, seed=1)
    with sw.CollectedHeap(markers=markers) as heap:
        heap.set_debug(checkmark=True)
        graph = heap.build(heap.add_type("node", 64, range(3)), edges)
        cycle = heap.collect()
        seen, waiting = {0}, [0]
        while waiting:
            new = set(edges[waiting.pop()].tolist()) - seen
            seen |= new
            waiting += new
        assert (cycle.marked_objects, cycle.markers) == (len(seen), markers)
        graph.release()
        assert heap.collect(order="span").markers == 1
    with pytest.raises(sw.InvalidError, match="markers 17 is too large; give at most 16"):
        sw.CollectedHeap(markers=17)


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


# --- what a heap reports of its stops -------------------------------------------------------------

LIST = 20_000


def at_once(heap: sw.CollectedHeap, node: sw.ObjectType) -> None:
    heap.collect()


def in_steps(heap: sw.CollectedHeap, node: sw.ObjectType) -> None:
    heap.start()
    while heap.step(LIST // 5):
        heap.new(node)


def wait(heap: sw.CollectedHeap, node: sw.ObjectType) -> None:
    heap.start()
    heap.wait()


def finish(heap: sw.CollectedHeap, node: sw.ObjectType) -> None:
    heap.start()
    assert heap.finish().number == len(heap.cycles)


def collect_a_running_one(heap: sw.CollectedHeap, node: sw.ObjectType) -> None:
    heap.start()
    heap.collect()


def always(heap: sw.CollectedHeap, node: sw.ObjectType) -> None:
    heap.set_debug(always=True)
    heap.new(node)
    heap.set_debug()


def paced_by_two(heap: sw.CollectedHeap, node: sw.ObjectType) -> None:
    def allocate(_: int) -> None:
        for _ in range(12_000):
            heap.new(node)

    heap.set_pace(20)
    in_threads(allocate, 2)
    heap.wait()
    heap.set_pace(0)


@pytest.mark.parametrize("concurrent", [False, True])
@pytest.mark.parametrize(
    "work", [at_once, in_steps, wait, finish, collect_a_running_one, always, paced_by_two]
)
def test_each_stop_is_a_pause(
    work: Callable[[sw.CollectedHeap, sw.ObjectType], None], concurrent: bool
) -> None:
    """The rows are those of the events, whoever ends a cycle, and none is missing or double."""
    with sw.CollectedHeap(concurrent=concurrent) as heap:
        heap.set_stop_ms(20_000)
        heap.record_events()
        node = heap.add_type("node", [("next", object), ("payload", "u1", 400)])
        kept = heap.build(node, sw.linked_list(LIST, order="random"))
        for _ in range(3):
            work(heap, node)
        assert heap.phase == "idle"
        pauses, events, cycles = heap.pauses, heap.events(), heap.cycles
        assert heap.pauses.tolist() == pauses.tolist()
    expected = events.of("pause")
    ordered = np.sort(np.asarray(pauses), order="at_ns")
    for name, other in (("cycle", "cycle"), ("at_ns", "start_ns"), ("ns", "ns")):
        assert ordered[name].tolist() == expected[other].tolist()
    numbers = list(range(1, len(cycles) + 1))
    assert cycles["number"].tolist() == numbers and len(numbers) >= 3 and kept.nodes == LIST
    for cycle in cycles:
        mine = ordered[ordered["cycle"] == cycle["number"]]
        assert len(mine) == cycle["steps"] and mine["phase"][0] == "idle"
        assert mine["ns"].max() >= cycle["longest_ns"]
    assert heap.pause_histogram()["calls"].sum() == len(pauses)
    assert (heap.pauses.tolist(), heap.cycles.tolist()) == (pauses.tolist(), cycles.tolist())


def test_the_background_thread_has_events() -> None:
    """Its marking and sweeping lie within the cycle."""
    with sw.CollectedHeap(concurrent=True) as heap:
        graph = heap.build(heap.add_type("node", 16, [0, 1]), sw.binary_tree(14), keep=[0])
        heap.record_events()
        heap.start()
        heap.wait()
        events = heap.events()
        graph.release()
    (cycle,) = events.of("cycle")
    marks, begin = np.asarray(events.of("mark")), int(cycle["start_ns"])
    marks = marks[marks["thread"] != threading.get_native_id()]
    assert len(marks) >= 1 and len(events.of("pause")) >= 2 and marks["ns"].sum() < cycle["ns"]
    for rows in (marks, np.asarray(events.of("sweep"))):
        assert len(rows) >= 1 and rows["start_ns"].min() >= begin
        assert (rows["start_ns"] + rows["ns"]).max() <= begin + int(cycle["ns"])


def test_cycles_has_what_the_background_thread_ended() -> None:
    with sw.CollectedHeap(concurrent=True) as heap:
        node = heap.add_type("node", [("next", object)])
        kept = heap.build(node, sw.linked_list(LIST))
        for count in range(1, 4):
            heap.start()
            while heap.phase != "idle":
                time.sleep(0.001)
            assert len(heap.cycles) == count
            assert f"{count} cycle" in repr(heap)
            assert len(heap.pauses) == count + heap.cycles["end_stops"].sum()
        assert kept.nodes == LIST
        heap.start()
    assert 3 <= len(heap.cycles) <= 4 <= heap.pauses["cycle"].max()


def test_finish_returns_a_cycle_that_has_ended_once() -> None:
    with sw.CollectedHeap(concurrent=True) as heap:
        with pytest.raises(sw.StateError, match="no cycle yet"):
            heap.wait()
        for ends in (heap.finish, heap.wait):
            started = heap.start()
            while heap.phase != "idle":
                time.sleep(0.001)
            assert ends().number == started.number
            with pytest.raises(sw.StateError, match="no cycle is under way"):
                heap.finish()
        assert heap.wait().number == 2


OBJECTS = 2000


def word_of_c() -> ctypes.c_void_p:
    """Return a variable of the C library, which this process does not use otherwise."""
    return ctypes.c_void_p.in_dll(ctypes.CDLL(None), "optarg")


@pytest.mark.parametrize("conservative", [False, True])
def test_static_data_of_c_is_a_root(conservative: bool) -> None:
    word = word_of_c()
    with sw.CollectedHeap(conservative=conservative) as heap:
        heap.set_debug(checkmark=True)
        node = heap.add_type("node", 16, [0])
        tail = heap.new(node)
        for _ in range(OBJECTS - 1):
            head = heap.new(node)
            head[0] = tail
            tail = head
        word.value = head.address
        del head, tail
        kept = heap.collect().marked_objects
        word.value = None
        left = heap.collect().marked_objects
        heap.verify()
    assert kept == (OBJECTS if conservative else 0)
    assert left <= kept


def test_words_of_the_interpreter_retain_little() -> None:
    with sw.CollectedHeap(conservative=True) as heap:
        leaf = heap.add_type("leaf", 32, [0])
        for _ in range(OBJECTS):
            heap.new(leaf)
        assert heap.collect().marked_objects <= OBJECTS // 100


def test_threads_join_at_their_first_call_and_wait_outside() -> None:
    inside, go_on = threading.Event(), threading.Event()
    with sw.CollectedHeap(conservative=True) as heap:
        heap.set_stop_ms(20_000)
        node = heap.add_type("node", 16, [0])

        def sleeps() -> None:
            kept = heap.new(node)
            inside.set()
            go_on.wait(60)
            kept[0] = heap.new(node)

        def works(_: int) -> None:
            for i in range(100):
                kept = heap.new(node)
                kept[0] = heap.new(node)
                if i % 10 == 0:
                    heap.collect()
                assert kept[0] is not None

        thread = threading.Thread(target=sleeps)
        thread.start()
        assert inside.wait(60)
        in_threads(works, 3)
        with heap.joined("main"):
            with pytest.raises(sw.StateError, match="joined before"), heap.joined("main"):
                pass
            heap.collect()
        go_on.set()
        thread.join(60)
        heap.collect()
        wait_for(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists())
        heap.verify()


def test_a_thread_that_joins_by_itself_waits_outside() -> None:
    """It does so because a thread of another language has joined."""
    with sw.CollectedHeap() as heap:
        heap.set_stop_ms(100)
        node = heap.add_type("node", 16, [0])
        with heap._handle as c_gc:
            assert lib.sw_gc_join(c_gc, b"other") == lib.SW_OK
        inside, go_on = threading.Event(), threading.Event()

        def allocates() -> None:
            heap.new(node)
            inside.set()
            go_on.wait(60)
            heap.new(node)
            with heap.joined("named"):
                heap.collect()

        thread = threading.Thread(target=allocates)
        thread.start()
        assert inside.wait(60)
        heap.collect()
        with heap._handle as c_gc:
            assert lib.sw_gc_leave(c_gc) == lib.SW_OK
        go_on.set()
        thread.join(60)
        heap.collect()
