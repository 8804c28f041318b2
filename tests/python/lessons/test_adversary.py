# SPDX-License-Identifier: Apache-2.0
"""Robson's adversary: the bound by hand, allocators that cannot escape it, one that cheats."""

from __future__ import annotations

import pytest
import spanwise as sw
from spanwise.lessons.adversary import play_robson, robson_bound


def test_the_bound_by_hand() -> None:
    assert robson_bound(8, 1) == 8
    assert robson_bound(16, 4) == 16 * 2 - 3
    assert robson_bound(1024, 64) == 1024 * 4 - 63


@pytest.mark.parametrize("placement", ["first", "best", "next", "worst"])
@pytest.mark.parametrize(("live", "largest"), [(16, 1), (64, 8), (100, 4), (1024, 64)])
def test_no_placement_escapes(placement: str, live: int, largest: int) -> None:
    with sw.RangeAllocator(1 << 20, backend="two", placement=placement) as places:
        extent = play_robson(places, live, largest)
        assert extent.used >= extent.bound == robson_bound(live, largest)
        assert places.size - places.free_size <= live
        places.verify()


def test_no_buddy_escapes() -> None:
    with sw.BuddyAllocator(1 << 20, unit=1) as places:
        extent = play_robson(places, 512, 32)
        assert extent.used >= extent.bound


class _Watched:
    """Bumps for ever, and checks what the adversary may do."""

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
    extent = play_robson(watched, 100, 16)
    assert extent.used == watched.end >= extent.bound


@pytest.mark.parametrize(("live", "largest"), [(16, 3), (16, 0), (16, 32)])
def test_bad_sizes(live: int, largest: int) -> None:
    with sw.RangeAllocator(1 << 20) as places, pytest.raises(sw.InvalidError, match="largest"):
        play_robson(places, live, largest)


def test_too_little_room() -> None:
    with sw.RangeAllocator(70) as places, pytest.raises(sw.OutOfMemoryError):
        play_robson(places, 64, 16)
