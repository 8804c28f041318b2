# SPDX-License-Identifier: Apache-2.0
"""No use of a public class crashes Python, even while the collector frees a cycle."""

from __future__ import annotations

import gc
import json

import numpy as np
import pytest
import spanwise as sw

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
    done = python(ROOT / "tests/python/lives/attacks.py", cls, env={"MPLBACKEND": "Agg"})
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
    done = python(ROOT / "tests/python/lives/interruptions.py", cls)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Exception ignored" not in done.stderr, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    names = [name for name in worlds.own_names(getattr(sw, cls)) if "plot" not in name]
    assert [row["name"] for row in rows] == names
    assert sum(row["lines"] for row in rows) > len(names)
