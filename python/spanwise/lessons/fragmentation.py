# SPDX-License-Identifier: Apache-2.0
"""How much room allocators of ranges need beyond what is live: placements x sizes x lifetimes.

Wilson and others, "Dynamic storage allocation: a survey and critical review" (1995), ask for real
traces, because drawn ones forget that sizes and lifetimes hang together. What is drawn here serves
to compare placements with each other and with Robson's bound, not to predict a program.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise.errors import InvalidError
from spanwise.lessons.adversary import robson_bound
from spanwise.ranges.allocators import BuddyAllocator, RangeAllocator

UNIT = 16
"""The smallest size, of which all sizes are multiples."""

_ROOM = 1 << 40

Draw = Callable[[np.random.Generator, int], NDArray[np.int64]]


def _log_uniform(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    return np.exp(rng.uniform(0, np.log(256), count)).astype(np.int64) * UNIT


SIZES: dict[str, Draw] = {
    "uniform": lambda rng, count: rng.integers(1, 65, count) * UNIT,
    "small ones": _log_uniform,
    "powers": lambda rng, count: (1 << rng.integers(0, 7, count)) * UNIT,
    "two sizes": lambda rng, count: np.where(rng.random(count) < 0.9, 2, 129) * UNIT,
}
"""Distributions of sizes: 16 to 1024 in steps of 16; 16 to 4080, each octave as often; powers of
two, 16 to 1024; nine of 32 for one of 2064."""

LARGEST = {"uniform": 1024, "small ones": 4080, "powers": 1024, "two sizes": 2064}
"""The largest size of each distribution."""


def _phases(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Lives to the end of a phase of 2000 requests; one in ten lasts five phases more."""
    end = 2000 - np.arange(count) % 2000
    return end + np.where(rng.random(count) < 0.1, 10_000, 0)


LIFETIMES: dict[str, Draw] = {
    "queue": lambda _, count: np.full(count, 2000),
    "random": lambda rng, count: 1 + rng.exponential(2000, count).astype(np.int64),
    "short and long": lambda rng, count: np.where(
        rng.random(count) < 0.9, rng.integers(1, 200, count), rng.integers(10_000, 30_000, count)
    ),
    "phases": _phases,
}
"""Distributions of lifetimes, in requests: the oldest leaves first; as likely to leave at any time,
2000 on average; nine of ten below 200, the tenth 10,000 to 30,000; all at the end of a phase of
2000, but for one of ten."""

POLICIES = ("first", "best", "next", "worst", "buddy")

FRAGMENTATION_DTYPE = np.dtype(
    [
        ("policy", "U8"),
        ("backend", "U8"),
        ("sizes", "U16"),
        ("lifetimes", "U16"),
        ("live", "<i8"),
        ("extent", "<i8"),
        ("needed", "<f8"),
        ("bound", "<f8"),
    ]
)
"""live: the most that was live at once, in requested sizes; extent: the room that was needed;
needed: extent / live; bound: Robson's bound for these sizes and so much live, over live."""


class Extent(NamedTuple):
    """What a workload needed.

    Attributes:
        live: the most that was live at once.
        extent: the room without which a request would have been refused.
    """

    live: int
    extent: int


class _Wall:
    """A range that is as small as possible: it grows only when a request finds no hole.

    All offsets from `end` on are taken, as if the range ended there.
    """

    def __init__(self, placement: str, backend: str) -> None:
        self._ranges = RangeAllocator(_ROOM, backend=backend, placement=placement)
        self._ranges.alloc(_ROOM)
        self.end = 0

    def alloc(self, size: int) -> int:
        if self._ranges.find(size) is None:
            self._grow(size)
        return self._ranges.alloc(size)

    def _grow(self, size: int) -> None:
        """Makes the hole before the wall, if there is one, as large as the request."""
        last = 0
        if self._ranges.free_size:
            start, length = self._ranges.holes()[-1].tolist()
            last = length if start + length == self.end else 0
        self._ranges.free(self.end, size - last)
        self.end += size - last

    def free(self, offset: int, size: int) -> None:
        self._ranges.free(offset, size)


class _Buddy:
    """A buddy system with ample room; its highest taken offset tells the room that it needed."""

    def __init__(self) -> None:
        self._ranges = BuddyAllocator(1 << 24, unit=UNIT)
        self.end = 0

    def alloc(self, size: int) -> int:
        offset = self._ranges.alloc(size)
        length = UNIT << max(0, (-(-size // UNIT) - 1).bit_length())
        self.end = max(self.end, offset + length)
        return offset

    def free(self, offset: int, size: int) -> None:
        self._ranges.free(offset, size)


def measure_extent(
    sizes: Iterable[SupportsIndex],
    lifetimes: Iterable[SupportsIndex],
    policy: str,
    *,
    backend: str = "two",
) -> Extent:
    """Plays objects, one request a step, and tells the room that they needed.

    Args:
        sizes: of each object, at least 1.
        lifetimes: steps until it is freed, at least 1: those that are due go before a request.
        policy: one of POLICIES.
        backend: of RangeAllocator; of a buddy it means nothing.

    Raises:
        InvalidError: an unknown policy, a size or lifetime below 1, or lists of two lengths.
        UnsupportedError: the back end does not have the placement.
    """
    if policy not in POLICIES:
        raise InvalidError(f"policy {policy!r}: must be one of {', '.join(POLICIES)}")
    wanted = [_lib.as_index(size, "a size") for size in sizes]
    lives = [_lib.as_index(life, "a lifetime") for life in lifetimes]
    if len(wanted) != len(lives) or min(wanted, default=1) < 1 or min(lives, default=1) < 1:
        raise InvalidError("sizes and lifetimes: as many of both, each at least 1")
    places = _Buddy() if policy == "buddy" else _Wall(policy, backend)
    due: list[tuple[int, int, int]] = []  # step, offset, size
    live = most = 0
    for step, (size, life) in enumerate(zip(wanted, lives, strict=True)):
        while due and due[0][0] <= step:
            _, offset, length = heapq.heappop(due)
            places.free(offset, length)
            live -= length
        heapq.heappush(due, (step + life, places.alloc(size), size))
        live += size
        most = max(most, live)
    return Extent(most, places.end)


def _bound(live: int, sizes: str) -> float:
    """Robson's bound, in units of UNIT, for the largest power of two that the sizes reach."""
    words = live // UNIT
    largest = 1 << ((LARGEST[sizes] // UNIT).bit_length() - 1)
    return robson_bound(words, largest) / words


def study(
    count: SupportsIndex = 20_000,
    *,
    seed: SupportsIndex = 1,
    policies: Iterable[str] = POLICIES,
    backend: str = "two",
) -> NDArray[np.void]:
    """Every policy with every distribution of sizes and lifetimes, on the same objects.

    Args:
        count: objects of each combination.
        seed: of the random numbers.
        policies: of POLICIES.
        backend: of RangeAllocator.

    Returns:
        Rows of FRAGMENTATION_DTYPE, shape (policies * sizes * lifetimes,).

    Raises:
        InvalidError: an unknown policy, or no objects.
    """
    objects = _lib.as_index(count, "count")
    if objects == 0:
        raise InvalidError("count 0: at least one object is needed")
    rows = list(_rows(objects, _lib.as_index(seed, "seed"), tuple(policies), backend))
    return np.array(rows, FRAGMENTATION_DTYPE)


def _rows(
    count: int, seed: int, policies: tuple[str, ...], backend: str
) -> Iterator[tuple[str | float, ...]]:
    for sizes, draw_sizes in SIZES.items():
        for lifetimes, draw_lifetimes in LIFETIMES.items():
            rng = np.random.default_rng(seed)
            wanted, lives = draw_sizes(rng, count).tolist(), draw_lifetimes(rng, count).tolist()
            for policy in policies:
                live, extent = measure_extent(wanted, lives, policy, backend=backend)
                kind = "buddy" if policy == "buddy" else backend
                bound = _bound(live, sizes)
                yield policy, kind, sizes, lifetimes, live, extent, extent / live, bound
