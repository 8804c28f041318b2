# SPDX-License-Identifier: Apache-2.0
"""Objects of C are created by factories, not copied, and their addresses and sizes not changed."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise._owner import Made, Uncopied
from spanwise.gc.graphs import as_edges

from tests.python.lives import worlds

FACTORIES = {
    "Block": "Heap.alloc",
    "CollectedObject": "CollectedHeap.new",
    "Graph": "CollectedHeap.build",
    "ScalableBlock": "ScalableAllocator.alloc",
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


def test_a_block_is_not_forged() -> None:
    with sw.ScalableAllocator() as allocator:
        forged: Any = sw.ScalableBlock
        with pytest.raises(TypeError, match=r"call ScalableAllocator\.alloc\(\)"):
            forged(allocator, 0, 256)


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


def test_a_graph_is_built_from_a_copy_of_its_edges() -> None:
    """Another thread may write the caller's array after C has looked at it."""
    edges = sw.linked_list(5)
    assert not np.shares_memory(as_edges(edges), edges)
