# SPDX-License-Identifier: Apache-2.0
"""The weight of each requested size in a recording, and the waste of a table on it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import errors
from spanwise._lib import check, ffi, lib
from spanwise._owner import Owned
from spanwise.recordings.recording import Recording
from spanwise.recordings.sources import FileSource
from spanwise.tables.table import SizeClassTable

RESIDENT, HELD, PEAK = "resident", "held", "peak"
"""The objectives: by simulation the fewest resident bytes at their own peak, or the fewest held
bytes at the peak of requested bytes; or the solver alone."""

OBJECTIVES = (RESIDENT, HELD, PEAK)

_PAGE_SIZES = (4096, 8192, 16384, 32768, 65536)


@dataclass(frozen=True)
class Waste:
    """The waste of a table on a profile, in bytes."""

    table: str  # name of the table
    requested: float  # requested bytes
    roundup: float  # slots minus requested bytes
    tail: float  # each slot's share of the tail of its span, if all spans are full
    large_rounding: float  # whole pages minus requested bytes, for requests above the largest class

    @property
    def total(self) -> float:
        """The sum of the three parts."""
        return self.roundup + self.tail + self.large_rounding

    @property
    def share(self) -> float:
        """Waste / requested."""
        return self.total / self.requested if self.requested else 0.0

    def to_dict(self) -> dict[str, object]:
        """Return a dict for JSON."""
        return {**asdict(self), "total": self.total, "share": self.share}


def _sum(weights: NDArray[np.float64], each: NDArray[Any]) -> float:
    """Return the dot product without `@`, whose threads cost more time than they save."""
    return float(np.sum(weights * each))


@dataclass(frozen=True)
class SizeProfile:
    """Weights by requested size: objects live at the peak of requested bytes.

    Attributes:
        weights: float64 of shape (262145,): weight of requests of 0, 1, ... bytes.
        large_pages: float64 of shape (5,): the same rounded to pages of 4, 8, 16, 32, 64 KiB.
    """

    weights: NDArray[np.float64]
    large_weight: float  # weight of larger requests; large_bytes: their weight * bytes
    large_bytes: float
    large_pages: NDArray[np.float64]

    @cached_property
    def requested(self) -> float:
        """Weight * bytes of all requests."""
        return _sum(self.weights, np.arange(len(self.weights))) + self.large_bytes

    @cached_property
    def _sizes(self) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """The sizes with a weight, ascending, and their weights."""
        sizes = np.flatnonzero(self.weights)
        return sizes, self.weights[sizes]

    @cached_property
    def _roundings(self) -> dict[tuple[int, int], float]:
        return {}

    def times(self, factor: float) -> SizeProfile:
        """Return the profile with all weights times a factor."""
        return SizeProfile(
            self.weights * factor,
            self.large_weight * factor,
            self.large_bytes * factor,
            self.large_pages * factor,
        )

    def plus(self, other: SizeProfile) -> SizeProfile:
        """Return the sum of two profiles."""
        return SizeProfile(
            self.weights + other.weights,
            self.large_weight + other.large_weight,
            self.large_bytes + other.large_bytes,
            self.large_pages + other.large_pages,
        )

    def up_to(self, largest: int) -> SizeProfile:
        """Return the profile without requests above `largest` bytes."""
        kept = np.where(np.arange(len(self.weights)) <= largest, self.weights, 0.0)
        return SizeProfile(kept, 0.0, 0.0, np.zeros(len(_PAGE_SIZES)))

    def waste(self, table: SizeClassTable) -> Waste:
        """Return the waste of a table if every span is full and nothing is cached."""
        sizes, weights = self._sizes
        classes = table.classes
        count = int(np.searchsorted(sizes, table.largest_bytes, side="right"))
        small, weights = sizes[:count], weights[:count]
        # The number of sizes that each class serves.
        served = np.diff(np.searchsorted(small, classes["size_bytes"], side="right"), prepend=0)
        slots = np.repeat(classes["size_bytes"].astype(np.float64), served)
        tails = np.repeat(classes["tail_bytes"] / classes["slots"], served)
        return Waste(
            table=table.name,
            requested=self.requested,
            roundup=_sum(weights, slots - small),
            tail=_sum(weights, tails),
            large_rounding=self._large_rounding(count, table.page_bytes),
        )

    def _large_rounding(self, first: int, page_bytes: int) -> float:
        """Return the rounding to whole pages of sizes from index `first` on; tables share it."""
        known = self._roundings.get((first, page_bytes))
        if known is None:
            sizes, weights = self._sizes[0][first:], self._sizes[1][first:]
            pages = -(-sizes // page_bytes) * page_bytes
            whole = self.large_pages[_PAGE_SIZES.index(page_bytes)] - self.large_bytes
            known = _sum(weights, pages - sizes) + float(whole)
            self._roundings[first, page_bytes] = known
        return known


_known: weakref.WeakKeyDictionary[Recording, SizeProfile] = weakref.WeakKeyDictionary()


def profile_of(recording: Recording) -> SizeProfile:
    """Return the profile of a recording, which one pass reads; it is cached."""
    if recording not in _known:
        check_allocates(recording)
        _known[recording] = _read_profile(recording)
    return _known[recording]


def check_allocates(recording: Recording) -> None:
    """Raise InvalidError for a recording without an allocation."""
    if recording.summary.allocs == 0:
        raise errors.InvalidError(
            f"{recording.name}: holds no allocation; record a program that makes some"
        )


def _read_profile(recording: Recording) -> SizeProfile:
    summary = recording.summary
    out = ffi.new("sw_profile **")
    check(lib.sw_profile_create(summary.peak_op, out))
    owned = Owned(out[0], lib.sw_profile_destroy)
    profile = owned.c
    source = recording.source
    if isinstance(source, FileSource):
        trace = source.open()
        check(lib.sw_profile_trace(profile, trace.c))
    else:
        for batch in source.batches():
            check(lib.sw_profile_add(profile, batch.ops, batch.count))
    raw = ffi.buffer(lib.sw_profile_weights(profile), lib.SW_PROFILE_SIZES * 8)
    large = ffi.new("sw_profile_large *")
    check(lib.sw_profile_get_large(profile, large))
    pages = np.array([large.page_bytes[i] for i in range(len(_PAGE_SIZES))], np.float64)
    weights = np.frombuffer(raw, np.float64).copy()
    return SizeProfile(weights, float(large.weight), float(large.bytes), pages)


def joint_profile(recordings: Sequence[Recording], shares: Sequence[float] | None) -> SizeProfile:
    """Return a joint profile of several recordings."""
    profiles = [profile_of(one) for one in recordings]
    if shares is not None:
        profiles = _weighted(profiles, shares)
    total = profiles[0]
    for other in profiles[1:]:
        total = total.plus(other)
    return total


def _weighted(profiles: list[SizeProfile], shares: Sequence[float]) -> list[SizeProfile]:
    """Scale the profiles to their shares of all requested bytes."""
    given = [float(share) for share in shares]
    fine = len(given) == len(profiles) and all(0 <= share < float("inf") for share in given)
    if not fine or sum(given) <= 0:
        raise errors.InvalidError(
            f"weights {given}: give one number of 0 or more for each of"
            f" {len(profiles)} recordings, not all 0"
        )
    total = sum(profile.requested for profile in profiles)
    return [
        profile.times(share / sum(given) * total / profile.requested if profile.requested else 0.0)
        for profile, share in zip(profiles, given, strict=True)
    ]
