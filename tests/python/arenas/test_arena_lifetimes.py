# SPDX-License-Identifier: Apache-2.0
"""How long arenas live: pins, objects of collected heaps that have an arena, numpy's own arrays."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spanwise as sw


def arenas() -> int:
    return sw.Arena.pool_stats().arenas


def at(address: int) -> np.ndarray[Any, Any]:
    """Return an array over an address that nothing keeps alive."""
    return np.ctypeslib.as_array((ctypes.c_ubyte * 10).from_address(address))


# --- pins -----------------------------------------------------------------------------------------


def test_a_pin_holds_the_arena_of_what_it_is_given() -> None:
    arena, other = sw.Arena(), sw.Arena()
    view = arena.alloc(100)
    address = view.ctypes.data
    raw = at(address)
    for target in (address, address + 99, np.int64(address), view, view[90:], view[:0], raw,
                   view.data[5:], np.asarray(view.data)):  # fmt: skip
        with sw.Arena.pin(target):
            with pytest.raises(sw.BlockBusyError, match=r"is held; leave .* hold\(\) or pin\(\)"):
                arena.reset()
            other.reset()  # another arena is not held
    del view, raw, target
    with sw.Arena.pin(address):
        for end in (arena.close, arena.reset):
            with pytest.raises(sw.BlockBusyError, match="held"):
                end()
        with arena.hold(), sw.Arena.pin(address):
            pass
        with pytest.raises(sw.BlockBusyError, match="held"):
            arena.close()
    arena.close()


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_an_array_outside_chunks_is_pinned_but_its_address_is_not_found(mode: str) -> None:
    with sw.Arena(mode=mode) as arena:
        big = arena.zeros(100_000)
        with sw.Arena.pin(big), pytest.raises(sw.BlockBusyError, match="held"):
            arena.close()
        with pytest.raises(sw.InvalidError, match="in no chunk"), sw.Arena.pin(big.ctypes.data):
            pass
        del big


def test_a_pin_keeps_an_arena_that_nothing_else_refers_to() -> None:
    arena = sw.Arena()
    address = arena.alloc(8, zero=True).ctypes.data
    before = arenas()
    with sw.Arena.pin(address):
        del arena
        gc.collect()
        assert arenas() == before
        assert ctypes.string_at(address, 8) == bytes(8)
    assert arenas() == before - 1


@pytest.mark.parametrize("end", ["close", "del", "exit"])
def test_a_stale_address_is_an_error(end: str) -> None:
    arena = sw.Arena(safe=True)
    address = arena.alloc(100).ctypes.data
    with arena if end == "exit" else sw.Arena():
        pass
    if end == "close":
        arena.close()
    del arena
    stale = rf"target {address:#x} is in no chunk of a live arena"
    with pytest.raises(ValueError, match=stale), sw.Arena.pin(address):
        pass
    with pytest.raises(ValueError, match="in no chunk"), sw.Arena.pin(at(address)):
        pass


FOREIGN: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (sw.InvalidError, "target 0x0 is in no chunk", lambda: 0),
    (sw.InvalidError, "target 0xffffffffffffffff is in no chunk", lambda: 2**64 - 1),
    (sw.InvalidError, "is too large", lambda: 2**64),
    (sw.InvalidError, "is negative", lambda: -1),
    (sw.InvalidError, "in no chunk", lambda: id(gc)),
    (sw.InvalidError, "in no chunk", lambda: np.zeros(10)),
    (sw.InvalidError, "in no chunk", lambda: np.zeros(0)),
    (sw.InvalidError, "in no chunk", lambda: memoryview(b"")),
    (sw.InvalidError, "in no chunk", lambda: sw.Heap().alloc(10).view()),
    (sw.InvalidError, "in no chunk", lambda: sw.Arena().clone(np.zeros(3))),
    (sw.InvalidError, "in no chunk", lambda: sw.Arena().zeros(3).copy()),
    (TypeError, "an array, a memoryview or an address, not NoneType", lambda: None),
    (TypeError, "not str", lambda: "0x10"),
    (TypeError, "not bool", lambda: True),
    (TypeError, "not float", lambda: 1.5),
    (TypeError, "not Arena", sw.Arena),
]


@pytest.mark.parametrize(("error", "words", "target"), FOREIGN)
def test_what_cannot_be_pinned(
    error: type[Exception], words: str, target: Callable[[], object]
) -> None:
    with pytest.raises(error, match=words), sw.Arena.pin(target()):  # type: ignore[arg-type]
        pass


def test_threads_pin_addresses_of_arenas_that_end() -> None:
    """Each pin holds a live arena or raises, and no arena is left."""
    before, places, done = arenas(), [0], threading.Event()
    pinned, refused = [0], [0]

    def pin() -> None:
        while not done.is_set():
            try:
                with sw.Arena.pin(places[0]):
                    pinned[0] += 1
            except sw.InvalidError:
                refused[0] += 1

    threads = [threading.Thread(target=pin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(2000):
        arena = sw.Arena(chunk_bytes=4096)
        places[0] = arena.alloc(8).ctypes.data
        while i % 2:
            try:
                arena.close()
                break
            except sw.BlockBusyError:
                pass
        del arena
    done.set()
    for thread in threads:
        thread.join()
    assert arenas() == before
    assert refused[0] > 0


# --- arenas of objects ----------------------------------------------------------------------------


def given(safe: bool = False) -> tuple[sw.CollectedHeap, sw.CollectedObject, sw.Arena]:
    heap, arena = sw.CollectedHeap(), sw.Arena(safe=safe)
    target = heap.new(heap.add_type("owner", 16, [0]))
    arena.free_with(target)
    return heap, target, arena


def run_cycle(heap: sw.CollectedHeap) -> int:
    heap.collect()
    return heap.run_finalizers()


@pytest.mark.parametrize("safe", [False, True])
def test_an_arena_is_freed_with_its_object(safe: bool) -> None:
    heap, target, arena = given(safe)
    before = arenas()
    saved, address = arena.savepoint(), arena.alloc(10).ctypes.data
    assert run_cycle(heap) == 0
    target[0] = target  # unreachable as a cycle, too
    del target
    heap.collect()
    assert arena.zeros(3).sum() == 0  # due, but not freed before run_finalizers()
    assert (heap.run_finalizers(), arenas(), arena.closed) == (1, before - 1, True)
    assert repr(arena) == "<Arena, closed>"
    with pytest.raises(sw.InvalidError, match="in no chunk"), sw.Arena.pin(address):
        pass
    other = heap.new(heap.add_type("other", 8))
    hold = arena.hold()
    for call in (lambda: arena.zeros(3), arena.reset, arena.stats, arena.savepoint, saved.rewind,
                 hold.__enter__, lambda: arena.clone(np.zeros(2)), lambda: arena.attach(heap),
                 lambda: arena.free_with(other), lambda: arena.free_with(None),
                 sw.ArenaAllocator(arena).__enter__):  # fmt: skip
        with pytest.raises(sw.StateError, match="the Arena was freed with its object"):
            call()
    arena.close()
    arena.close()
    with pytest.raises(sw.StateError, match="the Arena is closed"):
        arena.zeros(3)
    assert run_cycle(heap) == 0


def test_views_and_holds_postpone_it() -> None:
    heap, target, arena = given()
    view = arena.zeros(10)[5:]
    del target
    for _ in range(3):
        assert (run_cycle(heap), arena.closed) == (1, False)
        view += 1
    assert view.tolist() == [3.0] * 5
    del view
    with arena.hold():
        assert (run_cycle(heap), arena.closed) == (1, False)
    with sw.ArenaAllocator(arena):
        array = np.ones(1000)
    assert (run_cycle(heap), arena.closed, array.sum()) == (1, False, 1000)
    del array
    assert arena.zeros(3).sum() == 0
    assert (run_cycle(heap), arena.closed) == (1, True)


def test_the_object_keeps_the_arena() -> None:
    heap, target, arena = given()
    address = arena.alloc(4, zero=True).ctypes.data
    before = arenas()
    del arena
    gc.collect()
    run_cycle(heap)
    assert (arenas(), ctypes.string_at(address, 4)) == (before, bytes(4))
    del target
    assert (run_cycle(heap), arenas()) == (1, before - 1)


def test_an_arena_that_is_closed_first() -> None:
    heap, target, arena = given()
    before = arenas()
    arena.close()
    arena.close()
    assert arenas() == before - 1
    heap.set_finalizer(target, None)
    del target
    assert (run_cycle(heap), arenas()) == (0, before - 1)


def test_a_heap_that_ends_first() -> None:
    """The arena is Python's again."""
    for drop in (False, True):
        heap, target, arena = given()
        before = arenas()
        if not drop:
            heap.close()
        del heap, target
        gc.collect()
        assert (arenas(), arena.closed, arena.zeros(3).sum()) == (before, False, 0)
        arena.reset()
        arena.close()
        assert arenas() == before - 1
    for drop in (False, True):
        heap, target, arena = given()
        before = arenas()
        del arena
        if not drop:
            heap.close()
        else:
            del heap, target
        gc.collect()
        assert arenas() == before - 1


def test_what_replaces_what() -> None:
    heap, target, arena = given()
    called: list[sw.CollectedObject] = []
    heap.set_finalizer(target, called.append)  # instead of the arena
    del target
    assert (run_cycle(heap), arena.closed, len(called)) == (1, False, 1)
    target = called.pop()
    heap.set_finalizer(target, called.append)
    arena.free_with(target)  # instead of the function
    second = sw.Arena()
    second.free_with(target)  # instead of the first arena
    assert not arena.closed
    del target
    assert (run_cycle(heap), arena.closed, second.closed, called) == (1, False, True, [])
    first, later = (heap.new(heap.add_type("owner", 16)) for _ in range(2))
    arena.free_with(first)
    arena.free_with(later)  # another object
    del first
    assert (run_cycle(heap), arena.closed) == (0, False)
    arena.free_with(later)
    arena.reset()
    arena.free_with(None)
    del later
    assert (run_cycle(heap), arena.closed) == (0, False)


def test_a_due_arena_is_taken_back() -> None:
    for end in (lambda arena: arena.free_with(None), sw.Arena.close):
        heap, target, arena = given()
        del target
        assert heap.collect().due_finalizers == 1
        end(arena)
        before = arenas()
        assert (heap.run_finalizers(), arenas()) == (0, before)


def test_an_object_that_is_freed_gives_the_arena_back() -> None:
    heap, target, arena = given()
    target.free()
    with pytest.raises(sw.BlockFreedError):
        arena.free_with(target)
    assert (run_cycle(heap), arena.closed) == (0, False)
    again = [heap.new(heap.add_type("owner", 16)) for _ in range(100)]  # one has its address
    before = arenas()
    del again
    assert (run_cycle(heap), arenas(), arena.closed) == (0, before, False)


def test_a_reset_does_not_end_it() -> None:
    heap, target, arena = given()
    arena.zeros(100)
    arena.reset()
    assert not arena.closed
    assert arena.zeros(3).sum() == 0
    del target
    assert (run_cycle(heap), arena.closed) == (1, True)


def test_an_attached_arena_that_reaches_its_object_keeps_it() -> None:
    heap, target, arena = given()
    arena.attach(heap)
    words = arena.pointers(1)
    words[0] = target.address
    del target
    assert (run_cycle(heap), arena.closed) == (0, False)
    words[0] = 0
    del words
    assert (run_cycle(heap), arena.closed) == (1, True)


def test_two_heaps_and_two_arenas_in_threads() -> None:
    """Locks are taken in one order, whichever heap is attached."""
    heaps = [sw.CollectedHeap(concurrent=True), sw.CollectedHeap()]
    targets = [heap.new(heap.add_type("owner", 16)) for heap in heaps]
    made = [sw.Arena(), sw.Arena()]
    for i, arena in enumerate(made):
        arena.attach(heaps[i])
        arena.free_with(targets[1 - i])

    def use(i: int) -> None:
        for _ in range(300):
            made[i].zeros(10)
            run_cycle(heaps[i])

    threads = [threading.Thread(target=use, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not any(arena.closed for arena in made)
    del targets
    for heap in heaps:
        run_cycle(heap)
    assert all(arena.closed for arena in made)


def test_arenas_are_used_while_another_thread_frees_them() -> None:
    heap = sw.CollectedHeap()
    kind, done = heap.add_type("owner", 16), threading.Event()
    before = arenas()

    def run() -> None:
        while not done.is_set():
            run_cycle(heap)

    thread = threading.Thread(target=run)
    thread.start()
    ends = 0
    for _ in range(200):
        arena = sw.Arena(chunk_bytes=4096)
        arena.free_with(heap.new(kind))
        try:
            while True:
                arena.zeros(8)
                arena.reset()
        except sw.StateError:
            ends += 1
    done.set()
    thread.join()
    del arena
    assert (ends, arenas()) == (200, before)


def test_what_has_no_arena() -> None:
    arena, heap = sw.Arena(), sw.CollectedHeap(tiny=True)
    small = heap.new(heap.add_type("small", 8))
    with pytest.raises(sw.InvalidError, match="no object of the heap begins at"):
        arena.free_with(small)
    target = heap.new(heap.add_type("owner", 64))
    with pytest.raises(TypeError, match="target must be CollectedObject or None, not int"):
        arena.free_with(target.address)  # type: ignore[arg-type]
    arena.free_with(target)
    with pytest.raises(sw.InvalidError):
        arena.free_with(small)
    target.release()
    with pytest.raises(sw.BlockFreedError):
        arena.free_with(target)
    assert (run_cycle(heap), arena.closed) == (1, True)  # the refused calls changed nothing
    other = sw.Arena()
    heap.close()
    with pytest.raises(sw.HeapClosedError):
        other.free_with(target)
    with pytest.raises(sw.HeapClosedError):
        other.free_with(small)
    assert other.zeros(1).tolist() == [0]


# --- numpy's arrays -------------------------------------------------------------------------------


def handler_of(array: Any = None) -> str:
    """Return the name of the allocator that numpy uses now, or used for an array."""
    core = getattr(np, "core" if np.__version__.startswith("1.") else "_core")
    return str(core.multiarray.get_handler_name(*([] if array is None else [array])))


def test_numpy_allocates_in_an_arena() -> None:
    arena = sw.Arena(chunk_bytes=4096, mode="force")
    before = np.arange(10)
    with sw.ArenaAllocator(arena):
        small, big = np.arange(10), np.zeros((100, 100))
        text = np.array(["a", "b" * 100])
        objects = np.array([[1], "x", None], dtype=object)
        inner = before + small
        assert handler_of() == "spanwise_arena"
    after = small + 1
    names = [handler_of(one) for one in (before, small, big, text, objects, inner, after)]
    assert names == ["default_allocator"] + ["spanwise_arena"] * 5 + ["default_allocator"]
    assert (small.sum(), big.sum(), text[1], objects[0], inner[9]) == (45, 0, "b" * 100, [1], 18)
    assert all(one.ctypes.data % 16 == 0 for one in (small, big, text, objects, inner))
    stats = arena.stats()
    assert stats.used_bytes + stats.own_bytes >= small.nbytes + big.nbytes + text.nbytes
    with sw.Arena.pin(small.ctypes.data):
        pass


def test_arrays_of_numpy_keep_the_arena() -> None:
    arena = sw.Arena()
    saved = arena.savepoint()
    with sw.ArenaAllocator(arena) as allocator:
        assert "entered" in repr(allocator)
        with pytest.raises(sw.BlockBusyError, match="leave the `with` of ArenaAllocator"):
            arena.close()
        with pytest.raises(sw.StateError, match="entered already"):
            allocator.__enter__()
        part = np.arange(1000)[500:]
    for end in (arena.close, arena.reset, saved.rewind):
        with pytest.raises(sw.BlockBusyError, match="delete the arrays made there"):
            end()
    with pytest.raises(sw.StateError, match="numpy allocates in the arena"):
        arena.attach(sw.CollectedHeap())
    address, count = part.ctypes.data, arenas()
    del part
    saved.rewind()
    arena.close()
    assert arenas() == count - 1
    with pytest.raises(sw.InvalidError), sw.Arena.pin(address):
        pass
    with pytest.raises(sw.StateError, match="closed"):
        allocator.__enter__()
    with pytest.raises(sw.StateError, match="not entered"):
        allocator.__exit__(None, None, None)


def test_arrays_of_numpy_outlive_the_arena_object() -> None:
    before = arenas()
    with sw.ArenaAllocator(sw.Arena()):
        array = np.arange(1000)
    gc.collect()
    assert (array.sum(), arenas()) == (499_500, before + 1)
    del array
    assert arenas() == before


def test_numpy_resizes_and_refuses() -> None:
    arena = sw.Arena(mode="force", chunk_bytes=4096, limit_bytes=8192)
    with sw.ArenaAllocator(arena):
        array = np.arange(10)
        array.resize(5, refcheck=False)
        array.resize(100, refcheck=False)
        assert array.tolist() == [0, 1, 2, 3, 4] + [0] * 95
        with pytest.raises(MemoryError):
            for _ in range(100):
                np.empty(100)
        with pytest.raises((MemoryError, ValueError)):
            np.empty(1 << 60)
    with pytest.raises(sw.StateError, match="a heap is attached"):
        attached = sw.Arena()
        attached.attach(sw.CollectedHeap())
        with sw.ArenaAllocator(attached):
            pass
    with pytest.raises(TypeError, match="arena must be Arena, not int"):
        sw.ArenaAllocator(3)  # type: ignore[arg-type]


def test_it_concerns_the_thread_and_the_tasks_that_it_starts() -> None:
    arena = sw.Arena()
    names: list[str] = []

    async def later() -> np.ndarray[Any, Any]:
        await asyncio.sleep(0)
        return np.arange(1000)

    async def run() -> np.ndarray[Any, Any]:
        with sw.ArenaAllocator(arena):
            task = asyncio.ensure_future(later())
        assert handler_of() == "default_allocator"
        return await task  # it has the context of the `with` statement

    thread = threading.Thread(target=lambda: names.append(handler_of()))
    with sw.ArenaAllocator(arena):
        thread.start()
        thread.join()
    assert names == ["default_allocator"]
    array = asyncio.run(run())
    assert handler_of(array) == "spanwise_arena"
    with pytest.raises(sw.BlockBusyError, match="numpy allocates in the arena"):
        arena.close()
    assert array.sum() == 499_500
    del array
    gc.collect()
    arena.close()


def test_threads_that_compute_in_one_arena() -> None:
    arena, sums = sw.Arena(chunk_bytes=4096), []

    def compute(seed: int) -> None:
        with sw.ArenaAllocator(arena):
            rows = [np.full(50, seed) * 2 for _ in range(200)]
        sums.append(sum(int(row.sum()) for row in rows))

    threads = [threading.Thread(target=compute, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sums) == [0, 20_000, 40_000, 60_000]
    del threads
    gc.collect()
    arena.close()
