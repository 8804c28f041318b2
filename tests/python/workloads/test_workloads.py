# SPDX-License-Identifier: Apache-2.0
"""Synthetic workloads: reproducible, and as documented, operation by operation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise import workloads

from tests.python.helpers import ALLOC, FREE


def live_after(recording: sw.Recording) -> Any:
    """Return the live objects after each operation."""
    kind = recording.ops["kind"]
    return np.cumsum((kind == ALLOC).astype(int) - (kind == FREE).astype(int))


def test_the_same_seed_gives_the_same_operations() -> None:
    makers: list[Callable[[int], sw.Recording]] = [
        lambda seed: sw.synthesize({8: 1, 100: 2}, [10, 1000], seed, count=2000),
        lambda seed: workloads.steady_replacement(100, 1000, seed=seed),
        lambda seed: workloads.phase_shift(500, seed=seed),
    ]
    for make in makers:
        assert (make(1).ops == make(1).ops).all()
        assert not np.array_equal(make(1).ops, make(2).ops)


def test_synthesize_keeps_lifetimes() -> None:
    recording = sw.synthesize([10, 20, 30], 5, count=1000)
    live = live_after(recording)
    assert live.max() == 6
    assert live[-1] == 6  # the last ones outlive the end
    births = np.flatnonzero(recording.ops["kind"] == ALLOC)
    assert len(births) == 1000
    assert set(recording.ops["size"][births].tolist()) == {10, 20, 30}
    assert recording.ops["object"].max() == 5  # ids are taken again


def test_synthesize_draws_from_everything() -> None:
    def geometric(rng: np.random.Generator, count: int) -> Any:
        return rng.geometric(0.01, count)

    for sizes in (16, [16], (16,), np.array([16]), {16: 1.0}):
        assert set(sw.synthesize(sizes, geometric, count=50).histogram()["size_bytes"]) == {16}
    assert len(sw.synthesize(geometric, 0, count=1000).histogram()) > 100


@pytest.mark.parametrize(
    ("sizes", "kind", "message"),
    [
        ([], ValueError, "sizes: give a list of at least one number"),
        (-1, ValueError, "sizes: -1 is negative; give 0 or more"),
        ({8: -1.0}, ValueError, "sizes: weights must be 0 or more, and not all of them 0"),
        ({8: 0.0}, ValueError, "sizes: weights must be 0 or more, and not all of them 0"),
        ([1.5], TypeError, "sizes must be 10 integers, not float64 of (10,)"),
        (
            lambda rng, n: np.zeros(3, int),
            TypeError,
            "sizes must be 10 integers, not int64 of (3,)",
        ),
        (True, TypeError, "sizes must be numbers, not bool"),
    ],
)
def test_bad_draws(sizes: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        sw.synthesize(sizes, 1, count=10)
    assert str(caught.value) == message


def test_phase_shift_shifts() -> None:
    recording = workloads.phase_shift(1000, freed=0.9, first=16, second=200)
    live = live_after(recording)
    assert (live[999], live[1899], live[-1]) == (1000, 100, 1100)
    assert recording.ops["size"][:1000].tolist() == [16] * 1000
    assert recording.ops["size"][-1000:].tolist() == [200] * 1000
    with pytest.raises(ValueError, match=r"freed 1\.5: give a fraction from 0 to 1"):
        workloads.phase_shift(10, freed=1.5)


@pytest.mark.parametrize("table", ["go", "c16", "pow2"])
def test_robson_forces_robsons_bound(table: str) -> None:
    """No allocator serves the adversary in less than M log2(n) / 2; live never exceeds M."""
    live_bytes, largest, smallest = 1 << 18, 4096, 16
    recording = workloads.robson(live_bytes, largest, table, smallest)
    assert recording.summary.peak_requested_bytes <= live_bytes
    ledger = recording.ledger(table, "end", options=sw.HeapOptions(decay_ms=math.inf))
    assert ledger.stats is not None
    bound = live_bytes * math.log2(largest / smallest) / 2
    assert ledger.stats.peak_held_bytes >= bound
    # Another table than the one it played against suffers less, or as much.
    assert sw.Recording.from_ops(np.array(recording.ops)).summary == recording.summary


@pytest.mark.parametrize("arguments", [(100, 4096), (1 << 20, 3000), (1 << 20, 4), (0, 16)])
def test_robson_wants_powers_of_two(arguments: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        workloads.robson(*arguments)


# --- workload models ------------------------------------------------------------------------------


def rows_of(recording: sw.Recording) -> list[tuple[int, int, int]]:
    """(kind, object, size) of each operation."""
    ops = recording.ops
    return list(zip(*(ops[n].tolist() for n in ("kind", "object", "size")), strict=True))


def given(*numbers: int) -> Any:
    """Return a source of these numbers."""
    return lambda _rng, count: np.array(numbers[:count])


# --- lifetimes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_every_object_lives_as_long_as_was_drawn(seed: int) -> None:
    """Births are counted at each free: one more than those that the object was to live through."""
    count = 300
    rng = np.random.default_rng(seed)
    lifetimes = rng.integers(0, 40, count)
    births: dict[int, int] = {}  # of live ids
    done = 0
    ended = set()
    for kind, object_id, _ in rows_of(sw.synthesize(16, given(*lifetimes), count=count)):
        if kind == ALLOC:
            assert object_id not in births
            births[object_id] = done
            done += 1
        else:
            born = births.pop(object_id)
            ended.add(born)
            assert done == born + 1 + lifetimes[born]
    assert ended == {i for i in range(count) if i + 1 + lifetimes[i] < count}


# --- mixes ----------------------------------------------------------------------------------------


def test_replacement_takes_the_place_of_what_it_frees() -> None:
    rows = rows_of(workloads.steady_replacement(5, 60, given(*range(1, 66)), seed=3))
    assert rows[:5] == [(ALLOC, i, i + 1) for i in range(5)]
    for step in range(60):
        freed, made = rows[5 + 2 * step : 7 + 2 * step]
        assert freed == (FREE, made[1], 0) and 0 <= made[1] < 5
        assert made == (ALLOC, made[1], 6 + step)
    assert {object_id for _, object_id, _ in rows[5:]} == set(range(5))
