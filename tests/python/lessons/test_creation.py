# SPDX-License-Identifier: Apache-2.0
"""What the collector does while many values are made, reckoned by hand from its pace."""

from __future__ import annotations

import pytest
import spanwise as sw
from spanwise.lessons.creation import create_many

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
    told = create_many(made, count, size=size, pointers=pointers)
    assert told.collections == collections_of(count, size) == 3
    assert told.events == {
        **{"cycle": 3, "pause": 3, "mark": 6, "sweep": 3, "assist": 3, "wait": 0, "finalize": 0}
    }
    assert 0 < told.collector_share < 1
    assert told.event_ns["cycle"] >= told.event_ns["pause"] >= told.event_ns["mark"]


def test_the_articles_twenty_million_by_reckoning() -> None:
    assert collections_of(20_000_000, 80) == 381


def test_steps_and_no_pace() -> None:
    told = create_many("structs", 200_000, in_steps=True)
    assert told.collections >= 3 and told.events["assist"] == told.events["pause"]
    assert create_many("structs", 60_000, percent=0).collections == 0
    assert create_many("structs", 60_000, percent=50).collections == 2


def test_bad_input() -> None:
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
