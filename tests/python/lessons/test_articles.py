# SPDX-License-Identifier: Apache-2.0
"""Counts of the articles: verdicts, blocks, growth of slices."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.lessons.articles import (
    Blocks,
    blocks,
    books,
    claims,
    verdicts,
)

GO = sw.SizeClassTable.go()
ROOT = Path(__file__).parents[3]


def numbers(text: str) -> set[float]:
    """Return the numbers in a text, without their thousands separators."""
    return {float(word.replace(",", "")) for word in re.findall(r"\d[\d,]*\.?\d*", text)}


def test_a_reproduced_figure_is_the_articles_and_a_different_one_is_not() -> None:
    for claim in claims():
        if claim.verdict == "reproduced" and claim.value is not None:
            assert claim.ours == claim.value
        if claim.verdict == "different":
            assert claim.ours is not None and claim.ours != claim.value


def test_only_what_nobody_can_measure_here_has_no_figure() -> None:
    """Sizes of a service in production, and what needs several NUMA nodes."""
    without = {claim.case for claim in claims() if claim.verdict == "not reproducible"}
    assert without == {
        "long connections of the real service",
        "peak of the real service",
        "cross-NUMA allocations",
        "the long tail comes from slabs of another NUMA node (0.3 % of allocations)",
    }


def test_a_figure_is_on_the_page_that_its_reason_names() -> None:
    checked = 0
    for claim in claims():
        pages = re.findall(r"docs/measurements/[\w-]+\.md", claim.reason)
        if not pages or not isinstance(claim.ours, int | float) or claim.unit == "%":
            continue
        found = numbers("".join((ROOT / page).read_text(encoding="utf-8") for page in pages))
        assert {claim.ours, round(claim.ours * 1000, 6)} & found, claim  # ms are printed in us
        if not claim.unit.startswith("messages"):  # Go's throughput is computed from its ns
            assert numbers(claim.others) <= found, claim
        checked += 1
    assert checked > 100


def test_a_count_that_is_not_the_verdicts_is_refused() -> None:
    said = verdicts("04", {("[5]int64", "B/op"): 48})
    assert "[5]int64: 48 B/op; here 48" in said
    with pytest.raises(sw.InvalidError, match="counted 47"):
        verdicts("04", {("[5]int64", "B/op"): 47})
    with pytest.raises(sw.InvalidError, match="no claim of notebook"):
        verdicts("04", {("[6]int64", "B/op"): 48})
    with pytest.raises(sw.InvalidError, match="has no claim"):
        verdicts("99", {})


# --- blocks ---------------------------------------------------------------------------------------


def test_blocks_by_hand() -> None:
    """33 takes 48; 66 takes 80; 32769 takes five pages of 8 KiB."""
    assert blocks([33, 33, 66], GO) == Blocks(176, 3, 44)
    assert blocks([32769], GO) == Blocks(40960, 1, 8191)
    assert blocks([], GO) == Blocks(0, 0, 0)


@pytest.mark.parametrize(
    ("count", "together", "apart"),
    [
        (100, (4992, 2), (5696, 101)),
        (820, (47744, 2), (46144, 821)),
        (853, (47872, 2), (47856, 854)),
    ],
)
def test_books(count: int, together: tuple[int, int], apart: tuple[int, int]) -> None:
    assert books(count, GO, together=True)[:2] == together
    assert books(count, GO, together=False)[:2] == apart


def test_blocks_bad_sizes() -> None:
    with pytest.raises(sw.InvalidError):
        blocks([-1], GO)
    with pytest.raises(TypeError):
        blocks([1.5], GO)  # type: ignore[list-item]


# --- growth ---------------------------------------------------------------------------------------


def test_growth_of_go_one_by_one() -> None:
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


def test_growth_bad_input() -> None:
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
