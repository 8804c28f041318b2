# SPDX-License-Identifier: Apache-2.0
"""An argument of a wrong type is named by the error, for each parameter of each public method."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager
from types import SimpleNamespace as World
from typing import Any

import pytest
import spanwise as sw
from spanwise._owner import Made

from tests.python.lives import worlds

ELSEWHERE = {"Recording", "RecordingSet"}
"""They hold nothing of C between calls; their arguments are tested with recordings."""

WITHOUT_ARGUMENTS = {
    *("Block", "CollectedObject", "Graph", "SlabBlock", "StackBlock", "StackPointer"),
    "WeakObject",
}
"""No public method of theirs has a parameter."""


class Odd:
    """What no parameter takes."""


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
    """A call in which one argument is wrong, and the others are right."""
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


def test_foreign_objects_are_named() -> None:
    """As the first users met it: an error from the inside said `'int' object has no attribute`."""
    calls: dict[str, Any] = {
        "heap": lambda: sw.Pool(5, 88),  # type: ignore[arg-type]
        "other": lambda: sw.Memory().append(5),  # type: ignore[arg-type]
        "file": lambda: sw.ScalableAllocator().read("x", 5),  # type: ignore[arg-type]
        "target": lambda: sw.Stack().register(5),  # type: ignore[arg-type]
        "block": lambda: sw.RecyclableMemory(None).add(5),  # type: ignore[arg-type]
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=f"^{name} must .* not (int|str)$"):
            call()
