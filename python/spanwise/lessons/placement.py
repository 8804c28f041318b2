# SPDX-License-Identifier: Apache-2.0
"""The memory cost of placement: fragmentation of range allocators, Robson's adversary, drag.

Wilson et al., "Dynamic storage allocation: a survey and critical review" (1995), ask for real
traces, because synthetic ones lose the correlation of sizes and lifetimes. The synthetic workloads
here compare placements with each other and with Robson's bound; they do not predict a program.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanwise import _lib
from spanwise.errors import InvalidError
from spanwise.ranges.allocators import BuddyAllocator, RangeAllocator
from spanwise.results.rows import Rows, as_rows

UNIT = 16
"""The smallest size; all sizes are multiples of it."""

# --- fragmentation --------------------------------------------------------------------------------

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
"""Distributions of sizes: uniform, 16 to 1024 in steps of 16; log-uniform, 16 to 4080; powers of
two, 16 to 1024; 32 with probability 0.9, else 2064."""

LARGEST = {"uniform": 1024, "small ones": 4080, "powers": 1024, "two sizes": 2064}
"""The largest size of each distribution."""


def _phases(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Draw lifetimes to the end of a phase of 2000 requests; a tenth last five phases longer."""
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
"""Distributions of lifetimes, in requests: constant; exponential, mean 2000; 90 % below 200, the
rest 10,000 to 30,000; 90 % to the end of a phase of 2000."""

PLACEMENTS = ("first", "best", "next", "worst", "buddy")

_STUDY_DTYPE = np.dtype(
    [
        ("placement", "U8"),
        ("backend", "U10"),
        ("sizes", "U16"),
        ("lifetimes", "U16"),
        ("live", "<i8"),
        ("extent", "<i8"),
        ("needed", "<f8"),
        ("bound", "<f8"),
    ]
)


class Extent(NamedTuple):
    """The address range that a workload needed."""

    live: int  # peak of live sizes
    extent: int  # the smallest range in which no request fails


class _Wall:
    """A range that is as small as possible: it grows only if a request finds no hole.

    All offsets from `end` on are allocated, as if the range ended there.
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
        """Grow the hole before `end`, if there is one, to the size of the request."""
        last = 0
        if self._ranges.free_size:
            start, length = self._ranges.holes()[-1].tolist()
            last = length if start + length == self.end else 0
        self._ranges.free(self.end, size - last)
        self.end += size - last

    def free(self, offset: int, size: int) -> None:
        self._ranges.free(offset, size)


class _Buddy:
    """A buddy allocator with ample room; its extent is the highest offset used."""

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
    placement: str,
    *,
    backend: str = "two-treaps",
) -> Extent:
    """Allocate and free objects, one request per step, and return the range that they needed.

    Args:
        sizes: size of each object, at least 1.
        lifetimes: steps until each object is freed, at least 1; due frees precede a request.
        placement: one of PLACEMENTS.
        backend: of RangeAllocator; ignored by "buddy".

    Raises:
        InvalidError: an unknown placement, a size or lifetime below 1, or lists of unequal length.
        UnsupportedError: the backend does not have the placement.
    """
    if placement not in PLACEMENTS:
        raise InvalidError(f"placement {placement!r}: must be one of {', '.join(PLACEMENTS)}")
    wanted = [_lib.as_index(size, "a size") for size in sizes]
    lives = [_lib.as_index(life, "a lifetime") for life in lifetimes]
    if len(wanted) != len(lives) or min(wanted, default=1) < 1 or min(lives, default=1) < 1:
        raise InvalidError("sizes and lifetimes: give lists of one length, each number at least 1")
    places = _Buddy() if placement == "buddy" else _Wall(placement, backend)
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
    """Return Robson's bound over `live`, for the largest power of two that the sizes reach."""
    words = live // UNIT
    largest = 1 << ((LARGEST[sizes] // UNIT).bit_length() - 1)
    return robson_bound(words, largest) / words


def study(
    count: SupportsIndex = 20_000,
    *,
    seed: SupportsIndex = 1,
    placements: Iterable[str] = PLACEMENTS,
    backend: str = "two-treaps",
) -> Rows:
    """Measure every placement on the same objects, for each distribution of sizes and lifetimes.

    Args:
        count: objects per combination.
        seed: of the random numbers.
        placements: some of PLACEMENTS.
        backend: of RangeAllocator.

    Returns:
        A row per placement, sizes and lifetimes, with the columns placement, backend, sizes,
        lifetimes; live (peak of the live requested sizes), extent (the smallest range in which no
        request fails), needed (extent / live) and bound (`robson_bound` for this peak and these
        sizes, over live: no allocator without moving can guarantee less).

    Raises:
        InvalidError: a placement is unknown, or there are no objects.
    """
    objects = _lib.as_index(count, "count")
    if objects == 0:
        raise InvalidError("count 0: at least one object is needed")
    rows = list(_rows(objects, _lib.as_index(seed, "seed"), tuple(placements), backend))
    return as_rows(np.array(rows, _STUDY_DTYPE))


def _rows(
    count: int, seed: int, placements: tuple[str, ...], backend: str
) -> Iterator[tuple[str | float, ...]]:
    for sizes, draw_sizes in SIZES.items():
        for lifetimes, draw_lifetimes in LIFETIMES.items():
            rng = np.random.default_rng(seed)
            wanted, lives = draw_sizes(rng, count).tolist(), draw_lifetimes(rng, count).tolist()
            for placement in placements:
                live, extent = measure_extent(wanted, lives, placement, backend=backend)
                kind = "buddy" if placement == "buddy" else backend
                bound = _bound(live, sizes)
                yield placement, kind, sizes, lifetimes, live, extent, extent / live, bound


# --- Robson's adversary ---------------------------------------------------------------------------


class Places(Protocol):
    """An allocator of ranges, such as `RangeAllocator`."""

    def alloc(self, size: int) -> int:
        """Allocate `size` and return its offset."""

    def free(self, offset: int, size: int) -> None:
        """Free [offset, offset + size)."""


def robson_bound(live: int, largest: int) -> float:
    """Return the range that every non-moving allocator needs at worst, for sizes 1, 2, ... largest.

    live * (log2(largest) / 2 + 1) - largest + 1, the lower bound of J. M. Robson, "An estimate of
    the store size necessary for dynamic storage allocation", JACM 18(3), 1971.
    """
    return float(live * (np.log2(largest) / 2 + 1) - largest + 1)


def play_robson(places: Places, live: int, largest: int) -> Extent:
    """Run Robson's adversary, whose survivors fragment the range, with at most `live` allocated.

    It begins with `live` objects of size 1. Before the round of size 2^i, it frees each object that
    covers no offset congruent to f modulo 2^i. Of the two values of f that agree with the previous
    round's, it chooses the one with the larger sum of 2^i - size over the surviving objects. Then
    it allocates as many objects of size 2^i as `live` allows.

    Args:
        places: an empty allocator with more room than the bound.
        live: the maximum allocated at any time.
        largest: the last size, a power of two, at most `live`.

    Raises:
        InvalidError: largest is not a power of two, or is above live.
        OutOfMemoryError: the allocator has too little room.
    """
    most, end = _lib.as_index(live, "live"), _lib.as_index(largest, "largest")
    if end == 0 or end & (end - 1) or end > most:
        raise InvalidError(f"largest {end}: must be a power of two, at most live, {most}")
    at = np.array([places.alloc(1) for _ in range(most)], np.int64)
    sizes = np.ones(most, np.int64)
    extent, place, size = int((at + sizes).max()), 0, 1
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
        extent = max(extent, int((at + sizes).max()))
    return Extent(most, extent)


# --- drag -----------------------------------------------------------------------------------------


class Drag(NamedTuple):
    """Space-time products: bytes times time."""

    live: float  # of objects, from birth to death
    held: float  # of groups, from the birth of the first object to the death of the last

    @property
    def held_over_live(self) -> float:
        """`held` / `live`; 1 if no dead object waits for its group."""
        return self.held / self.live


def group_drag(
    sizes: ArrayLike, births: ArrayLike, deaths: ArrayLike, *, group: int, group_bytes: int = 0
) -> Drag:
    """Return the cost of freeing objects in groups, as arenas do.

    Objects join groups in the order of their births, `group` in each; the last group may have
    fewer. A group takes memory as its objects arrive and returns all of it at its last death.

    Args:
        sizes: bytes of each object.
        births: when each is allocated.
        deaths: when each is last used; not before its birth.
        group: objects per group; 1 frees objects individually.
        group_bytes: the minimum that a group holds from its first birth, such as an arena's chunk.

    Raises:
        InvalidError: arrays of different or no length, a death before a birth, or a group of 0.
    """
    size, birth, death = (np.asarray(column, np.float64) for column in (sizes, births, deaths))
    if not size.ndim == 1 or not size.shape == birth.shape == death.shape or not len(size):
        raise InvalidError("sizes, births and deaths must be lists of one length, at least 1")
    if (death < birth).any():
        raise InvalidError("an object dies before its birth")
    each = _lib.as_index(group, "group")
    if each == 0:
        raise InvalidError("group 0: a group has at least 1 object")
    order = np.argsort(birth, kind="stable")
    size, birth, death = size[order], birth[order], death[order]
    first = np.arange(0, len(size), each)
    end = np.maximum.reduceat(death, first)
    number = np.arange(len(size)) // each
    held = size * (end[number] - birth)
    total = np.add.reduceat(held, first)
    if group_bytes:
        least = float(_lib.as_index(group_bytes, "group_bytes"))
        sums = np.cumsum(size)
        before = sums - size - (sums[first] - size[first])[number]
        covered = np.clip(least - before, 0, size) * (end[number] - birth)
        total += least * (end - birth[first]) - np.add.reduceat(covered, first)
    return Drag(float((size * (death - birth)).sum()), float(total.sum()))
