# SPDX-License-Identifier: Apache-2.0
"""Robson's adversary, played against an allocator of ranges."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from spanwise import _lib
from spanwise.errors import InvalidError


class Places(Protocol):
    """Hands out parts of a range, as `RangeAllocator` does."""

    def alloc(self, size: int) -> int:
        """Takes `size` and returns its offset."""

    def free(self, offset: int, size: int) -> None:
        """Gives it back."""


class Extent(NamedTuple):
    """How far an allocator was driven.

    Attributes:
        live: most that was taken at once.
        used: the highest offset that was ever taken, plus one.
        bound: what every allocator needs against this adversary.
    """

    live: int
    used: int
    bound: float


def robson_bound(live: int, largest: int) -> float:
    """The range that every allocator without moves needs at worst, for sizes 1, 2, ... largest.

    live * (log2(largest) / 2 + 1) - largest + 1, the lower bound of J. M. Robson, "An estimate of
    the store size necessary for dynamic storage allocation", JACM 18(3), 1971.
    """
    return float(live * (np.log2(largest) / 2 + 1) - largest + 1)


def play_robson(places: Places, live: int, largest: int) -> Extent:
    """Frees so that the objects that stay are most in the way, with at most `live` taken.

    It begins with `live` objects of size 1. Before the round of size 2^i it frees each object that
    covers no offset equal to f modulo 2^i. Two values of f agree with the f of the round before; it
    takes the one with the larger sum, over the objects that stay, of 2^i minus the object's
    size. Then it asks for as many objects of 2^i as `live` allows.

    Args:
        places: an allocator of which nothing is taken, with more room than the bound.
        live: most that is taken at once.
        largest: the last size, a power of two, at most `live`.

    Raises:
        InvalidError: largest is no power of two, or above live.
        OutOfMemoryError: the allocator has too little room.
    """
    most, end = _lib.as_index(live, "live"), _lib.as_index(largest, "largest")
    if end == 0 or end & (end - 1) or end > most:
        raise InvalidError(f"largest {end}: must be a power of two, at most live, {most}")
    at = np.array([places.alloc(1) for _ in range(most)], np.int64)
    sizes = np.ones(most, np.int64)
    used, place, size = int((at + sizes).max()), 0, 1
    while size < end:
        half, size = size, 2 * size
        stays = [(f - at) % size < sizes for f in (place, place + half)]
        chosen = int((size - sizes[stays[1]]).sum() > (size - sizes[stays[0]]).sum())
        place += chosen * half
        kept = stays[chosen]
        for offset, length in zip(at[~kept].tolist(), sizes[~kept].tolist(), strict=True):
            places.free(offset, length)
        more = (most - int(sizes[kept].sum())) // size
        fresh = np.array([places.alloc(size) for _ in range(more)], np.int64)
        at = np.concatenate([at[kept], fresh])
        sizes = np.concatenate([sizes[kept], np.full(more, size, np.int64)])
        used = max(used, int((at + sizes).max()))
    return Extent(most, used, robson_bound(most, end))
