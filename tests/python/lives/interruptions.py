# SPDX-License-Identifier: Apache-2.0
"""Ends all objects in the middle of each method of one class, as a signal handler may.

Usage: interruptions.py CLASS. A handler, or a `__del__` that the collector calls, may run between
any two lines. So each method is called once per line of this package that it runs, and at a
different line each time, all objects around it are closed, freed, reset and pushed to.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType
from types import SimpleNamespace as World
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import spanwise as sw

from tests.python.lives import attacks, worlds

PACKAGE = f"{Path(sw.__file__).parent}/"
LINES_MAX = 100


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
        attacks.end_all(self.world)


def run(cls: str, name: str, at: int) -> bool:
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
    attacks.use(result)
    return interruption.left <= 0


def main() -> None:
    """Interrupts all methods of the class that the command line names."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    gc.collect()
    gc.freeze()
    cls = sys.argv[1]
    for name in worlds.own_names(getattr(sw, cls)):
        if "plot" in name:
            continue
        at = 1
        while at < LINES_MAX:
            print(f"{cls}.{name} line {at}", file=sys.stderr, flush=True)
            if not run(cls, name, at):
                break
            at += 1
        gc.collect()
        print(json.dumps({"name": name, "lines": at - 1}), flush=True)
    with sw.Heap() as heap:
        heap.alloc(100).view()[:] = 1
        heap.verify()


if __name__ == "__main__":
    main()
