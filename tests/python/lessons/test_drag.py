# SPDX-License-Identifier: Apache-2.0
"""Drag: by hand, and against a model that looks at each moment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.lessons.drag import group_drag


def test_by_hand() -> None:
    """Objects of 10 B live from 0 to 1 and from 1 to 5; the group holds 10*5 + 10*4."""
    assert group_drag([10, 10], [0, 1], [1, 5], group=1) == (50, 50)
    assert group_drag([10, 10], [0, 1], [1, 5], group=2) == (50, 90)
    assert group_drag([10, 10], [0, 1], [1, 5], group=2, group_bytes=15) == (50, 15 * 5 + 5 * 4)
    assert group_drag([10, 10], [0, 1], [1, 5], group=2, group_bytes=64).held == 64 * 5
    assert group_drag([10, 10], [1, 0], [5, 1], group=2).held_over_live == 1.8


def _by_moments(columns: Any, group: int, least: int) -> int:
    """Adds up what is held at each of 0, 1, 2, ..."""
    rows = sorted(zip(*columns, strict=True), key=lambda row: row[1])
    held = 0
    for start in range(0, len(rows), group):
        members = rows[start : start + group]
        for moment in range(members[0][1], max(death for _, _, death in members)):
            there = sum(size for size, birth, _ in members if birth <= moment)
            held += max(there, least)
    return held


def test_a_model_by_moments() -> None:
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
def test_bad_input(given: Any) -> None:
    with pytest.raises(sw.InvalidError):
        group_drag(*given, group=1)


def test_a_group_has_an_object() -> None:
    with pytest.raises(sw.InvalidError, match="group 0"):
        group_drag([1], [0], [1], group=0)
