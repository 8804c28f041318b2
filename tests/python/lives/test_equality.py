# SPDX-License-Identifier: Apache-2.0
"""Two results of one untouched object are equal, whatever the process does meanwhile."""

from __future__ import annotations

import time
from types import SimpleNamespace as World
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.results.values import Result

from tests.python.lives import worlds

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


def test_the_rss_of_ledgers_takes_no_part() -> None:
    with sw.Heap() as heap:
        heap.alloc(100)
        one = heap.ledger()
        ballast = np.ones(64 << 20, np.uint8)
        other = heap.ledger()
        assert one.rss_bytes != other.rss_bytes
        assert one == other and hash(one) == hash(other)
        heap.alloc(100)
        assert heap.ledger() != one
        assert heap.map() == heap.map()
        assert ballast.sum() == 64 << 20


def test_the_clock_of_trackers_takes_no_part() -> None:
    with sw.ArenaTracker() as tracker, sw.Arena(tag="old"):
        one, old = tracker.totals(), tracker.leaks()
        until = time.perf_counter_ns() + 100_000
        while time.perf_counter_ns() < until:
            pass
        other, older = tracker.totals(), tracker.leaks()
        assert one.now_ns < other.now_ns and old[0].age_ns < older[0].age_ns
        assert one == other and old == older
