# SPDX-License-Identifier: Apache-2.0
"""Public objects: no use crashes Python; factories, refused copies, checked arguments."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import json
import pickle
import textwrap
import time
from contextlib import AbstractContextManager
from types import SimpleNamespace as World
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise._owner import Made, Uncopied
from spanwise.results.rows import Result

from tests.python.helpers import ROOT, python
from tests.python.lives import attacks, worlds

WITH_C_OBJECTS = sorted(set(worlds.WORLDS) - {"Recording", "RecordingSet"})
"""Those of recordings are local to one call; nothing else can end them."""

CLOSED_FIRST = {"Reader"}
"""Files: io.RawIOBase closes them in the same step in which a cycle's `__del__` methods run."""


def test_every_public_class_has_a_world() -> None:
    assert worlds.missing() == []


def test_arrays_hide_what_they_refer_to_from_the_collector() -> None:
    """`Life` depends on this."""
    hidden = np.empty((), object)
    hidden[()] = []
    assert not gc.is_tracked(hidden)
    assert hidden not in gc.get_referrers(hidden[()])


@pytest.mark.parametrize("cls", WITH_C_OBJECTS)
def test_every_method_from_a_cycle_that_is_collected(cls: str) -> None:
    """From `__del__`, `finally`, a coroutine: the same outcome as from ordinary code."""
    done = python(ROOT / "tests/python/lives/attacks.py", cls, "cycles", env={"MPLBACKEND": "Agg"})
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    names = worlds.own_names(getattr(sw, cls))
    ways = [way.__name__ for way in attacks.WAYS]
    assert [(row["name"], row["way"]) for row in rows] == [(n, w) for n in names for w in ways]
    assert "Exception ignored" not in done.stderr, done.stderr[-3000:]
    for row in rows:
        where = f"{cls}.{row['name']} {row['way']}"
        assert row["gone"], f"{where}: the object was never collected"
        direct = next(one["said"] for one in rows if one["name"] == row["name"])
        allowed = [direct, ["done"]] + ([["ValueError"]] if cls in CLOSED_FIRST else [])
        assert row["said"] in allowed, f"{where}: {row['said']}, but directly {direct}"


@pytest.mark.parametrize("cls", WITH_C_OBJECTS)
def test_every_method_while_everything_is_ended_at_any_of_its_lines(cls: str) -> None:
    done = python(ROOT / "tests/python/lives/attacks.py", cls, "interrupted")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Exception ignored" not in done.stderr, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    names = [name for name in worlds.own_names(getattr(sw, cls)) if "plot" not in name]
    assert [row["name"] for row in rows] == names
    assert sum(row["lines"] for row in rows) > len(names)


# --- programs that try to crash Python ------------------------------------------------------------


BEGIN = "import gc, os, sys, threading\nimport numpy as np\nimport spanwise as sw\n"

ATTACKS = {
    "words that are no addresses in an array of pointers": """
        heap, arena = sw.CollectedHeap(), sw.Arena()
        words = arena.pointers(8)
        arena.attach(heap)
        small = heap.new(heap.add_type("small", 16, [0, 1]))
        large = heap.new(heap.add_type("large", 100_000, [0, 1]))
        words[:] = [8, 2**63, small.address + 4, small.address + 4096, 2**64 - 1, id(heap), 1, 0]
        words[7] = large.address + 50_000
        large.free()
        heap.collect()
        heap.collect()
        heap.verify()
    """,
    "the interpreter ends while numpy's allocator is an arena": """
        arena, other, heap = sw.Arena(safe=True), sw.Arena(), sw.CollectedHeap()
        arena.free_with(heap.new(heap.add_type("owner", 16)))
        sw.ArenaAllocator(arena).__enter__()
        kept = [np.arange(1000), np.array([[], None, arena], dtype=object)]
        kept[1][0].append(kept)  # a cycle through the arena's memory
        pins = [sw.Arena.pin(kept[0].ctypes.data + i) for i in range(3)]
        pins[0].__enter__()
        heap.collect()
        heap.run_finalizers()
        threading.local().kept = sys.kept = kept
        sw.ArenaAllocator(other).__enter__()
        builtin = np.ones(10)
        class Late:
            def __del__(self):
                np.ones(100) + kept[0][:100]
        sys.late = Late()
        if os.fork() == 0:
            kept.append(np.ones(10))
            del arena, kept, pins
            gc.collect()
            sys.exit(0)
        assert os.wait()[1] == 0
    """,
    "arenas of objects end in threads, with pins, views and collections": """
        heap = sw.CollectedHeap(concurrent=True)
        kind = heap.add_type("owner", 16, [0])
        places, done = [0], threading.Event()

        def use(work):
            while not done.is_set():
                try:
                    work()
                except (sw.StateError, sw.InvalidError, sw.BlockBusyError):
                    pass

        def pin():
            with sw.Arena.pin(places[0]):
                memoryview(b"")

        def collect():
            heap.collect()
            heap.run_finalizers()

        def make():
            arena = sw.Arena(chunk_bytes=4096, tag="made")
            owner = heap.new(kind)
            arena.free_with(owner)
            if places[0] % 32:
                arena.attach(heap)
                arena.pointers(2)[0] = owner.address
            del owner
            places[0] = arena.alloc(10).ctypes.data
            for _ in range(5):
                arena.zeros(10)[:] = 1
            arena.close()

        threads = [threading.Thread(target=use, args=(one,)) for one in (pin, collect, make, make)]
        for thread in threads:
            thread.start()
        done.wait(2)
        done.set()
        for thread in threads:
            thread.join()
        collect()
        heap.verify()
    """,
    "threads collect while another closes": """
        def use(heap, kind):
            try:
                while True:
                    made = heap.new(kind)
                    made[0] = made
                    heap.weak(made)()
                    del made
                    heap.collect()
            except sw.HeapClosedError:
                pass

        for _ in range(10):
            heap = sw.CollectedHeap()
            kind = heap.add_type("node", 16, [0])
            threads = [threading.Thread(target=use, args=(heap, kind)) for _ in range(3)]
            for thread in threads:
                thread.start()
            heap.close()
            for thread in threads:
                thread.join()
    """,
    "the interpreter ends while daemon threads are in calls": """
        collected, heap = sw.CollectedHeap(), sw.Heap()
        graph = collected.build(collected.add_type("node", 16, [0, 1]), sw.random_graph(20_000, 2))
        begun = threading.Barrier(3)

        def collect():
            begun.wait()
            while True:
                collected.collect()

        def allocate():
            begun.wait()
            while True:
                heap.alloc(1000).view()[:] = 1

        for work in (collect, allocate):
            threading.Thread(target=work, daemon=True).start()
        begun.wait()
        for _ in range(20):
            heap.alloc(10).free()
    """,
    "a fork while another thread is inside of calls": """
        heap, stack, collected = sw.Heap(), sw.Stack(), sw.CollectedHeap()
        kind = collected.add_type("node", 16, [0])
        slabs = sw.TieredSlabs(heap)
        done = threading.Event()

        def use():
            while not done.is_set():
                stack.push(16)
                stack.release(0)
                heap.alloc(10).free()
                collected.new(kind)
                slabs.alloc(10).free()

        thread = threading.Thread(target=use)
        thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                heap.alloc(10).free()
                collected.new(kind)
                slabs.alloc(10)
                for it in (slabs, stack, collected, heap):
                    it.close()
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            assert status == 0, status
        done.set()
        thread.join()
    """,
    "edges that change while a graph is built": """
        heap = sw.CollectedHeap()
        kind = heap.add_type("node", 16, [0, 1])
        edges = sw.random_graph(100_000, 2)
        done = threading.Event()

        def change():
            while not done.is_set():
                edges[:] = 2**32 - 2
                edges[:] = 0

        thread = threading.Thread(target=change)
        thread.start()
        for _ in range(10):
            try:
                heap.build(kind, edges)
            except sw.InvalidError:
                pass
        done.set()
        thread.join()
        heap.collect()
        heap.verify()
    """,
    "operations that change while they run": """
        random = np.random.default_rng(1)
        ops = np.zeros(1 << 19, sw.OPS_DTYPE)
        done = threading.Event()

        def change():
            while not done.is_set():
                at = random.integers(0, len(ops), 1000)
                ops["kind"][at] = random.integers(0, 5, 1000)
                ops["object"][at] = random.integers(0, 1 << 20, 1000)
                ops["size"][at] = random.integers(0, 2000, 1000)
                ops["thread"][at] = random.integers(0, 9, 1000)
                ops["object"][at[:1]] = 2**32 - 1

        thread = threading.Thread(target=change)
        thread.start()
        for _ in range(10):
            with sw.Heap() as heap:
                try:
                    heap.run(ops, touch="ends")
                except sw.SpanwiseError:
                    pass
                heap.verify()
        done.set()
        thread.join()
    """,
    "the bytes of a registered pointer are overwritten": r"""
        stack = sw.Stack()
        low, high = stack.push(100), stack.push(64)
        pointer = stack.register(low, 4, kept_in=high, kept_at=8)
        view = high.view()
        view[8:16] = b"\xff" * 8
        del view
        stack.push(1 << 20)
        calls = [pointer.view, lambda: stack.release(0), lambda: pointer.address]
        for call in (*calls, pointer.unregister):
            try:
                call()
            except sw.StateError:
                pass
    """,
    "objects that outlive their modules": """
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

        keep = sys.late = Late()
    """,
    "objects of __new__ alone": """
        for name in sw.__all__:
            cls = getattr(sw, name)
            if isinstance(cls, type) and not issubclass(cls, BaseException):
                try:
                    bare = cls.__new__(cls)
                except TypeError:  # a tuple
                    continue
                for one in set(dir(cls)) - {"__class__", "__new__", "__init_subclass__"}:
                    try:
                        found = getattr(bare, one)
                        found() if callable(found) else repr(found)
                    except Exception:
                        pass
    """,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_python_survives(name: str) -> None:
    program = BEGIN + textwrap.dedent(ATTACKS[name])
    done = python("-X", "faulthandler", "-c", program)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]


# --- handles --------------------------------------------------------------------------------------


FACTORIES = {
    "Block": "Heap.alloc",
    "CollectedObject": "CollectedHeap.new",
    "Ephemeron": "CollectedHeap.ephemeron",
    "Graph": "CollectedHeap.build",
    "RootRange": "CollectedHeap.roots",
    "Savepoint": "Arena.savepoint",
    "ScalableBlock": "ScalableAllocator.alloc",
    "ShadowFrame": "CollectedHeap.frame",
    "SizeClassTable": "SizeClassTable.named",
    "SlabBlock": "TieredSlabs.alloc",
    "StackBlock": "Stack.push",
    "StackPointer": "Stack.register",
    "WeakObject": "CollectedHeap.weak",
}

REBUILT = {"Recording", "RecordingSet", "SizeClassTable"}
"""Their copies are made anew from what they say."""

HANDLES = sorted(set(worlds.WORLDS) - REBUILT)


def test_every_class_without_a_constructor_has_a_factory() -> None:
    made = {name for name in worlds.WORLDS if issubclass(getattr(sw, name), Made)}
    assert made | {"SizeClassTable"} == set(FACTORIES)


@pytest.mark.parametrize("name", sorted(FACTORIES))
@pytest.mark.parametrize("arguments", [(), (0, 256), (None, 0, 256), (1, 2, 3, 4, 5), ("c16",)])
def test_only_factories_create(name: str, arguments: tuple[Any, ...]) -> None:
    cls = getattr(sw, name)
    method = FACTORIES[name].rpartition(".")[2]
    with pytest.raises(TypeError, match=rf"cannot create a {name} directly; call .*{method}\("):
        cls(*arguments)


@pytest.mark.parametrize("name", HANDLES)
def test_handles_are_not_copied(name: str) -> None:
    assert issubclass(getattr(sw, name), Uncopied)
    it = worlds.WORLDS[name]().it
    said = f"{name} cannot be copied or pickled"
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=said):
            copying(it)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match=said):
            pickle.dumps(it, protocol)


@pytest.mark.parametrize("name", sorted(REBUILT))
def test_what_is_rebuilt_is_independent(name: str) -> None:
    it = worlds.WORLDS[name]().it
    twin = pickle.loads(pickle.dumps(it))
    assert type(twin) is type(it)
    assert repr(twin) == repr(it)


@pytest.mark.parametrize("name", HANDLES)
def test_what_c_relies_on_is_not_assigned(name: str) -> None:
    """Each property, and each attribute that an object has."""
    it = worlds.WORLDS[name]().it
    properties = [
        one
        for one in worlds.own_names(type(it))
        if isinstance(inspect.getattr_static(type(it), one), property)
    ]
    assert [one for one in getattr(it, "__dict__", {}) if not one.startswith("_")] == []
    slots = [one for cls in type(it).__mro__ for one in getattr(cls, "__slots__", ())]
    assert [one for one in slots if not one.startswith("_")] == []
    for one in properties:
        with pytest.raises(AttributeError):
            setattr(it, one, 1 << 40)


@pytest.mark.parametrize("name", HANDLES)
def test_an_object_is_made_once(name: str) -> None:
    """A second `__init__` would end the C object under its blocks and views."""
    world = worlds.WORLDS[name]()
    with pytest.raises(TypeError, match=rf"this {name} is made already|cannot create a {name}"):
        worlds.call(world, "__init__")


def test_a_forged_type_is_refused() -> None:
    with sw.CollectedHeap() as heap, sw.CollectedHeap() as other:
        kind = heap.add_type("node", 16, [0])
        larger = dataclasses.replace(kind, size_bytes=1 << 20, pointers=(1 << 16,))
        for call in (lambda: heap.new(larger), lambda: heap.build(larger, sw.linked_list(4))):
            with pytest.raises(sw.InvalidError, match="make it with add_type"):
                call()
        with pytest.raises(sw.InvalidError, match="belongs to heap"):
            other.new(kind)
        assert heap.new(pickle.loads(pickle.dumps(kind))).type == kind


# --- wrong types ----------------------------------------------------------------------------------


ELSEWHERE = {"Recording", "RecordingSet"}
"""They hold nothing of C between calls; their arguments are tested with recordings."""

WITHOUT_ARGUMENTS = {
    *("Block", "CollectedObject", "Graph", "SlabBlock", "StackBlock", "StackPointer"),
    *("RootRange", "Savepoint", "ShadowFrame", "WeakObject"),
}
"""No public method of theirs has a parameter."""


class Odd:
    """A value that no parameter accepts."""


def _callables(world: World, name: str) -> dict[str, Any]:
    """The constructor, and public methods, by their names."""
    cls = type(world.it)
    found = {}
    if not issubclass(cls, Made) and cls is not sw.SizeClassTable:
        found["__init__"] = cls
    for one in worlds.own_names(cls):
        if one.startswith("__") or "plot" in one:
            continue
        if not isinstance(inspect.getattr_static(cls, one), property):
            method = getattr(world.it, one)
            if callable(method):
                found[one] = method
    return found


def _parameters(method: Any) -> list[inspect.Parameter]:
    """Those that are not mere switches."""
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    every = inspect.signature(method).parameters.values()
    return [one for one in every if one.kind not in many]


def _call(world: World, name: str, method: Any, wrong: str) -> None:
    """Make a call with one wrong argument."""
    right = iter(worlds.arguments(world, name, method))
    placed, named = [], {}
    for one in _parameters(method):
        needed = one.default is one.empty and one.kind is not one.KEYWORD_ONLY
        value = next(right) if needed else one.empty
        if one.name == wrong:
            value = Odd()
        if value is not one.empty and one.kind is one.POSITIONAL_ONLY:
            placed.append(value)
        elif value is not one.empty:
            named[one.name] = value
    made = method(*placed, **named)
    if isinstance(made, AbstractContextManager):
        made.__enter__()


@pytest.mark.parametrize("cls", sorted(set(worlds.WORLDS) - ELSEWHERE))
def test_the_error_names_the_argument(cls: str) -> None:
    names = list(_callables(worlds.WORLDS[cls](), cls))
    called = 0
    for name in names:
        world = worlds.WORLDS[cls]()
        method = _callables(world, cls)[name]
        if cls == "ArenaTracker" and name == "__init__":
            world.it.close()  # there is one at a time
        for parameter in _parameters(method):
            if parameter.annotation == "bool":
                continue
            said = rf"^{parameter.name}\b|\b{parameter.name} must"
            with pytest.raises((TypeError, sw.InvalidError), match=said):
                _call(world, name, method, parameter.name)
            called += 1
        del world, method
    assert called or cls in WITHOUT_ARGUMENTS


# --- equality -------------------------------------------------------------------------------------


COUNT_THEMSELVES = {
    ("Heap", "stats"),  # takes the heap's lock, and counts that
    ("CollectedHeap", "collect"),
    ("CollectedHeap", "start"),
}
"""Calls that change what they report."""


def _results(world: World, cls: str) -> dict[str, Any]:
    """What methods and properties without a needed argument report."""
    found = {}
    for name in worlds.own_names(type(world.it)):
        if (cls, name) in COUNT_THEMSELVES or name.startswith("__") or "plot" in name:
            continue
        try:
            if worlds.arguments(world, name, getattr(world.it, name)):
                continue
            result = worlds.call(world, name)
        except (TypeError, worlds.NoArgumentError, sw.SpanwiseError):
            continue
        if isinstance(result, Result):
            found[name] = result
    return found


@pytest.mark.parametrize("cls", sorted(worlds.WORLDS))
def test_results_of_an_untouched_object_are_equal(cls: str) -> None:
    world = worlds.WORLDS[cls]()
    sw.Arena.trim()  # as `_results` does, of what other tests left
    first = _results(world, cls)
    ballast = np.ones(64 << 20, np.uint8)  # moves the RSS of the process
    until = time.perf_counter_ns() + 1000
    while time.perf_counter_ns() < until:  # and the clock
        pass
    again = _results(world, cls)
    assert first.keys() == again.keys()
    for name, result in first.items():
        assert result == again[name], f"{cls}.{name}"
        if type(result).__hash__ is not None:
            assert hash(result) == hash(again[name]), f"{cls}.{name}"
    assert ballast.sum() == 64 << 20
