# SPDX-License-Identifier: Apache-2.0
"""An object of each public class that uses C memory, and arguments for all of its methods.

A world is the object, as `it`, and the objects around it. Tests derive the methods from the class
and find arguments by name, so new methods are covered automatically.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as World
from typing import Any

import numpy as np
import spanwise as sw
from spanwise.results.rows import Result

VALUES = {"Measure", "ObjectType", "Rows"}
"""Classes that hold nothing of C and are no results."""

OF_THE_RECORDER = {"RecordedPart"}
"""Made only in a program that is recorded."""

OBJECT_METHODS = {"__new__", "__init_subclass__", "__subclasshook__", "__class_getitem__"}


class NoArgumentError(Exception):
    """A method has a parameter that its world does not know."""


def _ops() -> Any:
    ops = np.zeros(4, sw.OPS_DTYPE)
    ops["kind"], ops["object"], ops["size"] = [0, 0, 1, 0], [0, 1, 0, 2], [40, 5000, 0, 100_000]
    ops["time_ns"] = [0, 1_000, 2_000, 3_000]
    return ops


def _heap() -> World:
    heap = sw.Heap(manual_clock=True)
    return World(it=heap, block=heap.alloc(64), ops=_ops(), size=100, seconds=1)


def _block() -> World:
    heap = sw.Heap()
    return World(it=heap.alloc(1 << 20), heap=heap, size=100)


def _collected() -> World:
    heap = sw.CollectedHeap()
    kind = heap.add_type("node", 16, [0, 1])
    a, b = heap.new(kind), heap.new(kind)
    a[0] = b
    edges = sw.linked_list(5)
    weak, pair, graph = heap.weak(a), heap.ephemeron(a, b), heap.build(kind, edges)
    return World(
        it=heap, type=kind, target=b, a=a, weak=weak, pair=pair, graph=graph, edges=edges, work=10,
        name="x", ns=1000, ms=10, size=16, finalizer=_ignore, key=a, value=b, word=0, layout=16,
        count=3,
    )  # fmt: skip


def _ignore(_: object) -> None:
    """A finalizer."""


def _part(of: Callable[[], World], owner: str, name: str) -> Callable[[], World]:
    """The world of an object that another world has, which goes on as its `owner`."""

    def make() -> World:
        world = of()
        setattr(world, owner, world.it)
        world.it = getattr(world, name)
        return world

    return make


def _roots() -> World:
    world = _collected()
    world.heap, world.it = world.it, world.it.roots(3)
    world.it[0] = world.a
    return world


def _frame() -> World:
    world = _collected()
    world.heap, world.it = world.it, world.it.frame(3)
    world.it.__enter__()
    world.it[0] = world.a
    return world


def _cache() -> World:
    heap = sw.Heap()
    cache = heap.open_cache()
    return World(it=cache, heap=heap, block=cache.alloc(100), size=100)


def _arena() -> World:
    arena, heap = sw.Arena(), sw.CollectedHeap()
    array, pointers = arena.zeros(10), arena.pointers(3)
    target = heap.new(heap.add_type("node", 8))
    return World(
        it=arena, array=array, pointers=pointers, heap=heap, target=target, shape=7, size=9,
        count=5, seconds=0,
    )  # fmt: skip


def _arena_allocator() -> World:
    arena = sw.Arena()
    it = sw.ArenaAllocator(arena)
    with it:
        array = np.arange(100)
    return World(it=it, arena=arena, array=array)


def _savepoint() -> World:
    arena = sw.Arena()
    return World(it=arena.savepoint(), arena=arena, array=arena.zeros(3))


def _tracker() -> World:
    tracker = sw.ArenaTracker(manual_clock=True)
    arena = sw.Arena(tag="tracked")
    path = Path(tempfile.gettempdir()) / f"tracked-{os.getpid()}.json"
    return World(it=tracker, arena=arena, events=tracker.events(), path=path, seconds=1)


def _pool() -> World:
    heap = sw.Heap()
    pool = sw.Pool(heap, 88, aged=True)
    return World(it=pool, block=pool.get(), heap=heap, collected=sw.CollectedHeap())


def _slabs() -> World:
    heap = sw.Heap()
    slabs = sw.TieredSlabs(heap)
    return World(it=slabs, slab=slabs.alloc(900), heap=heap, size=100)


def _slab_block() -> World:
    world = _slabs()
    world.slabs, world.it = world.it, world.slab
    return world


def _range(kind: Any) -> Callable[[], World]:
    def make() -> World:
        ranges = kind(1 << 20)
        return World(it=ranges, offset=ranges.alloc(4096), size=4096)

    return make


def _memory(kind: Any = sw.Memory) -> World:
    memory = kind(b"head", bytearray(b"body\nline"))
    other = sw.Memory(b"other")
    return World(it=memory, other=other, buffer=bytearray(100), index=0, file=_file())


def _file() -> int:
    return os.open(os.devnull, os.O_RDWR)


def _reader() -> World:
    memory = sw.Memory(b"\x01head", bytearray(b"body\nline" * 100))
    reader = sw.Reader(memory)
    return World(
        it=reader, memory=memory, size=3, buffer=bytearray(10), offset=2, file=_file(), lines=[b""]
    )


def _recyclable() -> World:
    allocator = sw.ScalableAllocator()
    memory = sw.RecyclableMemory(allocator)
    memory.next_n(100)[:1] = b"a"
    other = sw.Memory(b"other")
    return World(
        it=memory, allocator=allocator, other=other, block=allocator.alloc(5), size=10, index=0,
        buffer=bytearray(1000), file=_file(),
    )  # fmt: skip


def _scalable(make: Callable[[], Any] = sw.ScalableAllocator) -> World:
    allocator = make()
    return World(it=allocator, block=allocator.alloc(1000), size=100, file=_file())


def _scalable_block() -> World:
    world = _scalable()
    world.allocator, world.it, world.keep = world.it, world.block, 10
    return world


def _stack() -> World:
    stack = sw.Stack()
    low, high = stack.push(100), stack.push(50)
    pointer = stack.register(low, 4)
    inner = stack.register(low, 8, kept_in=high)
    return World(it=stack, target=low, high=high, pointer=pointer, inner=inner, size=4000, mark=0)


def _table() -> World:
    table = sw.SizeClassTable.custom([16, 32, 64, 1024], name="four")
    path = Path(tempfile.mkdtemp()) / "table.json"
    table.to_json(path)
    return World(
        it=table, size=50, sizes=[1, 50], classes=[16, 32], path=path, ratio=1.5, name="go"
    )


def _recording() -> World:
    folder = Path(tempfile.mkdtemp())
    recording = sw.Recording.from_ops(_ops(), folder / "one.swt")
    path = folder / "one.swt"
    return World(
        it=recording, path=path, paths=[path], to="perfetto", ops=_ops(), rows=2, size=40,
        other=recording, name="x", at="end", table="c16",
        flame=folder / "f.svg", report=folder / "r.html", tables=["go"], recordings=[recording],
        sites=[0],
    )  # fmt: skip


def _recordings() -> World:
    world = _recording()
    world.it = sw.RecordingSet([world.it])
    return world


WORLDS: dict[str, Callable[[], World]] = {
    "Arena": _arena,
    "ArenaAllocator": _arena_allocator,
    "ArenaTracker": _tracker,
    "Block": _block,
    "BuddyAllocator": _range(sw.BuddyAllocator),
    "CollectedHeap": _collected,
    "CollectedObject": _part(_collected, "heap", "a"),
    "Graph": _part(_collected, "heap", "graph"),
    "Heap": _heap,
    "Memory": _memory,
    "MemoryAllocator": lambda: _scalable(lambda: sw.MemoryAllocator(1 << 20)),
    "Pool": _pool,
    "RangeAllocator": _range(sw.RangeAllocator),
    "Reader": _reader,
    "Recording": _recording,
    "RecordingSet": _recordings,
    "RecyclableMemory": _recyclable,
    "ScalableAllocator": _scalable,
    "ScalableBlock": _scalable_block,
    "RootRange": _roots,
    "Savepoint": _savepoint,
    "ShadowFrame": _frame,
    "SizeClassTable": _table,
    "SlabBlock": _slab_block,
    "Stack": _stack,
    "StackBlock": _part(_stack, "stack", "target"),
    "StackPointer": _part(_stack, "stack", "inner"),
    "ThreadCache": _cache,
    "TieredSlabs": _slabs,
    "Ephemeron": _part(_collected, "heap", "pair"),
    "WeakObject": _part(_collected, "heap", "weak"),
}
"""By the name of the class of `it`."""


def missing() -> list[str]:
    """Public classes that neither have a world nor are values."""
    found = []
    for name in sw.__all__:
        one = getattr(sw, name)
        if not inspect.isclass(one) or issubclass(one, BaseException) or name in WORLDS:
            continue
        if not issubclass(one, Result) and name not in VALUES | OF_THE_RECORDER:
            found.append(name)
    return found


def own_names(cls: type) -> list[str]:
    """Return the methods and properties of a class that this package defines, and `__init__`."""
    names = set()
    for base in cls.__mro__:
        if base.__module__.startswith("spanwise"):
            names |= set(vars(base))
    return sorted(name for name in names if _is_public(cls, name))


def _is_public(cls: type, name: str) -> bool:
    if name.startswith("__") and name.endswith("__"):
        return name not in OBJECT_METHODS and callable(getattr(cls, name, None))
    return not name.startswith("_")


def call(world: World, name: str) -> Any:
    """Calls a method of `it` with arguments from the world, or reads the property or attribute.

    Raises:
        NoArgumentError: the world has no argument of that name.
    """
    static = inspect.getattr_static(type(world.it), name)
    found = getattr(world.it, name)
    if isinstance(static, property) or not callable(found):
        return found
    return found(*arguments(world, name, found))


DUNDERS: dict[str, Callable[[World], list[Any]]] = {
    "__init__": lambda world: _again.get(type(world.it).__name__, _none)(world),
    "__exit__": lambda _: [None, None, None],
    "__reduce_ex__": lambda _: [4],
    "__buffer__": lambda _: [0],
    "__getitem__": lambda _: [0],
    "__setitem__": lambda world: [0, getattr(world, "value", 0)],
    "__eq__": lambda world: [world.it],
    "__ne__": lambda world: [world.it],
    "__contains__": lambda world: [world.it],
}

_again: dict[str, Callable[[World], list[Any]]] = {
    "ArenaAllocator": lambda world: [world.arena],
    "BuddyAllocator": lambda _: [1 << 20],
    "RangeAllocator": lambda _: [1 << 20],
    "MemoryAllocator": lambda _: [1 << 20],
    "Pool": lambda world: [world.heap, 88],
    "ThreadCache": lambda world: [world.heap],
    "TieredSlabs": lambda world: [world.heap],
    "Reader": lambda world: [world.memory],
    "RecyclableMemory": lambda world: [world.allocator],
    "RecordingSet": lambda world: [world.recordings],
    "Recording": lambda world: [world.path],
}


def _none(_: World) -> list[Any]:
    return []


OTHER_NAMES = {
    ("Arena", "pin", "target"): "array",
    ("Pool", "age_with", "heap"): "collected",
    ("Recording", "to_flame", "path"): "flame",
    ("Recording", "to_html", "path"): "report",
    ("RecordingSet", "to_flame", "path"): "flame",
    ("RecordingSet", "to_html", "path"): "report",
}
"""What the world calls a parameter of a method, where that is not its name."""


def arguments(world: World, name: str, method: Any) -> list[Any]:
    """Return the arguments of a method: the world's value for each parameter without a default."""
    if name in DUNDERS:
        return DUNDERS[name](world)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = []
    cls = type(world.it).__name__
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind not in kinds or parameter.default is not parameter.empty:
            continue
        source = OTHER_NAMES.get((cls, name, parameter.name), parameter.name)
        if not hasattr(world, source):
            raise NoArgumentError(f"{cls}.{name}: give the world of {cls} an argument {source!r}")
        wanted.append(getattr(world, source))
    return wanted
