# SPDX-License-Identifier: Apache-2.0
"""Range and stack allocators: cases by hand, bad use, threads, marks. tests/unit has the models."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.errors import (
    BlockBusyError,
    EscapeError,
    InvalidError,
    StackOverflowError,
    StateError,
)
from spanwise.ranges.allocators import BACKENDS

from tests.python.plots.drawn import marked, segments, steps

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


def test_many_holes_are_listed() -> None:
    with sw.RangeAllocator(20_000) as ranges:
        ranges.alloc(20_000)
        for start in range(0, 20_000, 2):
            ranges.free(start, 1)
        assert pairs(ranges) == [(start, 1) for start in range(0, 20_000, 2)]


def test_fragmentation_by_hand() -> None:
    """Holes of 10 and 30: a quarter of the free size is outside the largest."""
    with sw.RangeAllocator(100) as ranges:
        assert ranges.fragmentation == 0  # one hole
        ranges.alloc(100)
        assert ranges.fragmentation == 0  # none
        ranges.free(20, 10)
        ranges.free(50, 30)
        assert ranges.fragmentation == 0.25


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
    (sw.InvalidError, "size 0: give 1 or more", lambda r: r.alloc(0)),
    (sw.InvalidError, "size -1 is negative; give 1 or more", lambda r: r.alloc(-1)),
    (sw.InvalidError, "size of 200 bits is too large", lambda r: r.alloc(1 << 199)),
    (sw.InvalidError, "size 0", lambda r: r.find(0)),
    (sw.OutOfMemoryError, "size 101 is larger than the range of 100", lambda r: r.alloc(101)),
    (sw.OutOfMemoryError, "free are 90, the largest hole has 90", lambda r: r.alloc(91)),
    (sw.InvalidError, "size 0", lambda r: r.free(0, 0)),
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
    with pytest.raises(sw.InvalidError, match="size 0: give 1 or more"):
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
    with pytest.raises(sw.OwnerError, match=r"^the range belongs to another thread: "):
        ranges.alloc(1)
    assert "of another thread" in repr(ranges)
    with sw.RangeAllocator(100, locked=True) as shared:
        assert in_a_thread(lambda: shared.alloc(1)) is None
        assert shared.free_size == 99


# --- stacks ---------------------------------------------------------------------------------------


KIB = 1 << 10


@pytest.mark.parametrize("growth", ["copy", "chain"])
def test_a_released_block_is_an_error(growth: str) -> None:
    stack = sw.Stack(growth=growth)
    kept = stack.push(16)
    with stack.frame() as mark:
        assert mark == 16
        gone = stack.push(16)
        with pytest.raises(EscapeError, match="depth 16, above mark 16"):
            stack.release(mark, result=gone)
        assert not gone.released
    assert gone.released
    with pytest.raises(StateError, match="released"):
        gone.view()
    with pytest.raises(StateError, match="cannot be a result"):
        stack.release(0, result=gone)
    with pytest.raises(StateError, match="it was released"):
        stack.release(32)
    stack.release(16, result=kept)
    stack.close()
    assert kept.released
    with pytest.raises(StateError, match="closed"):
        stack.push(1)


def test_views_hold_the_stack_where_it_is() -> None:
    stack = sw.Stack(first_bytes=32, limit_bytes=64)
    view = stack.push(16).view()
    stack.push(16)  # there is room for it
    with pytest.raises(BlockBusyError, match="moves"):
        stack.push(1)
    with pytest.raises(BlockBusyError, match="released"):
        stack.release(0)
    with pytest.raises(BlockBusyError, match="ends"):
        stack.close()
    part = view[3:5]
    del view
    gc.collect()
    with pytest.raises(BlockBusyError):
        stack.trim()
    part[:] = b"ab"
    del part
    stack.push(1)
    stack.verify()
    stack.close()


def test_the_limit_has_a_name() -> None:
    stack = sw.Stack(first_bytes=16, limit_bytes=1024)
    stack.push(1000)
    with pytest.raises(StackOverflowError, match="limit is 1024") as caught:
        stack.push(17)
    assert isinstance(caught.value, MemoryError)
    assert caught.value.code == "OVERFLOW"
    assert stack.depth == 1008


@pytest.mark.parametrize("size", [0, -1, 1 << 63])
def test_wrong_sizes(size: int) -> None:
    with pytest.raises(InvalidError):
        sw.Stack().push(size)


def test_wrong_arguments() -> None:
    for arguments in ({"growth": "jump"}, {"first_bytes": 8}, {"limit_bytes": 24}):
        with pytest.raises(InvalidError):
            sw.Stack(**arguments)
    stack = sw.Stack()
    stack.push(1)
    stack.push(32)
    for mark in (-1, 8, 32):
        with pytest.raises(InvalidError):
            stack.release(mark)
    assert stack.depth == 48
    with pytest.raises(TypeError):
        stack.push(1.0)  # type: ignore[arg-type]


# --- registered pointers --------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [False, True])
def test_a_registered_pointer_follows_the_stack(inside: bool) -> None:
    stack = sw.Stack(first_bytes=64)
    slots = stack.push(16)
    text = stack.push(5)
    text.view()[:] = b"hello"
    pointer = stack.register(text, 1, kept_in=slots if inside else None, kept_at=8 if inside else 0)
    moved = {text.address}
    for growths in range(1, 8):  # a full stack of 64, 128, 256, ... bytes moves with the next push
        stack.push(stack.stats().held_bytes)
        moved.add(text.address)
        assert pointer.address == text.address + 1
        assert bytes(pointer.view()) == b"ello"
        stats = stack.stats()
        assert (stats.growths, stats.relocated, stats.registered) == (growths, growths, 1)
        if inside:  # its bytes moved along
            assert int.from_bytes(slots.view()[8:], "little") == pointer.address
    assert len(moved) > 1
    pointer.unregister()
    assert stack.stats().registered == 0
    stack.push(stack.stats().held_bytes)
    assert stack.stats().relocated == 7
    with pytest.raises(StateError, match="already unregistered"):
        pointer.unregister()
    with pytest.raises(StateError, match="register another"):
        _ = pointer.address
    stack.verify()


def test_unchecked_a_stale_pointer_raises_when_it_is_used() -> None:
    stack = sw.Stack()
    with stack.frame():
        pointer = stack.register(stack.push(16))
    again = stack.push(16)  # where it points
    assert pointer.registered and pointer.address == again.address
    with pytest.raises(StateError, match="released"):
        pointer.view()
    stack.close()
    assert not pointer.registered
    with pytest.raises(StateError):
        pointer.unregister()


def test_a_view_through_a_pointer_holds_the_stack() -> None:
    stack = sw.Stack(first_bytes=16)
    block = stack.push(16)
    pointer = stack.register(block, 4)
    view = pointer.view()
    with pytest.raises(BlockBusyError):
        stack.push(16)
    view.release()
    del view
    gc.collect()
    stack.push(16)


def test_a_pointer_whose_bytes_were_overwritten_leads_nowhere() -> None:
    stack = sw.Stack(first_bytes=32)
    slots, block = stack.push(16), stack.push(16)
    pointer = stack.register(block, kept_in=slots)
    slots.view()[:8] = b"\x10" * 8
    with pytest.raises(StateError, match="overwritten"):
        pointer.view()
    stack.push(100)  # what is no pointer into the stack stays as it is
    assert bytes(slots.view()[:8]) == b"\x10" * 8
    stack.verify()


def test_wrong_registrations() -> None:
    stack, other = sw.Stack(), sw.Stack()
    block, foreign = stack.push(20), other.push(20)
    for wrong in (-1, 20):
        with pytest.raises(InvalidError):
            stack.register(block, wrong)
    for wrong in (-8, 4, 16):
        with pytest.raises(InvalidError):
            stack.register(block, kept_in=block, kept_at=wrong)
    with pytest.raises(InvalidError, match="another stack"):
        stack.register(foreign)
    with pytest.raises(InvalidError, match="another stack"):
        stack.register(block, kept_in=foreign)
    stack.release(0)
    with pytest.raises(StateError):
        stack.register(block)
    with pytest.raises(StateError):
        stack.register(stack.push(8), kept_in=block)
    assert stack.stats().registered == 0


# --- pictures -------------------------------------------------------------------------------------


def test_the_holes_of_a_range() -> None:
    ranges = sw.RangeAllocator(1000)
    for size in (100, 300, 100, 200):
        ranges.alloc(size)
    ranges.free(100, 250)
    ax: Any = ranges.plot()
    parts = ((0, 100), (100, 350), (350, 700), (700, 1000))
    taken = (1, 0, 1, 0)
    assert steps(ax, "taken") == [(*part, 0, one) for part, one in zip(parts, taken, strict=True)]
    assert steps(ax, "free") == [(*part, one, 1) for part, one in zip(parts, taken, strict=True)]
    assert marked(ax) == {"largest hole, 300": (700, 1000)}
    assert ax.get_title() == "RangeAllocator, btree: 55.0 % free in 2 holes"
    ranges.alloc(300)
    ranges.alloc(250)
    full: Any = ranges.plot()
    assert steps(full, "taken") == [(0, 1000, 0, 1)] and not full.collections


def test_holes_narrower_than_a_pixel_are_shares_of_columns() -> None:
    """Each unit but the first of every fourth is free; the last 600 are one hole of 602."""
    ranges = sw.RangeAllocator(60_000)
    ranges.alloc(60_000)
    for start in range(0, 59_400, 4):
        ranges.free(start + 1, 3)
    ranges.free(59_400, 600)
    ax: Any = ranges.plot()
    found = np.array(steps(ax, "taken"))
    assert np.allclose(np.diff(found[:, :2]), 100) and len(found) == 600
    assert np.allclose(found[:594, 3], 0.25) and np.allclose(found[594:, 3], 0)
    assert marked(ax) == {"largest hole, 603": (59_397, 60_000)}
    ranges.alloc(603)  # now each hole has 3 units, 1 / 20,000 of the range
    narrow: Any = ranges.plot()
    (mark,) = narrow.collections
    assert mark.get_label() == "largest hole, 3" and mark.get_linewidth().tolist() == [2]
    assert segments(mark) == [[[2.5, 0], [2.5, 1]]]


def test_the_rest_of_a_buddy_is_neither_taken_nor_free() -> None:
    """100 has blocks of 4 and 2 units of 16 and 4 more; the smaller block is taken."""
    ranges = sw.BuddyAllocator(100, unit=16)
    ranges.alloc(20)
    ax: Any = ranges.plot()
    assert steps(ax, "taken") == [(0, 64, 0, 0), (64, 96, 0, 1)]
    assert steps(ax, "free") == [(0, 64, 0, 1), (64, 96, 1, 1)]
    assert marked(ax) == {"largest hole, 64": (0, 64)}
    assert ax.get_xlim() == (0, 100)
