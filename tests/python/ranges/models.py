# SPDX-License-Identifier: Apache-2.0
"""Ranges and the buddy against a map of bytes in plain Python: one run, and ways to draw steps.

Callers: `test_ranges.py`, and `long_models.py` for ten million steps.
"""

from __future__ import annotations

import re

import pytest
import spanwise as sw
from hypothesis import strategies as st
from spanwise.ranges.allocators import BACKENDS

SIZE = 64
TREES = BACKENDS[:3]
PLACED = [
    (backend, placement)
    for backend in TREES
    for placement in ("first", "best", "next", "worst")
    if placement != "best" or backend == "two-treaps"
]
KINDS = "aaaafffsbr"
ODD_SIZES = (-1, SIZE + 1, 1 << 62, (1 << 64) - 1)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(-1, SIZE + 1),
        st.one_of(st.integers(0, 9), st.sampled_from(ODD_SIZES)),
    ),
    max_size=60,
)
BUDDY_SIZES = (64, 48, 63, 5)

Step = tuple[str, int, int]
BAD = (sw.InvalidError, sw.OverlapError)


def steps_of(drawn: bytes) -> list[Step]:
    """Return steps of three bytes each, as many as Hypothesis can draw in a short time."""
    sizes = (*range(10), *ODD_SIZES)
    return [
        (
            KINDS[drawn[at] % len(KINDS)],
            drawn[at + 1] % (SIZE + 3) - 1,
            sizes[drawn[at + 2] % len(sizes)],
        )
        for at in range(0, len(drawn) - 2, 3)
    ]


MANY_STEPS = st.binary(min_size=3 * 40, max_size=3 * 400).map(steps_of)


class ByteMap:
    """A byte for each number: 1 if it is free, 0 if it is taken."""

    def __init__(self, placement: str, size: int = SIZE) -> None:
        self.free, self.placement, self.rover = bytearray(b"\x01" * size), placement, 0

    def holes(self) -> list[tuple[int, int]]:
        """Runs of free numbers: start and length."""
        return [(run.start(), run.end() - run.start()) for run in re.finditer(b"\x01+", self.free)]

    def find(self, size: int) -> int | None:
        """Return the offset of a request under the placement."""
        fit = [hole for hole in self.holes() if hole[1] >= size]
        if not fit:
            return None
        if self.placement == "best":
            return min(fit, key=lambda hole: hole[1])[0]
        if self.placement == "worst":
            return max(fit, key=lambda hole: hole[1])[0]
        if self.placement == "next":
            return next((start for start, _ in fit if start >= self.rover), fit[0][0])
        return fit[0][0]

    def mark(self, start: int, size: int, is_free: bool) -> None:
        """Mark bytes as allocated or free."""
        self.free[start : start + size] = bytes([is_free]) * size
        if not is_free:
            self.rover = start + size


def pairs(ranges: sw.RangeAllocator | sw.BuddyAllocator) -> list[tuple[int, int]]:
    return [(start, size) for start, size in ranges.holes().tolist()]


def run_ranges(backend: str, placement: str, steps: list[Step]) -> None:
    """Check results and holes against the map after each step."""
    model, taken = ByteMap(placement), list[tuple[int, int]]()
    with sw.RangeAllocator(SIZE, backend=backend, placement=placement) as ranges:
        for kind, start, size in steps:
            if kind in "as":
                step_alloc(ranges, model, size, taken)
            elif kind == "f" and taken:  # what one request got, or the first part of it
                at, length = taken.pop(start % len(taken))
                part = length if size <= 0 or size > length else size
                if not any(model.free[at : at + part]):
                    ranges.free(at, part)
                    model.mark(at, part, True)
            elif kind == "b":
                step_free(ranges, model, start, size)
            elif kind == "r" and size == 9:
                ranges.reset()
                model = ByteMap(placement)
                model.rover = 0
                taken.clear()
            holes = model.holes()
            assert pairs(ranges) == holes
            assert ranges.free_size == sum(model.free)
            assert ranges.largest_hole == max((hole[1] for hole in holes), default=0)
        ranges.verify()


def step_alloc(
    ranges: sw.RangeAllocator, model: ByteMap, size: int, taken: list[tuple[int, int]]
) -> None:
    """One request, good or bad."""
    if not 0 < size <= 1 << 62:
        with pytest.raises(sw.InvalidError):
            ranges.alloc(size)
        with pytest.raises(sw.InvalidError):
            ranges.find(size)
        return
    want = model.find(size)
    assert ranges.find(size) == want
    if want is None:
        with pytest.raises(sw.OutOfMemoryError):
            ranges.alloc(size)
        return
    assert ranges.alloc(size) == want
    model.mark(want, size, False)
    taken.append((want, size))


def step_free(ranges: sw.RangeAllocator, model: ByteMap, start: int, size: int) -> None:
    """Free any range: outside, empty, already free, or of several requests."""
    inside = start >= 0 and size > 0 and start + size <= SIZE
    if inside and not any(model.free[start : start + size]):
        ranges.free(start, size)
        model.mark(start, size, True)
        return
    with pytest.raises(BAD):
        ranges.free(start, size)


def run_buddy(size: int, unit_order: int, steps: list[Step]) -> None:
    """A block is a unit times a power of two, at a multiple of its size; it is found if there."""
    unit = 1 << unit_order
    units = size // unit
    free, taken = [True] * units, dict[int, int]()
    with sw.BuddyAllocator(size, unit=unit) as buddy:
        for kind, start, wanted in steps:
            if kind in "as" and 0 < wanted <= size:
                length = 1 << max(0, (-(-wanted // unit) - 1).bit_length())
                places = range(0, units - length + 1, length)
                fits = [at for at in places if all(free[at : at + length])]
                if not fits:
                    with pytest.raises(sw.OutOfMemoryError):
                        buddy.alloc(wanted)
                    continue
                at = buddy.alloc(wanted)
                assert at % unit == 0 and at // unit in fits
                free[at // unit : at // unit + length] = [False] * length
                taken[at] = wanted
            elif kind == "f" and taken:
                at = sorted(taken)[start % len(taken)]
                length = 1 << max(0, (-(-taken[at] // unit) - 1).bit_length())
                buddy.free(at, taken.pop(at))
                free[at // unit : at // unit + length] = [True] * length
            elif kind == "b" and taken.get(start) != wanted:
                with pytest.raises(BAD):
                    buddy.free(start, wanted)
            assert buddy.free_size == unit * sum(free)
            assert sum(hole[1] for hole in pairs(buddy)) == unit * sum(free)
        assert buddy.stats().tail == size % unit
        buddy.verify()
