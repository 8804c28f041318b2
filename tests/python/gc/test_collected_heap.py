# SPDX-License-Identifier: Apache-2.0
"""Collected heaps: reachability against a search, roots, finalizers, weak references."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import spanwise as sw

NONE = 2**32 - 1


def reachable(edges: np.ndarray, roots: list[int]) -> int:
    """Return the number of nodes that a search reaches."""
    seen, waiting = set(roots), list(roots)
    while waiting:
        for to in edges[waiting.pop()].tolist():
            if to != NONE and to not in seen:
                seen.add(to)
                waiting.append(to)
    return len(seen)


def node_type(heap: sw.CollectedHeap, degree: int = 4) -> sw.ObjectType:
    return heap.add_type("node", 64, range(degree))


@pytest.mark.parametrize("seed", range(4))
def test_both_orders_keep_what_a_search_finds(seed: int) -> None:
    nodes = 4000
    edges = sw.random_graph(nodes, 2, seed=seed)
    with sw.CollectedHeap() as heap:
        heap.set_debug(checkmark=True)
        graph = heap.build(node_type(heap, 2), edges, keep=[seed])
        first = heap.collect(order="span")
        expected = reachable(edges, [seed])
        assert (first.order, first.marked_objects) == ("span", expected)
        assert first.freed_objects == nodes - expected
        assert heap.collect().order == "span"
        assert heap.start(order="object").order == "object"
        heap.step(10)
        last = heap.finish()
        assert (last.order, last.marked_objects) == ("object", expected)
        assert heap.cycles["order"].tolist() == ["span", "span", "object"]
        with pytest.raises(sw.InvalidError, match="must be one of object, span"):
            heap.collect(order="page")
        assert len(heap.cycles) == 3
        graph.release()


def test_a_tree_a_list_and_their_shapes() -> None:
    tree = sw.binary_tree(2)
    assert tree.tolist() == [[1, 2], [3, 4], [5, 6], *[[NONE, NONE]] * 4]
    assert sw.linked_list(3).tolist() == [[1], [2], [NONE]]
    shuffled = sw.linked_list(500, order="random", seed=3)
    assert reachable(shuffled, [0]) == 500
    assert (shuffled != sw.linked_list(500)).any()
    assert sw.random_graph(0, 3).shape == (0, 3)
    assert sw.linked_list(0).shape == (0, 1)


def test_objects_are_roots_while_they_live() -> None:
    with sw.CollectedHeap() as heap:
        kind = heap.add_type("pair", 16, [0, 1])
        parent, child = heap.new(kind), heap.new(kind)
        parent[1] = child
        assert parent[1] is child
        assert parent[0] is None
        del child
        gc.collect()
        assert heap.collect().marked_objects == 2
        parent[1] = None
        assert heap.collect().freed_objects == 1
        parent.release()
        parent.release()
        assert heap.collect().freed_objects == 1
        with pytest.raises(sw.BlockFreedError, match="released"):
            parent[1] = None


def test_a_cycle_that_is_abandoned_frees_nothing() -> None:
    with sw.CollectedHeap() as heap:
        heap.new(node_type(heap))
        gc.collect()
        heap.start()
        heap.abandon()
        cycle = heap.finish()
        assert cycle.given_up
        assert (cycle.marked_objects, cycle.freed_objects) == (1, 0)
        assert "given up" in str(cycle)
    cycle = replace(cycle, mark_ns=1500, marked_objects=3)
    assert cycle.marked_objects_per_second == 2e6
    assert replace(cycle, mark_ns=0).marked_objects_per_second == 0


def test_calls_in_a_wrong_state() -> None:
    with sw.CollectedHeap() as heap:
        for call in (heap.finish, heap.abandon):
            with pytest.raises(sw.StateError, match=r"under way|no cycle"):
                call()
        assert heap.step() is None and heap.step_ns(1000) is None
        heap.start()
        with pytest.raises(sw.StateError, match="under way"):
            heap.start()
        assert heap.collect().number == 2
        assert len(heap.cycles) == 2
    with pytest.raises(sw.HeapClosedError):
        heap.collect()
    assert "closed" in repr(heap)
    assert len(heap.cycles) == 2
    heap.close()


def test_bad_arguments() -> None:
    with sw.CollectedHeap() as heap, sw.CollectedHeap() as other:
        kind, foreign = heap.add_type("pair", 16, [0]), other.add_type("pair", 16, [0])
        for name in ("concurrent", "conservative"):
            with pytest.raises(TypeError, match=name):
                sw.CollectedHeap(**{name: 1})  # type: ignore[arg-type]
        with pytest.raises(sw.InvalidError, match="not both"):
            heap.add_type("bad", "P", [1])
        with pytest.raises(sw.InvalidError, match="its fields are"):
            heap.new(kind)["next"]
        with pytest.raises(sw.InvalidError, match="word 2"):
            heap.add_type("past", 16, [2])
        with pytest.raises(sw.InvalidError, match="multiple of 8"):
            heap.add_type("odd", 20, [0])
        with pytest.raises(sw.InvalidError):
            heap.add_type("empty", 0)
        with pytest.raises(TypeError, match="integer"):
            heap.add_type("text", 16, ["0"])  # type: ignore[list-item]
        with pytest.raises(sw.InvalidError, match="belongs to heap"):
            heap.new(foreign)
        with pytest.raises(TypeError, match="add_type"):
            heap.new(3)  # type: ignore[arg-type]
        with pytest.raises(sw.InvalidError, match="count 0: give 1 or more"):
            heap.new(kind, 0)
        with pytest.raises(sw.InvalidError, match=r"count .* is too large"):
            heap.new(kind, 2**62)
        obj = heap.new(kind, 3)
        obj[4] = obj
        for word in (1, 6, 2**70):
            with pytest.raises(sw.InvalidError, match=r"word|too large"):
                obj[word] = None
        with pytest.raises(sw.InvalidError, match="negative"):
            obj[-1] = None
        with pytest.raises(sw.InvalidError, match="another heap"):
            obj[0] = other.new(foreign)
        with pytest.raises(TypeError, match="value must be CollectedObject or None"):
            obj[0] = 5


@pytest.mark.parametrize(
    ("edges", "error", "words"),
    [
        ([[1], [2]], sw.InvalidError, "edge 0 of object 1 goes to 2"),
        ([[0, 0]], sw.InvalidError, "fewer than 2 pointers"),
        ([1, 2], sw.InvalidError, "shape"),
        ([[0.5]], TypeError, "integers"),
        ([[-1]], sw.InvalidError, "-1 is not a node"),
    ],
)
def test_bad_edges(edges: object, error: type[Exception], words: str) -> None:
    with sw.CollectedHeap() as heap:
        kind = heap.add_type("one", 16, [1])
        with pytest.raises(error, match=words):
            heap.build(kind, edges)
        with pytest.raises(sw.InvalidError, match="node 2 does not exist: the graph has 2"):
            heap.build(kind, [[1], [0]], keep=[2])
        assert heap.collect().marked_objects == 0


def test_built_objects_count_towards_the_pace() -> None:
    """65,536 objects of 64 B are the 4 MiB of a pace of 100 %; build itself starts no cycle."""
    with sw.CollectedHeap() as heap:
        kind = heap.add_type("node", 64, [0])
        heap.set_pace(100)
        heap.build(kind, sw.linked_list(65_000)).release()
        kept = heap.new(kind)
        assert len(heap.cycles) == 0
        heap.build(kind, sw.linked_list(1000)).release()
        assert len(heap.cycles) == 0
        other = heap.new(kind)
        (cycle,) = heap.cycles
        assert (cycle["freed_objects"], cycle["marked_objects"]) == (66_000, 1)
        assert len(heap.pauses) == 1 and not (kept.freed or other.freed)


def test_a_limit_is_an_error_and_a_collection_helps() -> None:
    options = sw.HeapOptions(limit_bytes=8 << 20)
    with sw.CollectedHeap(options=options) as heap:
        row = heap.add_type("row", 1 << 20)
        with pytest.raises(sw.LimitError):
            for _ in range(20):
                heap.new(row)
        heap.collect()
        assert heap.new(row).count == 1


def test_objects_that_may_share_a_block() -> None:
    """Two objects of 4 and 8 bytes, which live as long as either."""
    with sw.CollectedHeap("go", tiny=True) as heap:
        text = heap.add_type("text", 4)
        first, second = heap.new(text), heap.new(text, 2)
        assert second.address == first.address + 8
        for packed in (first, second):
            with pytest.raises(sw.StateError, match="may share its block"):
                packed.free()
            with pytest.raises(sw.InvalidError):
                heap.weak(packed)
            with pytest.raises(sw.InvalidError):
                heap.set_finalizer(packed, lambda _: None)
        first.release()
        others = [heap.new(heap.add_type("odd", 1), 15) for _ in range(2)]  # blocks of their own
        assert heap.collect().marked_objects == 3
        second.release()
        assert (heap.collect().freed_objects, len(others)) == (1, 2)


def test_pictures() -> None:
    """Two cycles, the first in steps, have pauses in each phase."""
    with sw.CollectedHeap() as heap:
        graph = heap.build(node_type(heap, 2), sw.binary_tree(9))
        heap.start()
        while heap.phase != "idle":
            heap.step(100)
        graph.release()
        heap.collect()
        bars: list[Any] = list(heap.plot_cycles().patches)
        assert sum(bar.get_height() > 0 for bar in bars) == 2
        lines = heap.plot_pauses().lines
        assert [str(line.get_label()).split()[0] for line in lines] == [
            *("idle", "marking", "sweeping")
        ]
        assert heap.plot_utilisation().get_xscale() == "log"
        assert heap.plot_pause_histogram().get_ylabel() == "pauses"


# --- roots ----------------------------------------------------------------------------------------


def test_untyped_objects_are_scanned_conservatively() -> None:
    with sw.CollectedHeap() as heap:
        box, leaf = heap.new_untyped(20), heap.new(heap.add_type("leaf", 32))
        box[1], address = leaf.address + 8, leaf.address  # an interior address, as a number
        del leaf
        gc.collect()
        assert (heap.collect().freed_objects, box[1]) == (0, address + 8)
        box[1] = box
        assert box[1] == box.address
        assert heap.collect().freed_objects == 1
        with pytest.raises(sw.InvalidError, match="word 2"):
            box[2] = 1
        with pytest.raises(TypeError, match="value"):
            box[0] = "text"


def test_ranges_of_roots() -> None:
    with sw.CollectedHeap() as heap:
        leaf = heap.add_type("leaf", 32)
        roots, other = heap.roots(3), heap.roots(1)
        roots[2], other[0] = heap.new(leaf), heap.new(leaf)
        gc.collect()
        assert heap.collect().freed_objects == 0
        assert (len(roots), roots[0]) == (3, None)
        assert roots[2] is not None and roots[2].type == leaf
        del other
        gc.collect()
        assert heap.collect().freed_objects == 1
        roots.close()
        roots.close()
        assert heap.collect().freed_objects == 1
        with pytest.raises(sw.StateError, match="closed"):
            roots[2]
        with pytest.raises(sw.StateError, match="closed"):
            roots[0] = None
        for words in (heap.roots, heap.frame):
            with pytest.raises(sw.InvalidError, match="count 0: give 1 or more"):
                words(0)


def test_frames_of_a_shadow_stack() -> None:
    with sw.CollectedHeap() as heap:
        leaf = heap.add_type("leaf", 32)
        with heap.frame(2) as low:
            low[0] = heap.new(leaf)
            with heap.frame(1) as high:
                high[0] = heap.new(leaf)
                assert heap.collect().freed_objects == 0
                with pytest.raises(sw.StateError):
                    low.__enter__()
            assert heap.collect().freed_objects == 1
            left = heap.frame(1)
            left.__enter__()  # left without an exit
            left[0] = low[0]
        assert heap.collect().freed_objects == 1
        for frame in (low, high, left):
            with pytest.raises(sw.StateError, match="no shadow stack"):
                frame[0]
        with low:
            assert low[0] is None
        with pytest.raises(sw.StateError):
            left.__exit__(None, None, None)


def test_the_map_of_a_collected_heap() -> None:
    with sw.CollectedHeap() as heap:
        kept = heap.new(heap.add_type("leaf", 64), 10)
        found = heap.map()
        assert found.ledger.held_bytes == heap.held_bytes
        assert heap.spans()["live"].tolist() == [1]
        assert kept.address - heap.spans()["address"][0] >= 0
        big = heap.new(heap.add_type("big", 1 << 20))
        big.free()
        assert heap.trim() >= 1 << 20


@pytest.fixture
def heap() -> Iterator[sw.CollectedHeap]:
    with sw.CollectedHeap() as made:
        made.set_debug(checkmark=True, clobber=True)
        yield made


def pair_type(heap: sw.CollectedHeap) -> sw.ObjectType:
    return heap.add_type("pair", 16, [0, 1])


def test_a_finalizer_gets_its_object_once(heap: sw.CollectedHeap) -> None:
    kind, seen = pair_type(heap), []
    made = heap.new(
        kind, 3, finalizer=lambda it: seen.append((it.address, it.count, it[5].address))
    )
    inner = heap.new(kind)
    made[5], address = inner, made.address
    expected = (address, 3, inner.address)
    assert (heap.collect().due_finalizers, heap.run_finalizers()) == (0, 0)
    del made, inner
    cycle = heap.collect()
    assert (cycle.due_finalizers, cycle.marked_objects, cycle.freed_objects) == (1, 2, 0)
    assert seen == []
    assert (heap.run_finalizers(), seen) == (1, [expected])
    assert heap.run_finalizers() == 0
    assert heap.collect().freed_objects == 2
    assert heap.collect().due_finalizers == 0


def test_a_finalizer_that_raises_goes_to_the_unraisable_hook(
    heap: sw.CollectedHeap, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught: list[BaseException | None] = []
    named: list[str] = []

    def hook(event: Any) -> None:
        caught.append(event.exc_value)
        named.append(f"{event.err_msg}{event.object!r}")

    monkeypatch.setattr(sys, "unraisablehook", hook)
    kind, called = pair_type(heap), []

    def fails(it: sw.CollectedObject) -> None:
        called.append(it.address)
        raise ValueError(f"of {it.address}")

    for _ in range(3):
        heap.new(kind, finalizer=fails)
    heap.collect()
    assert heap.run_finalizers() == 3
    assert [str(error) for error in caught] == [f"of {address}" for address in called]
    assert all(isinstance(error, ValueError) for error in caught)
    assert all(f"finalizer {fails!r}" in name for name in named)
    caught.clear()  # their tracebacks have the objects
    assert heap.collect().freed_objects == 3


def test_what_finalizers_may_do(heap: sw.CollectedHeap) -> None:
    kind, done = pair_type(heap), []

    def works(it: sw.CollectedObject) -> None:
        heap.collect()
        it[0] = heap.new(kind)
        assert it[0] is not None
        it.free()
        done.append(heap.run_finalizers())

    for _ in range(2):
        heap.new(kind, finalizer=works)
    heap.collect()
    assert heap.run_finalizers(1) == 1
    assert done == [0, 1]
    heap.verify()


def test_an_explicit_free_takes_finalizer_and_references_away(heap: sw.CollectedHeap) -> None:
    made = heap.new(pair_type(heap), finalizer=lambda _: pytest.fail("it was freed"))
    weak, long = heap.weak(made), heap.weak(made, long=True)
    made.free()
    assert weak() is None
    assert long() is None
    assert (heap.collect().due_finalizers, heap.run_finalizers()) == (0, 0)
    for call in (heap.weak, lambda it: heap.set_finalizer(it, print)):
        with pytest.raises(sw.BlockFreedError):
            call(made)


def test_weak_references(heap: sw.CollectedHeap) -> None:
    kind = pair_type(heap)
    made = heap.new(kind, 2)
    weak = heap.weak(made)
    assert weak() is made
    assert repr(weak) == f"<WeakObject to {kind!r}>"
    heap.collect()
    assert weak() is made
    parent = heap.new(kind)
    parent[0], address = made, made.address
    del made
    gc.collect()
    assert heap.collect().cleared_refs == 0
    again = weak()
    assert again is not None
    assert (again.address, again.count, again.type) == (address, 2, kind)
    assert weak() is again
    parent[0] = None
    assert heap.collect().cleared_refs == 0  # `again` is a root
    again.release()
    assert heap.collect().cleared_refs == 1
    assert weak() is None and repr(weak) == f"<WeakObject to {kind!r}, dead>"


def test_ephemerons(heap: sw.CollectedHeap) -> None:
    """A map's value lives while its key does, and leads to the key without keeping it."""
    kind = pair_type(heap)
    key, value = heap.new(kind, 2), heap.new(kind)
    value[0] = key
    pair = heap.ephemeron(key, value)
    assert pair.key is key and pair.value is value
    assert repr(pair) == f"<Ephemeron of {kind!r}>"
    del value
    gc.collect()
    assert heap.collect().marked_objects == 2
    found = pair.value
    assert found is not None and found[0] is key
    pair.set_value(heap.new(kind))
    found.release()
    assert heap.collect().freed_objects == 1
    pair.set_value(None)
    assert pair.value is None and pair.key is key
    assert heap.collect().freed_objects == 1
    pair.set_value(key)
    key.release()
    cycle = heap.collect()
    assert (cycle.freed_objects, cycle.cleared_refs) == (1, 1)
    assert (pair.key, pair.value) == (None, None)
    assert repr(pair) == f"<Ephemeron of {kind!r}, dead>"
    pair.set_value(heap.new(kind))
    assert pair.value is None


def test_ephemerons_of_freed_objects_and_of_other_heaps(heap: sw.CollectedHeap) -> None:
    kind = pair_type(heap)
    key, value, freed = heap.new(kind), heap.new(kind), heap.new(kind)
    pair = heap.ephemeron(key, value)
    value.free()
    assert pair.value is None and pair.key is key
    freed.free()
    with pytest.raises(sw.BlockFreedError):
        heap.ephemeron(freed)
    with pytest.raises(sw.BlockFreedError):
        pair.set_value(freed)
    with sw.CollectedHeap() as other:
        foreign = other.new(pair_type(other))
        with pytest.raises(sw.InvalidError, match="another heap"):
            heap.ephemeron(key, foreign)
        with pytest.raises(sw.InvalidError, match="another heap"):
            heap.ephemeron(foreign)
    with pytest.raises(TypeError):
        heap.ephemeron(key, 5)  # type: ignore[arg-type]
    key.free()
    assert pair.key is None


def test_reprs_after_the_end_of_a_heap() -> None:
    with sw.CollectedHeap() as heap:
        made, freed = heap.new(pair_type(heap)), heap.new(pair_type(heap))
        weak, pair = heap.weak(made), heap.ephemeron(made)
        freed.free()
    assert repr(pair) == f"<Ephemeron of {made.type!r}, of a closed heap>"
    assert repr(made) == "<CollectedObject pair, of a closed heap>"
    assert repr(freed) == "<CollectedObject pair, freed>"
    assert repr(weak) == f"<WeakObject to {made.type!r}, of a closed heap>"


def test_wrong_arguments(heap: sw.CollectedHeap) -> None:
    made = heap.new(pair_type(heap))
    with sw.CollectedHeap() as other:
        with pytest.raises(sw.InvalidError, match="another heap"):
            other.weak(made)
        with pytest.raises(sw.InvalidError, match="another heap"):
            other.set_finalizer(made, print)
    with pytest.raises(TypeError, match="not int"):
        heap.weak(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="finalizer must be callable"):
        heap.set_finalizer(made, 7)  # type: ignore[arg-type]
    with pytest.raises(sw.InvalidError):
        heap.run_finalizers(-1)


# --- joined ---------------------------------------------------------------------------------------


def test_states_of_joining() -> None:
    heap = sw.CollectedHeap()
    with heap.joined("main"):
        with pytest.raises(sw.StateError, match="joined before"), heap.joined("main"):
            pass
        heap.collect()
    with pytest.raises(ValueError, match="out"), heap.joined("again"):
        raise ValueError("out")
    for ms in (0, -1, float("nan")):
        with pytest.raises(sw.InvalidError, match=f"ms {ms}: give a time above 0"):
            heap.set_stop_ms(ms)
    with heap.joined("closes"):
        heap.close()
    with pytest.raises(sw.HeapClosedError), heap.joined("late"):
        pass
