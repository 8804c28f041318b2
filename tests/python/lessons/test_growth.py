# SPDX-License-Identifier: Apache-2.0
"""Growth of arrays: capacities that are known from Go, and those of the other policies by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import spanwise as sw

GO = sw.SizeClassTable.go()


def test_go_one_by_one() -> None:
    """The capacities that Go 1.18 and later print for []int64."""
    found = sw.simulate_growth([1] * 2000, table=GO)
    known = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 848, 1280, 1792, 2560)
    assert found.capacities == known
    assert found.blocks == tuple(8 * n for n in known)
    assert found.copied_bytes == 8 * sum(known[:-1])
    assert found.waste_bytes == 8 * (2560 - 2000)


def test_merge_of_five_slices() -> None:
    """Joining 2, 3, 4, 5 and 3 ints takes 352 B in 4 blocks, or 144 B in one made beforehand."""
    found = sw.simulate_growth([2, 3, 4, 5, 3], table=GO)
    assert found.capacities == (2, 6, 12, 24)
    assert (found.allocated_bytes, found.allocs) == (352, 4)
    assert found.copied_bytes == 8 * (2 + 5 + 9)
    at_once = sw.simulate_growth([17], table=GO)
    assert (at_once.allocated_bytes, at_once.allocs, at_once.waste_bytes) == (144, 1, 8)


@pytest.mark.parametrize(
    ("policy", "capacities"),
    [
        ("1.5x", (1, 2, 3, 4, 6, 9, 13)),
        ("2x", (1, 2, 4, 8, 16)),
        ("golden", (1, 2, 3, 4, 6, 9, 14)),
        ("exact", tuple(range(1, 13))),
        ("go", (1, 2, 4, 8, 16)),
    ],
)
def test_twelve_elements_without_a_table(policy: str, capacities: tuple[int, ...]) -> None:
    found = sw.simulate_growth([1] * 12, policy=policy, element_bytes=10)
    assert found.capacities == capacities
    assert found.blocks == tuple(10 * n for n in capacities)
    assert found.held_bytes == 10 * capacities[-1]
    assert found.waste_bytes == 10 * (capacities[-1] - 12)
    assert found.copied_bytes == 10 * sum(n for n in capacities[:-1])


def test_rounding_leaves_a_part_of_an_element() -> None:
    found = sw.simulate_growth([1, 1], element_bytes=40, table=GO)
    assert (found.capacities, found.blocks) == ((1, 2), (48, 80))
    large = sw.simulate_growth([5000], table=GO)
    assert (large.blocks, large.waste_bytes) == ((40960,), 960)


def test_nothing_is_appended() -> None:
    for lengths in ([], [0, 0]):
        found = sw.simulate_growth(lengths)
        assert (found.length, found.blocks, found.waste_bytes, found.held_bytes) == (0, (), 0, 0)
    assert sw.simulate_growth([3, 0, 0]).blocks == (24,)


def test_bad_input() -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: sw.simulate_growth([1], policy="3x"),
        lambda: sw.simulate_growth([-1]),
        lambda: sw.simulate_growth([1], element_bytes=0),
        lambda: sw.simulate_growth([1 << 62], element_bytes=8),
        lambda: sw.simulate_growth([1 << 62, 1 << 62]),
    )
    for call in calls:
        with pytest.raises(sw.InvalidError):
            call()
    with pytest.raises(TypeError):
        sw.simulate_growth([1.5])  # type: ignore[list-item]


def test_repr_and_json() -> None:
    found = sw.simulate_growth([2, 3, 4, 5, 3], table=GO)
    text = "<Growth 'go' in go to 17 elements: 4 blocks, 352 B, 128 copied, 56 waste>"
    assert repr(found) == text
    assert found.to_dict()["allocated_bytes"] == 352
