# SPDX-License-Identifier: Apache-2.0
"""Calls every method of one class while objects around it are destroyed or ended.

Usage: attacks.py CLASS cycles      from a cycle of which Python's collector may already have
                                    destroyed the C objects
       attacks.py CLASS interrupted all objects are ended in the middle of a call

A signal handler, or a `__del__` that the collector calls, may run between any two lines. So each
method is called once per line of this package that it runs, and at a different line each time, all
objects around it are closed, freed, reset and pushed to. Each case prints one line before it
begins, which names the case after a crash, and one line of JSON with its outcome.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import sys
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from types import SimpleNamespace as World

import spanwise as sw

from tests.python.lives import worlds

PACKAGE = f"{Path(sw.__file__).parent}/"
LINES_MAX = 100
ENDS = (
    "close",
    "free",
    "reset",
    "recycle",
    "release",
    "unregister",
    "drain",
    "trim",
    "collect",
    "run_finalizers",
)
"""Methods that end something, which are called on everything around before a result is used."""


def outcome(world: World, name: str) -> str:
    """Call a method, end everything around it, use the result, and return the outcome."""
    try:
        result = worlds.call(world, name)
    except worlds.NoArgumentError:
        raise
    except Exception as error:
        result, said = None, f"{type(error).__name__}"
    else:
        said = f"returned {type(result).__name__}"
    end_all(world)
    use(result)
    return said


def end_all(world: World) -> None:
    """Close, free and reset everything around, as far as possible."""
    for one in list(vars(world).values()):
        for name in ENDS:
            end = getattr(one, name, None)
            if callable(end) and type(one).__module__.startswith("spanwise"):
                with suppress(Exception):
                    end(0) if (type(one), name) == (sw.Stack, "release") else end()


def use(result: Any) -> None:
    """Read and write the bytes of a result, and use it in other ways."""
    with suppress(Exception):
        repr(result)
    with suppress(Exception):
        result = result.view()
    if hasattr(result, "__next__"):
        with suppress(Exception):
            result = next(result)
    for one in result if isinstance(result, list) else [result]:
        with suppress(TypeError, ValueError, BufferError, sw.SpanwiseError):
            view = memoryview(one)
            bytes(view)
            if view.nbytes and not view.readonly and view.format == "B":
                view[0], view[-1] = 1, 1
        if isinstance(one, np.ndarray):
            one.copy()


def directly(make: Callable[[], World], name: str, note: Callable[[str], None]) -> World:
    """Make the call in ordinary code, for comparison."""
    world = make()
    note(outcome(world, name))
    return world


class InDel:
    """An object of the user in a reference cycle with everything that it uses."""

    world: World
    name: str
    note: Callable[[str], None]

    def __del__(self) -> None:
        self.note(outcome(self.world, self.name))


def in_del(make: Callable[[], World], name: str, note: Callable[[str], None]) -> World:
    """The call from `__del__` of an object in the cycle."""
    user, world = InDel(), make()
    user.world, user.name, user.note = world, name, note
    world.cycle = user
    return world


def _finally(world: World, name: str, note: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    finally:
        note(outcome(world, name))


def in_finally(make: Callable[[], World], name: str, note: Callable[[str], None]) -> World:
    """The call from the `finally` block of a suspended generator that the cycle has."""
    world = make()
    world.cycle = [_finally(world, name, note)]
    next(world.cycle[0])
    world.cycle.append(world)
    return world


def in_coroutine(make: Callable[[], World], name: str, note: Callable[[str], None]) -> World:
    """The call from a coroutine that is closed with the cycle."""
    world = make()

    async def wait() -> None:
        try:
            await _Never()
        finally:
            note(outcome(world, name))

    world.cycle = [wait(), world]
    world.cycle[0].send(None)
    return world


class _Never:
    def __await__(self) -> Generator[None, None, None]:
        yield


def suspended(make: Callable[[], World], name: str, note: Callable[[str], None]) -> World:
    """Enter or start the result of the call, and let the collector find it with everything else."""
    world = make()
    note("done")
    with suppress(Exception):
        result = worlds.call(world, name)
        begun = result.__enter__() if hasattr(result, "__exit__") else None
        if hasattr(result, "__next__"):
            begun = next(result)
        world.cycle = [world, result, begun]
    world.again = world
    return world


WAYS = (directly, in_del, in_finally, in_coroutine, suspended)


def cycles(cls: str) -> None:
    """Make each call from a cycle that is collected, in each way."""
    gc.disable()
    for name in worlds.own_names(getattr(sw, cls)):
        for way in WAYS:
            print(f"{cls}.{name} {way.__name__}", file=sys.stderr, flush=True)
            gc.freeze()  # the collections below only see new objects
            said: list[str] = []
            world = way(worlds.WORLDS[cls], name, said.append)
            it = world.it
            left = weakref.ref(it) if type(it).__weakrefoffset__ else None
            del world, it
            gc.collect()
            gc.collect()
            gone = left is None or left() is None
            row = {"name": name, "way": way.__name__, "said": said, "gone": gone}
            print(json.dumps(row), flush=True)


class Interruption:
    """Counts lines of the package, and acts at one of them."""

    def __init__(self, world: World, at: int) -> None:
        self.world = world
        self.left = at
        self.views: list[Any] = []

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        """As sys.settrace wants it."""
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                self.act()
        return self.trace

    def act(self) -> None:
        """Do what a handler could do: query, move and end objects."""
        for one in list(vars(self.world).values()):
            if isinstance(one, sw.Stack):
                with suppress(Exception):
                    one.push(1 << 16)
        end_all(self.world)


def interrupt(cls: str, name: str, at: int) -> bool:
    """Make one call, interrupted at its `at`-th line; return whether it has that many lines."""
    world = worlds.WORLDS[cls]()
    interruption = Interruption(world, at)
    result = None
    sys.settrace(interruption.trace)
    try:
        result = worlds.call(world, name)
        if hasattr(result, "__next__"):
            next(result)
    except worlds.NoArgumentError:
        raise
    except Exception as error:
        sys.settrace(None)
        assert not isinstance(error, AttributeError | NameError | AssertionError), repr(error)
    finally:
        sys.settrace(None)
    use(result)
    return interruption.left <= 0


def interrupted(cls: str) -> None:
    """Interrupt all methods at each of their lines."""
    gc.collect()
    gc.freeze()
    for name in worlds.own_names(getattr(sw, cls)):
        if "plot" in name:
            continue
        at = 1
        while at < LINES_MAX:
            print(f"{cls}.{name} line {at}", file=sys.stderr, flush=True)
            if not interrupt(cls, name, at):
                break
            at += 1
        gc.collect()
        print(json.dumps({"name": name, "lines": at - 1}), flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    warnings.simplefilter("ignore")
    {"cycles": cycles, "interrupted": interrupted}[sys.argv[2]](sys.argv[1])
    with sw.Heap() as heap:  # the library still works
        heap.alloc(100).view()[:] = 1
        heap.verify()
