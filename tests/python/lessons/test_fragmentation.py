# SPDX-License-Identifier: Apache-2.0
"""Room that placements need: by hand, beside a naive model, and in pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.lessons.fragmentation import (
    LARGEST,
    LIFETIMES,
    POLICIES,
    SIZES,
    UNIT,
    measure_extent,
    study,
)


def test_by_hand() -> None:
    """Of 10 and 20 side by side the 10 goes; 15 does not fit into its hole and goes behind."""
    assert measure_extent([10, 20, 15], [2, 9, 9], "first") == (35, 45)
    assert measure_extent([10, 20, 10], [2, 9, 9], "first") == (30, 30)
    assert measure_extent([10, 20, 30, 5], [3, 1, 9, 9], "first") == (40, 40)
    assert measure_extent([], [], "first") == (0, 0)


def test_the_last_hole_is_made_longer() -> None:
    """10, then 20 that goes: 30 needs the room of the 20 and 10 more."""
    assert measure_extent([10, 20, 30], [9, 1, 9], "worst") == (40, 40)


def test_placements_differ() -> None:
    """Holes of 30 and 10: 10 goes into the first or the smallest; then 30 fits, or does not."""
    sizes, lives = [30, 1, 10, 1, 10, 30], [4, 99, 2, 99, 99, 99]
    assert measure_extent(sizes, lives, "first").extent == 42 + 30
    assert measure_extent(sizes, lives, "best").extent == 42
    assert measure_extent(sizes, lives, "worst").extent == 42 + 30


def test_a_buddy_rounds() -> None:
    assert measure_extent([16, 17, 16], [9, 9, 9], "buddy") == (49, 64)
    assert measure_extent([16, 33, 16], [9, 9, 9], "buddy") == (65, 128)


def naive_first_fit(sizes: list[int], lives: list[int]) -> int:
    """The end of the last taken place, in a list of places that grows."""
    taken: list[int] = []  # when the place is free again
    for step, (size, life) in enumerate(zip(sizes, lives, strict=True)):
        free = [until <= step for until in taken] + [True] * size
        at = next(i for i in range(len(free)) if all(free[i : i + size]))
        taken += [0] * max(0, at + size - len(taken))
        taken[at : at + size] = [step + life] * size
    return len(taken)


@pytest.mark.parametrize("backend", ["two", "wide", "single"])
def test_first_fit_beside_a_naive_model(backend: str) -> None:
    rng = np.random.default_rng(4)
    sizes, lives = rng.integers(1, 9, 150).tolist(), rng.integers(1, 30, 150).tolist()
    found = measure_extent(sizes, lives, "first", backend=backend)
    assert found.extent == naive_first_fit(sizes, lives)


def test_a_study_has_all_combinations() -> None:
    rows = study(150)
    assert len(rows) == len(POLICIES) * len(SIZES) * len(LIFETIMES)
    assert (rows["extent"] >= rows["live"]).all()
    assert (rows["needed"] == rows["extent"] / rows["live"]).all()
    queue = rows[(rows["lifetimes"] == "queue") & (rows["policy"] == "first")]
    assert (queue["needed"] == 1).all()  # nothing is freed in so few steps
    for name, draw in SIZES.items():
        drawn = draw(np.random.default_rng(1), 20_000)
        assert (drawn.min(), drawn.max()) == (32 if name == "two sizes" else UNIT, LARGEST[name])
    assert (study(150)["extent"] == rows["extent"]).all()


def test_back_ends_with_a_placement_need_the_same() -> None:
    shared = ("first", "next", "worst")
    two = study(100, policies=shared)["extent"]
    for backend in ("wide", "single"):
        assert (study(100, policies=shared, backend=backend)["extent"] == two).all()


def test_pictures_have_a_bar_for_each_row() -> None:
    rows = study(50)
    ax: Any = sw.plots.extents(rows, "uniform")
    heights = sorted(patch.get_height() for patch in ax.patches)
    assert heights == sorted(rows[rows["sizes"] == "uniform"]["needed"].tolist())
    with pytest.raises(sw.InvalidError):
        sw.plots.extents(rows, "none")


def test_bad_arguments() -> None:
    for sizes, lives, policy in (
        ([1], [1], "random"),
        ([0], [1], "first"),
        ([1], [0], "first"),
        ([-1], [1], "first"),
        ([1, 2], [1], "first"),
    ):
        with pytest.raises(sw.InvalidError):
            measure_extent(sizes, lives, policy)
    with pytest.raises(sw.InvalidError):
        study(0)
    with pytest.raises(sw.UnsupportedError):
        measure_extent([1], [1], "best", backend="wide")
