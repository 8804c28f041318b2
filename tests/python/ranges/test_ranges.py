# SPDX-License-Identifier: Apache-2.0
"""Range allocators: cases by hand, bad arguments, threads. tests/unit has the models."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import spanwise as sw
from spanwise.ranges.allocators import BACKENDS

TREES = BACKENDS[:3]


def pairs(ranges: sw.RangeAllocator | sw.BuddyAllocator) -> list[tuple[int, int]]:
    return [(start, size) for start, size in ranges.holes().tolist()]


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", TREES)
def test_takes_the_front_and_joins(backend: str) -> None:
    with sw.RangeAllocator(100, backend=backend) as ranges:
        assert [ranges.alloc(10) for _ in range(10)] == [*range(0, 100, 10)]
        assert (ranges.find(1), ranges.largest_hole, pairs(ranges)) == (None, 0, [])
        ranges.free(25, 10)
        ranges.free(40, 10)
        assert pairs(ranges) == [(25, 10), (40, 10)]
        ranges.free(35, 5)
        assert pairs(ranges) == [(25, 25)]
        assert (ranges.free_size, ranges.largest_hole, ranges.find(25)) == (25, 25, 25)
        ranges.verify()
        assert ranges.stats().to_dict() | {"held_bytes": 0} == {
            "size": 100,
            "free_size": 25,
            "holes": 1,
            "allocs": 10,
            "frees": 3,
            "refused": 0,
            "waste": 0,
            "tail": 0,
            "held_bytes": 0,
        }
        ranges.reset()
        assert pairs(ranges) == [(0, 100)]


def test_placements() -> None:
    wanted = {"first": 10, "best": 80, "worst": 40, "next": 10, "default": 80}
    for placement, offset in wanted.items():
        with sw.RangeAllocator(100, backend="two-treaps", placement=placement) as ranges:
            ranges.alloc(100)
            for start, size in ((10, 20), (40, 30), (80, 12)):
                ranges.free(start, size)
            assert ranges.alloc(11) == offset, placement


def test_many_holes_are_listed() -> None:
    with sw.RangeAllocator(20_000) as ranges:
        ranges.alloc(20_000)
        for start in range(0, 20_000, 2):
            ranges.free(start, 1)
        assert pairs(ranges) == [(start, 1) for start in range(0, 20_000, 2)]


def test_a_buddy() -> None:
    with sw.BuddyAllocator(1 << 20) as buddy:
        assert [buddy.alloc(size * 1024) for size in (1, 1, 3)] == [0, 1024, 4096]
        assert buddy.stats().waste == 1024
        for offset, size in ((5120, 1024), (4096, 4096), (0, 2048)):
            with pytest.raises(sw.InvalidError, match="the offset and size of one"):
                buddy.free(offset, size)
        buddy.free(4096, 3 * 1024)
        with pytest.raises(sw.OverlapError):
            buddy.free(4096, 3 * 1024)
        assert repr(buddy) == "<BuddyAllocator unit 1,024, size 1,048,576, 1,046,528 free>"
        assert buddy.unit == 1024


def test_a_scope() -> None:
    with sw.RangeAllocator(100) as ranges:
        with ranges.scope(60) as outer, ranges.scope(40) as inner:
            assert (outer, inner, ranges.free_size) == (0, 60, 0)
            with pytest.raises(sw.OutOfMemoryError), ranges.scope(1):
                pass
        assert ranges.free_size == 100


# --- bad use --------------------------------------------------------------------------------------

WRONG_USE: list[tuple[type[Exception], str, Callable[[sw.RangeAllocator], object]]] = [
    (sw.InvalidError, "size 0", lambda r: r.alloc(0)),
    (sw.InvalidError, "size -1 is negative", lambda r: r.alloc(-1)),
    (sw.InvalidError, "size of 200 bits is too large", lambda r: r.alloc(1 << 199)),
    (sw.InvalidError, "size 0", lambda r: r.find(0)),
    (sw.OutOfMemoryError, "size 101 in a range of 100", lambda r: r.alloc(101)),
    (sw.OutOfMemoryError, "free are 90, the largest hole has 90", lambda r: r.alloc(91)),
    (sw.InvalidError, "free of 0 at 0", lambda r: r.free(0, 0)),
    (sw.InvalidError, "offset -1 is negative", lambda r: r.free(-1, 5)),
    (sw.InvalidError, "not inside the range", lambda r: r.free(95, 6)),
    (sw.InvalidError, "not inside the range", lambda r: r.free((1 << 63) - 1, 6)),
    (sw.OverlapError, "free already", lambda r: r.free(5, 10)),
    (TypeError, "size must be an integer", lambda r: r.alloc("5")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("error", "words", "call"), WRONG_USE)
def test_bad_use_changes_nothing(
    error: type[Exception], words: str, call: Callable[[sw.RangeAllocator], object]
) -> None:
    with sw.RangeAllocator(100) as ranges:
        ranges.alloc(10)
        with pytest.raises(error, match=words):
            call(ranges)
        assert pairs(ranges) == [(10, 90)]


def test_bad_options() -> None:
    with pytest.raises(
        sw.InvalidError, match="backend 'red': must be one of btree, treap, two-treaps"
    ):
        sw.RangeAllocator(10, backend="red")
    with pytest.raises(sw.UnsupportedError, match="btree has no best fit"):
        sw.RangeAllocator(10, placement="best")
    with pytest.raises(sw.InvalidError, match="a range of size 0"):
        sw.RangeAllocator(0)
    with pytest.raises(sw.InvalidError, match="unit 1000"):
        sw.BuddyAllocator(1 << 20, unit=1000)


def test_names_of_back_ends() -> None:
    """Two AVL trees by start and by size do what two treaps do: the smallest hole that fits."""
    with sw.RangeAllocator(100, backend="avl") as ranges:
        assert ranges.backend == "two-treaps"
        assert [ranges.alloc(size) for size in (30, 10, 20, 10, 30)] == [0, 30, 40, 60, 70]
        ranges.free(0, 30)
        ranges.free(40, 20)
        assert ranges.find(15) == 40
    with sw.RangeAllocator(1 << 14, backend="buddy") as ranges:
        assert (ranges.alloc(1500), ranges.alloc(1), ranges.backend) == (0, 2048, "buddy")
    with sw.BuddyAllocator(1 << 14) as blocks:
        assert blocks.backend == "buddy"
    with pytest.raises(sw.InvalidError, match="backend \\['avl'\\]: must be one of"):
        sw.RangeAllocator(100, backend=["avl"])  # type: ignore[arg-type]


def test_closed() -> None:
    ranges = sw.RangeAllocator(100)
    ranges.close()
    ranges.close()
    assert ranges.closed
    assert repr(ranges) == "<RangeAllocator 'btree', size 100, closed>"
    with pytest.raises(sw.StateError, match="RangeAllocator of size 100 is closed"):
        ranges.alloc(1)


# --- threads --------------------------------------------------------------------------------------


def in_a_thread(work: Callable[[], object]) -> BaseException | None:
    """Return the exception that the work raised in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).exception()


def test_another_thread_is_refused() -> None:
    ranges = sw.RangeAllocator(100)
    calls: list[Callable[[], object]] = [
        lambda: ranges.alloc(1),
        lambda: ranges.find(1),
        lambda: ranges.free(0, 1),
        ranges.holes,
        lambda: ranges.free_size,
        lambda: ranges.largest_hole,
        ranges.reset,
        ranges.close,
    ]
    assert [type(in_a_thread(call)) for call in calls] == [sw.OwnerError] * len(calls)
    assert (ranges.free_size, ranges.closed) == (100, False)
    advice = str(in_a_thread(ranges.reset))
    assert "adopt()" in advice and "locked=True" in advice and "sw_" not in advice

    def take_over() -> None:
        ranges.adopt()
        ranges.alloc(1)

    assert in_a_thread(take_over) is None
    with pytest.raises(sw.OwnerError):
        ranges.alloc(1)
    assert "of another thread" in repr(ranges)
    with sw.RangeAllocator(100, locked=True) as shared:
        assert in_a_thread(lambda: shared.alloc(1)) is None
        assert shared.free_size == 99
