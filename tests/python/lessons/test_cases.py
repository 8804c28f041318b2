# SPDX-License-Identifier: Apache-2.0
"""The cases of the articles: exact counts (by hand and of Go), verdicts, texts, games."""

from __future__ import annotations

from typing import Any

import pytest
import spanwise as sw
from spanwise.lessons import cases
from spanwise.lessons.articles import books, claims
from spanwise.lessons.cases import (
    CASES,
    GAME_POLICIES,
    Case,
    Verdict,
    create_many,
    play_game,
    run_case,
    sum_lengths,
)

COSTS = {(cost.case.name, cost.case.books): cost for cost in cases.run_cases()}
GO = sw.SizeClassTable.go()

EXACT = {
    ("stack_copied", 0): (0, 0, 0),
    ("stack_shared_up", 0): (8, 1, 0),
    ("stack_shared_down", 0): (0, 0, 0),
    ("struct_copied", 0): (0, 0, 0),
    ("struct_shared_up", 0): (80, 1, 0),
    ("array_of_five", 0): (48, 1, 8),
    ("whole_pages", 0): (40960, 1, 8191),
    ("variable_too_large", 0): (17 * 8192, 1, 8191),
    ("merge_in_one_loop", 0): (352, 4, 8),
    ("merge_in_two_loops", 0): (144, 1, 8),
    ("merge_unzeroed", 0): (144, 1, 8),
    ("filter_into_another", 0): (8192, 1, 0),
    ("filter_in_place", 0): (0, 0, 0),
    ("books_in_one_block", 100): (4992, 2, 192),
    ("books_in_many_blocks", 100): (5696, 101, 896),
    ("books_in_one_block", 820): (47744, 2, 8384),
    ("books_in_many_blocks", 820): (46144, 821, 6784),
    ("concat", 0): (176, 3, 44),
    ("npc_without_pool", 0): (96, 1, 8),
    ("npc_in_list_pool", 0): (48, 1, 8),
    ("npc_in_capped_pool", 0): (0, 0, 0),
}
"""Bytes, allocations and waste of one operation."""


def test_every_case_is_counted_and_in_the_order_of_c() -> None:
    assert set(COSTS) == set(EXACT)
    assert list(dict.fromkeys(case.name for case in CASES)) == list(cases.C_NAMES)


def test_the_articles_counted_the_same() -> None:
    """Each figure of bytes or allocations that an article prints of a case is ours."""
    compared = 0
    for cost in COSTS.values():
        for claim in claims():
            ours = {"B/op": cost.allocated_bytes, "allocs/op": cost.allocs}.get(claim.unit)
            if claim.case == cost.case.claim and ours is not None and cost.case.claim:
                assert ours == claim.value
                compared += 1
    assert compared == 30


def test_times_of_go_are_those_of_the_cases() -> None:
    times = {case.claim: case.go_ns for case in CASES if case.claim}
    timed = [claim for claim in claims() if claim.unit == "ns/op" and claim.case in times]
    assert len(timed) == 13
    assert all((one.verdict, one.ours) == ("different", times[one.case]) for one in timed)


@pytest.mark.parametrize("together", [True, False])
def test_books_are_those_of_the_table(together: bool) -> None:
    """C allocates what the arithmetic predicts, around the size where the claim changes."""
    name = "books_in_one_block" if together else "books_in_many_blocks"
    for count in (1, 204, 819, 820, 852, 853, 854, 2000):
        cost = run_case(Case(name, "", Verdict("heap", "shared up"), None, count), counted_ops=1)
        assert cost[2:] == books(count, GO, together=together)


def test_a_verdict_of_the_heap_is_a_case_that_allocates() -> None:
    for cost in COSTS.values():
        assert (cost.case.verdict.place == "heap") == (cost.allocs > 0)


def test_times_are_taken_and_shown() -> None:
    case = CASES[4]
    cost = run_case(case, ops=1000)
    assert cost.ns is not None and cost.ns > 0
    text = cases.as_text([cost._replace(ns=12.34), COSTS["concat", 0]])
    assert text.splitlines() == [
        "case                ns  Go  article  B/op  article  allocs  article  waste  why",
        "struct_shared_up  12.3  28     52.6    80       80       1        1      0"
        "  heap: shared up",
        "concat               -  58        -   176      176       3        3     44"
        "  heap: shared up",
    ]


def test_lengths_are_added_with_care() -> None:
    assert sum_lengths([2, 3, 4, 5, 3]) == 17
    assert sum_lengths([]) == 0
    top = (1 << 63) - 1
    assert sum_lengths([top // 8]) == top // 8
    for wrong in ([top // 8, 1], [top, top, top], [top]):
        with pytest.raises(sw.LimitError):
            sum_lengths(wrong)
    with pytest.raises(sw.InvalidError):
        sum_lengths([-1])


def test_bad_cases() -> None:
    one = CASES[0]
    for wrong in (one._replace(name="none"), one._replace(books=-1)):
        with pytest.raises(sw.InvalidError):
            run_case(wrong)
    bad: tuple[dict[str, Any], ...] = (
        {"ops": -1},
        {"counted_ops": 0},
        {"counted_ops": -1},
        {"ops": 1 << 41},
    )
    for numbers in bad:
        with pytest.raises(sw.InvalidError):
            run_case(one, **numbers)


# --- games ----------------------------------------------------------------------------------------

SHORT: dict[str, Any] = {
    "frames": 120,
    "spawned": 50,
    "wave": 400,
    "wave_frames": 30,
    "life_frames": 10,
}


def test_games_differ_in_what_they_allocate_only() -> None:
    played = {policy: play_game(policy, **SHORT) for policy in GAME_POLICIES}
    spawned = 4 * 400 + 116 * 50
    for one in played.values():
        assert (one.spawned, one.checksum) == (spawned, played["none"].checksum)
        assert one.frame_ns.shape == (120,)
        assert one.frame_us(50) <= one.frame_us(99) <= one.frame_us(100)
        assert one.frame_us(100) == one.frame_ns.max() / 1000
    assert (played["none"].allocs, played["none"].idle) == (spawned, 0)
    assert played["none"].allocated_bytes == 96 * spawned  # 88 B and a link
    assert played["capped"].allocs < played["list"].allocs
    capped = play_game("capped", capacity=10, **SHORT)
    assert capped.idle <= 10
    assert played["capped"].allocs < capped.allocs < spawned


def test_pools_save_collections_as_the_verdict_says() -> None:
    counts = [play_game(policy).collections for policy in ("none", "list", "capped", "aged")]
    assert counts == [7, 3, 0, 0]
    ours = {claim.case: claim.ours for claim in claims()}
    said = ours["a pool of objects keeps the frames of a game smooth"]
    assert said == "7 collections without a pool, 3 with a list, 0 with a pool of objects"


def test_an_aged_pool_is_emptied_by_collections() -> None:
    """Waves far apart: with collections in between their NPCs are made anew."""
    still = {**SHORT, "frames": 400, "spawned": 0, "wave": 300, "wave_frames": 100}
    kept = play_game("aged", percent=0, **still)
    assert (kept.collections, kept.allocs, kept.idle) == (0, 300, 300)


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": "all"},
        {"frames": 0},
        {"frames": -1},
        {"life_frames": 0},
        {"life_frames": 257},
        {"spawned": -1},
        {"seed": 1 << 32},
        {"wave": 1 << 60},
    ],
)
def test_bad_games(wrong: dict[str, Any]) -> None:
    with pytest.raises(sw.InvalidError):
        play_game(**{"policy": "none", **wrong})


# --- many values ----------------------------------------------------------------------------------

LEAST = 4 << 20
"""Bytes between two collections where little lives, at 100 percent."""


def collections_of(count: int, size: int) -> int:
    """A cycle before each object with which so many bytes are reached; that one is not counted."""
    return count // -(-LEAST // size)


def test_copies_take_nothing_of_a_collector() -> None:
    made = create_many("copies", 10_000)
    assert (made.collections, sum(made.events.values()), made.collector_share) == (0, 0, 0)
    assert made.ns > 0 and made.ns_each == made.ns / 10_000


@pytest.mark.parametrize(
    ("made", "size", "pointers"),
    [("structs", 80, ()), ("objects", 16, ()), ("objects", 64, (0, 7)), ("objects", 80, (3, 5, 7))],
)
def test_collections_follow_from_the_bytes(made: str, size: int, pointers: tuple[int, ...]) -> None:
    count = 3 * -(-LEAST // size) + 5
    reported = create_many(made, count, size=size, pointers=pointers)
    assert reported.collections == collections_of(count, size) == 3
    assert reported.events == {
        **{"cycle": 3, "pause": 3, "mark": 6, "sweep": 3, "assist": 3, "wait": 0, "finalize": 0}
    }
    assert 0 < reported.collector_share < 1
    assert reported.event_ns["cycle"] >= reported.event_ns["pause"] >= reported.event_ns["mark"]


def test_creation_in_steps_and_without_pace() -> None:
    reported = create_many("structs", 200_000, in_steps=True)
    assert reported.collections >= 3 and reported.events["assist"] == reported.events["pause"]
    assert create_many("structs", 60_000, percent=0).collections == 0
    assert create_many("structs", 60_000, percent=50).collections == 2


def test_creation_bad_input() -> None:
    for wrong in (
        {"made": "books"},
        {"count": 0},
        {"size": 12},
        {"size": 0},
        {"pointers": (64,)},
        {"pointers": (-1,)},
        {"size": 16, "pointers": (2,)},
        {"percent": 2**32},
    ):
        with pytest.raises(sw.InvalidError):
            create_many(**{"made": "objects", "count": 10, **wrong})  # type: ignore[arg-type]
