# SPDX-License-Identifier: Apache-2.0
"""Extents of placements by hand and against a naive model; Robson's bound; drag of groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.lessons.placement import (
    LARGEST,
    LIFETIMES,
    PLACEMENTS,
    SIZES,
    UNIT,
    group_drag,
    measure_extent,
    play_robson,
    robson_bound,
    study,
)

from tests.python.helpers import python

# --- fragmentation --------------------------------------------------------------------------------


def test_by_hand() -> None:
    """Objects of 10 and 20; the 10 is freed; 15 does not fit into its hole and goes to the end."""
    assert measure_extent([10, 20, 15], [2, 9, 9], "first") == (35, 45)
    assert measure_extent([10, 20, 10], [2, 9, 9], "first") == (30, 30)
    assert measure_extent([10, 20, 30, 5], [3, 1, 9, 9], "first") == (40, 40)
    assert measure_extent([], [], "first") == (0, 0)


def naive_first_fit(sizes: list[int], lives: list[int]) -> int:
    """The end of the last taken place, in a list of places that grows."""
    taken: list[int] = []  # when the place is free again
    for step, (size, life) in enumerate(zip(sizes, lives, strict=True)):
        free = [until <= step for until in taken] + [True] * size
        at = next(i for i in range(len(free)) if all(free[i : i + size]))
        taken += [0] * max(0, at + size - len(taken))
        taken[at : at + size] = [step + life] * size
    return len(taken)


@pytest.mark.parametrize("backend", ["two-treaps", "btree", "treap"])
def test_first_fit_beside_a_naive_model(backend: str) -> None:
    rng = np.random.default_rng(4)
    sizes, lives = rng.integers(1, 9, 150).tolist(), rng.integers(1, 30, 150).tolist()
    found = measure_extent(sizes, lives, "first", backend=backend)
    assert found.extent == naive_first_fit(sizes, lives)


def test_a_study_has_all_combinations() -> None:
    rows = study(150)
    assert len(rows) == len(PLACEMENTS) * len(SIZES) * len(LIFETIMES)
    assert (rows["extent"] >= rows["live"]).all()
    assert (rows["needed"] == rows["extent"] / rows["live"]).all()
    queue = rows[(rows["lifetimes"] == "queue") & (rows["placement"] == "first")]
    assert (queue["needed"] == 1).all()  # nothing is freed in so few steps
    for name, draw in SIZES.items():
        drawn = draw(np.random.default_rng(1), 20_000)
        assert (drawn.min(), drawn.max()) == (32 if name == "two sizes" else UNIT, LARGEST[name])
    assert (study(150)["extent"] == rows["extent"]).all()
    assert str(rows).splitlines()[1].split() == list(rows.dtype.names)


def test_lessons_need_no_import_of_their_own() -> None:
    code = "import spanwise as sw; print(sw.lessons.placement.UNIT, dir(sw.lessons))"
    done = python("-c", code)
    assert done.stdout == "16 ['articles', 'cases', 'placement', 'service']\n"


def test_bad_arguments() -> None:
    for sizes, lives, placement in (
        ([1], [1], "random"),
        ([0], [1], "first"),
        ([1], [0], "first"),
        ([-1], [1], "first"),
        ([1, 2], [1], "first"),
    ):
        with pytest.raises(sw.InvalidError):
            measure_extent(sizes, lives, placement)
    with pytest.raises(sw.InvalidError):
        study(0)
    with pytest.raises(sw.UnsupportedError):
        measure_extent([1], [1], "best", backend="btree")


# --- Robson's adversary ---------------------------------------------------------------------------


def test_robsons_bound_by_hand() -> None:
    assert robson_bound(8, 1) == 8
    assert robson_bound(16, 4) == 16 * 2 - 3
    assert robson_bound(1024, 64) == 1024 * 4 - 63


@pytest.mark.parametrize("placement", ["first", "best", "next", "worst"])
@pytest.mark.parametrize(("live", "largest"), [(16, 1), (64, 8), (100, 4), (1024, 64)])
def test_no_placement_escapes(placement: str, live: int, largest: int) -> None:
    with sw.RangeAllocator(1 << 20, backend="two-treaps", placement=placement) as places:
        assert play_robson(places, live, largest).extent >= robson_bound(live, largest)
        assert places.size - places.free_size <= live
        places.verify()


class _Watched:
    """A bump allocator that checks the adversary's rules."""

    def __init__(self, live: int) -> None:
        self.taken: dict[int, int] = {}
        self.live, self.end = live, 0

    def alloc(self, size: int) -> int:
        at, self.end = self.end, self.end + size
        self.taken[at] = size
        assert sum(self.taken.values()) <= self.live
        return at

    def free(self, offset: int, size: int) -> None:
        assert self.taken.pop(offset) == size


def test_it_keeps_to_the_live_limit_and_frees_what_it_took() -> None:
    watched = _Watched(100)
    extent = play_robson(watched, 100, 16).extent
    assert extent == watched.end >= robson_bound(100, 16)


@pytest.mark.parametrize(("live", "largest"), [(16, 3), (16, 0), (16, 32)])
def test_robson_bad_sizes(live: int, largest: int) -> None:
    with sw.RangeAllocator(1 << 20) as places, pytest.raises(sw.InvalidError, match="largest"):
        play_robson(places, live, largest)


def test_robson_out_of_memory() -> None:
    with sw.RangeAllocator(70) as places, pytest.raises(sw.OutOfMemoryError):
        play_robson(places, 64, 16)


# --- drag -----------------------------------------------------------------------------------------


def test_drag_by_hand() -> None:
    """Objects of 10 B live from 0 to 1 and from 1 to 5; the group holds 10*5 + 10*4."""
    assert group_drag([10, 10], [0, 1], [1, 5], group=1) == (50, 50)
    assert group_drag([10, 10], [0, 1], [1, 5], group=2) == (50, 90)
    assert group_drag([10, 10], [0, 1], [1, 5], group=2, group_bytes=15) == (50, 15 * 5 + 5 * 4)
    assert group_drag([10, 10], [0, 1], [1, 5], group=2, group_bytes=64).held == 64 * 5
    assert group_drag([10, 10], [1, 0], [5, 1], group=2).held_over_live == 1.8


def _by_moments(columns: Any, group: int, least: int) -> int:
    """Add up the held bytes at 0, 1, 2, ..."""
    rows = sorted(zip(*columns, strict=True), key=lambda row: row[1])
    held = 0
    for start in range(0, len(rows), group):
        members = rows[start : start + group]
        for moment in range(members[0][1], max(death for _, _, death in members)):
            there = sum(size for size, birth, _ in members if birth <= moment)
            held += max(there, least)
    return held


def test_drag_by_moments() -> None:
    rng = np.random.default_rng(1)
    for group, least in ((1, 0), (3, 0), (7, 100), (7, 400), (50, 3000)):
        births = np.sort(rng.choice(200, 40, replace=False)).tolist()
        lives = rng.integers(0, 60, 40)
        columns = (rng.integers(1, 100, 40).tolist(), births, (births + lives).tolist())
        drag = group_drag(*columns, group=group, group_bytes=least)
        assert drag.held == _by_moments(columns, group, least)
        assert drag.live == sum(np.array(columns[0]) * lives)


@pytest.mark.parametrize(
    "given",
    [([], [], []), ([1], [0, 1], [2, 2]), ([1], [3], [2]), (1, 2, 3)],
)
def test_drag_bad_input(given: Any) -> None:
    with pytest.raises(sw.InvalidError):
        group_drag(*given, group=1)


def test_drag_group_of_zero() -> None:
    with pytest.raises(sw.InvalidError, match="group 0"):
        group_drag([1], [0], [1], group=0)
