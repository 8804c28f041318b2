# SPDX-License-Identifier: Apache-2.0
"""Progress bars: by default on a terminal and in a notebook, for work of more than a second."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Step = Callable[[int], object]
"""Called with the number of steps done since the last call."""

Progress: TypeAlias = "bool | Step | None"
"""What the argument `progress` takes: a function to be called with the number of steps done since
its last call; True: a bar at once; False: none; None: a bar on a terminal or in a notebook, if the
work takes more than a second."""


def no_step(_count: int) -> None:
    """Shows no progress."""


@contextmanager
def progress_bar(progress: Progress, total: int | None, what: str, unit: str) -> Iterator[Step]:
    """Gives what is to be called with steps done.

    Args:
        progress: as the user gave it.
        total: number of steps; None: not known, so they are counted and no bar is filled. The
            estimate of the time that is left holds only if all steps take about equally long.
        what: is being done, before the bar.
        unit: plural noun of the steps.
    """
    if callable(progress):
        yield progress
        return
    notebook = "ipykernel" in sys.modules
    wanted = (notebook or sys.stderr.isatty()) if progress is None else progress
    if not wanted:
        yield no_step
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns of widgets that are not installed
        module = importlib.import_module("tqdm.auto" if notebook else "tqdm")
        bar = module.tqdm(  # it warns, too, where the system refuses its thread
            total=total,
            desc=what,
            unit=f" {unit}",
            unit_scale=total is None or total >= 10_000,
            delay=0 if progress else 1,
            leave=bool(progress),
            file=sys.stderr,
        )
    with bar:
        yield bar.update
