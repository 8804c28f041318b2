# SPDX-License-Identifier: Apache-2.0
"""Finalizers and weak references of collected objects; threads that join the collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
import spanwise as sw


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
    monkeypatch.setattr(sys, "unraisablehook", lambda event: caught.append(event.exc_value))
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
    assert weak() is None


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
    with pytest.raises(sw.InvalidError):
        heap.set_stop_ms(0)
    with heap.joined("closes"):
        heap.close()
    with pytest.raises(sw.HeapClosedError), heap.joined("late"):
        pass
