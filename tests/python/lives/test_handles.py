# SPDX-License-Identifier: Apache-2.0
"""Public objects: created by factories, never copied, with checked arguments and equal results."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import time
from contextlib import AbstractContextManager
from types import SimpleNamespace as World
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise._owner import Made, Uncopied
from spanwise.results.rows import Result

from tests.python.lives import worlds

FACTORIES = {
    "Block": "Heap.alloc",
    "CollectedObject": "CollectedHeap.new",
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


def test_all_classes_with_an_address_have_a_factory() -> None:
    made = {name for name in worlds.WORLDS if issubclass(getattr(sw, name), Made)}
    assert made | {"SizeClassTable"} == set(FACTORIES)
    for name, factory in FACTORIES.items():
        owner, method = factory.split(".")
        assert callable(getattr(getattr(sw, owner), method)), name


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
    if name in ("CollectedHeap", "Heap", "Reader"):
        return  # their blocks keep the old one
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
