# SPDX-License-Identifier: Apache-2.0
"""Estimated live bytes by call site of a program that runs, and their growth.

The estimator is that of `spanwise estimate` (sampled.py). Its sums are kept by call site: of all
recorded allocations, and of the live objects. So memory depends on the number of call sites and
live recorded objects (at most 262,144, the recorder's table), not on the length of the run.

Growth since a moment is what was allocated since and is live, minus what was live then and has
been freed. Both are estimated; the limits of the difference are those of Zou and Donner (2008,
"Construction of confidence limits about effect measures"): the distances of each part's limits from
its estimate, combined as the root of the sum of squares.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise.recordings.follow import EVENTS_DTYPE, Follower
from spanwise.recordings.names import Folding
from spanwise.recordings.sampled import FEW, Array, Estimate, estimate_of, weigh
from spanwise.recordings.sites import Site, merge_key, name_sites
from spanwise.recordings.sources import grown
from spanwise.results.rows import Result

WINDOW_S = 60.0
"""Growth is over this time, or since the start."""
_SPACING_S = 2.0
"""Between two moments that are kept for growth."""
_NAMING_SHARE = 0.03
"""Of the time, at most, that is spent naming new call sites while the program runs."""
_NOT_NAMED = ("not named yet",)
_WAIT = 3
"""Updates after which no events with earlier stamps arrive; threads may publish theirs late."""

_LIVE_DTYPE = np.dtype([*EVENTS_DTYPE.descr, ("value", "f8"), ("variance", "f8"), ("born_s", "f8")])


@dataclass(frozen=True)
class LiveRow(Result):
    """A call site; sites with equal names are one.

    Attributes:
        site: the lowest of the numbers of its sites, with frames and names; without names, it is
            unknown if its number is 0, or else not named yet.
        recorded: objects that were recorded.
        requested: bytes of its live objects.
        growth: of these bytes in the page's `window_s`.
        allocated: bytes since the start.
    """

    site: Site
    recorded: int
    requested: Estimate
    growth: Estimate
    allocated: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return its figures and names, for JSON."""
        figures = (self.requested, self.growth, self.allocated)
        names = ("requested_bytes", "growth_bytes", "allocated_bytes")
        return {
            "what": list(self.site.names or self.site.frames),
            "recorded": self.recorded,
            **{name: one.to_dict() for name, one in zip(names, figures, strict=True)},
        }


@dataclass(frozen=True)
class LivePage(Result):
    """What is known of a running program.

    Attributes:
        elapsed_s: time since the start of the program.
        window_s: the time of the growth.
        rss_bytes: resident memory of the process, before its end.
        rss_growth_bytes: its growth in the window.
        sample_bytes: mean bytes between sample points.
        recorded: objects that were recorded.
        live_recorded: those that are live.
        allocated_per_s: allocated bytes per second since the page before.
        requested: bytes of all live objects; growth and allocated as in LiveRow.
        rows: call sites, most live bytes first; those with fewer than FEW recorded objects are
            summed in `rest`.
        more: further such call sites, without a row.
        few: call sites in `rest`.
    """

    elapsed_s: float
    window_s: float
    rss_bytes: int
    rss_growth_bytes: int
    sample_bytes: int
    recorded: int
    live_recorded: int
    allocated_per_s: Estimate
    requested: Estimate
    growth: Estimate
    allocated: Estimate
    rows: tuple[LiveRow, ...]
    more: int
    few: int
    rest: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        plain = ("elapsed_s", "window_s", "rss_bytes", "rss_growth_bytes", "sample_bytes")
        figures = {
            "allocated_bytes_per_s": self.allocated_per_s,
            "requested_bytes": self.requested,
            "growth_bytes": self.growth,
            "allocated_bytes": self.allocated,
            "rest": self.rest,
        }
        return {
            **{name: getattr(self, name) for name in (*plain, "recorded", "live_recorded")},
            **{name: getattr(self, name) for name in ("more", "few")},
            **{name: one.to_dict() for name, one in figures.items()},
            "sites": [row.to_dict() for row in self.rows],
        }


@dataclass(frozen=True)
class _Moment:
    """The live bytes of each site at a moment, with their variance."""

    at_s: float
    rss_bytes: int
    value: Array
    variance: Array


class LiveView:
    """Follows a program's recording; `update` reads what is new, `page` returns the figures."""

    def __init__(self, pid: int, raw: Path, areas: Path, sample_bytes: int) -> None:
        self._pid = pid
        self._follower = Follower(raw, areas)
        self._sample_bytes = sample_bytes
        self._start = time.monotonic() - _age_s(pid)
        self._rss = 0
        self._begin(0.0)

    def _begin(self, now: float) -> None:
        """Forgets all events, at the start and after exec."""
        self._live = self._settled = np.empty(0, _LIVE_DTYPE)
        self._recent = self._settled  # events after the stamp at which the others are settled
        self._stamps = deque([0])  # `until` of the last updates
        self._counts = np.zeros(0, np.int64)  # recorded objects by site, and their weights:
        self._value, self._variance, self._largest = (np.zeros(0) for _ in range(3))
        self._sites: dict[int, Site] = {}
        self._unresolved: frozenset[int] = frozenset()
        self._named_of = self._name_after = 0.0
        self._now = now
        self._moments = deque([_Moment(now, 0, np.zeros(0), np.zeros(0))])
        self._before = (now, 0.0, 0.0)  # time and allocated bytes of the update before
        self._rate = Estimate(0.0, 0.0, 0.0)

    def update(self, name_all: bool = False) -> None:
        """Reads the new events, and names new call sites if there is time, or all.

        Raises:
            TraceFormatError: the recording is damaged.
        """
        images = self._follower.images
        events = self._follower.read()
        if self._follower.images > max(images, 1):
            self._begin(self._now)
        self._now = time.monotonic() - self._start
        self._rss = _resident_bytes(self._pid) or self._rss
        self._add(events, self._follower.until)
        self._measure_rate()
        self._name(name_all)
        if self._now - self._moments[-1].at_s >= _SPACING_S:
            self._moments.append(_Moment(self._now, self._rss, *self._live_by_site(self._live)))
            while len(self._moments) > 1 and self._moments[1].at_s <= self._now - WINDOW_S:
                self._moments.popleft()

    # --- events ---

    def _add(self, events: NDArray[np.void], until: int) -> None:
        """Updates the sums of all allocations, and the live objects."""
        new = np.zeros(len(events), _LIVE_DTYPE)
        for name in EVENTS_DTYPE.names or ():
            new[name] = events[name]
        new = new[new["is_alloc"] | (new["address"] != 0)]
        new["born_s"] = self._now
        made = np.flatnonzero(new["is_alloc"])
        sizes = new["size"][made].astype(np.float64)
        value, variance, largest = weigh(sizes, sizes, self._sample_bytes)
        new["value"][made], new["variance"][made] = value, variance
        sites = new["site"][made].astype(np.int64)
        count = int(sites.max(initial=-1)) + 1
        for name in ("_counts", "_value", "_variance", "_largest"):
            setattr(self, name, grown(getattr(self, name), count))
        size = len(self._counts)
        self._counts += np.bincount(sites, minlength=size)
        self._value += np.bincount(sites, value, size)
        self._variance += np.bincount(sites, variance, size)
        np.maximum.at(self._largest, sites, largest)
        self._match(new, until)

    def _match(self, new: NDArray[np.void], until: int) -> None:
        """Finds the objects that are live after the event with a stamp, in the order of stamps."""
        touched = np.isin(self._settled["address"], np.append(new, self._recent)["address"])
        rows = np.concatenate([self._settled[touched], self._recent, new])
        others = self._settled[~touched]
        self._live = np.append(others, _last_allocs(rows[rows["stamp"] <= until]))
        self._stamps.append(until)
        if len(self._stamps) > _WAIT:
            is_old = rows["stamp"] <= self._stamps.popleft()
            self._settled = np.append(others, _last_allocs(rows[is_old]))
            self._recent = rows[~is_old]
        else:
            self._recent = rows

    def _live_by_site(self, rows: NDArray[np.void]) -> tuple[Array, Array]:
        size, sites = len(self._counts), rows["site"].astype(np.int64)
        value = np.bincount(sites, rows["value"], size).astype(np.float64)
        return value, np.bincount(sites, rows["variance"], size).astype(np.float64)

    def _measure_rate(self) -> None:
        """Estimates the bytes allocated per second since the update before."""
        then, value, variance = self._before
        now = self._now, float(self._value.sum()), float(self._variance.sum())
        span = now[0] - then
        if span > 0:
            largest = float(self._largest.max(initial=0.0))
            made = estimate_of(max(now[1] - value, 0.0), max(now[2] - variance, 0.0), largest)
            self._rate = Estimate(made.value / span, made.low / span, made.high / span)
        self._before = now

    # --- names ---

    def _name(self, name_all: bool) -> None:
        """Names call sites that have no names yet."""
        seen = np.flatnonzero(self._counts).tolist()
        notes = float(self._follower.notes_bytes)
        again = self._unresolved if notes != self._named_of else frozenset()
        missing = {one for one in seen if one and one not in self._sites} | again
        if not missing or (self._now < self._name_after and not name_all):
            return
        start = time.monotonic()
        known = self._follower.call_sites()
        found = [Site(one, 0, 0, known.frames[one]) for one in missing if one in known.frames]
        named = name_sites(found, known.build_ids, Folding())
        self._sites.update((site.id, site) for site in named)
        self._unresolved, self._named_of = known.unresolved & set(seen), notes
        self._name_after = self._now + (time.monotonic() - start) / _NAMING_SHARE

    def _groups(self) -> tuple[list[int], NDArray[np.int64]]:
        """Return the lowest site of each group, and the group of each site; -1: not recorded."""
        first: dict[tuple[str, ...] | int, int] = {}
        groups: list[int] = []
        of = np.full(len(self._counts), -1)
        for one in np.flatnonzero(self._counts).tolist():
            key = merge_key(self._sites[one]) if one in self._sites else one
            if key not in first:
                first[key] = len(groups)
                groups.append(one)
            of[one] = first[key]
        return groups, of

    # --- figures ---

    def page(self, most: int) -> LivePage:
        """Return the figures of the last update, with at most so many call sites."""
        groups, of = self._groups()
        then = self._moments[0]
        is_new = self._live["born_s"] > then.at_s
        size = len(self._counts)
        stayed = self._live_by_site(self._live[~is_new])
        gained = self._live_by_site(self._live[is_new])
        lost = tuple(
            _difference(grown(was, size)[:size], left)
            for was, left in zip((then.value, then.variance), stayed, strict=True)
        )
        live = tuple(a + b for a, b in zip(stayed, gained, strict=True))
        by_site = (*live, *gained, *lost, self._value, self._variance)
        known = of >= 0
        sums = np.array([np.bincount(of[known], one[known], len(groups)) for one in by_site])
        sums = sums.reshape(len(by_site), len(groups))
        largest = np.zeros(len(groups))
        np.maximum.at(largest, of[known], self._largest[known])
        counts = np.bincount(of[known], self._counts[known], len(groups)).astype(np.int64)
        many = np.flatnonzero(counts >= FEW)
        order = many[np.lexsort((-sums[6][many], -sums[0][many]))].tolist()
        few = counts < FEW
        whole = _figures(sums.sum(axis=1), float(largest.max(initial=0.0)))
        rest = _figures(sums[:, few].sum(axis=1), float(largest[few].max(initial=0.0)))[0]
        rows = tuple(
            LiveRow(
                self._sites.get(groups[i])
                or Site(groups[i], 0, 0, _NOT_NAMED if groups[i] else ()),
                int(counts[i]),
                *_figures(sums[:, i], float(largest[i])),
            )
            for i in order[:most]
        )
        return LivePage(
            elapsed_s=self._now,
            window_s=self._now - then.at_s,
            rss_bytes=self._rss,
            rss_growth_bytes=self._rss - then.rss_bytes,
            sample_bytes=self._sample_bytes,
            recorded=int(self._counts.sum()),
            live_recorded=len(self._live),
            allocated_per_s=self._rate,
            requested=whole[0],
            growth=whole[1],
            allocated=whole[2],
            rows=rows,
            more=len(order) - len(rows),
            few=int(few.sum()),
            rest=rest,
        )


def _last_allocs(rows: NDArray[np.void]) -> NDArray[np.void]:
    """Return the last event on each address, if it is an allocation."""
    rows = rows[np.lexsort((rows["stamp"], rows["address"]))]
    is_last = np.ones(len(rows), bool)
    is_last[:-1] = rows["address"][1:] != rows["address"][:-1]
    found: NDArray[np.void] = rows[is_last & rows["is_alloc"]]
    return found


def _difference(was: Array, left: Array) -> Array:
    """Subtract, where the result is 0 or more but for rounding."""
    found: Array = np.where(was - left > 1e-9 * was, was - left, 0.0)
    return found


def _figures(sums: Array, largest: float) -> tuple[Estimate, Estimate, Estimate]:
    """Return requested bytes, their growth, and allocated bytes."""
    live, gained, lost, allocated = (
        estimate_of(float(value), float(variance), largest)
        for value, variance in zip(sums[::2], sums[1::2], strict=True)
    )
    return live, growth_of(gained, lost), allocated


def growth_of(gained: Estimate, lost: Estimate) -> Estimate:
    """Return the difference of two estimates of separate objects."""
    value = gained.value - lost.value
    low = value - math.hypot(gained.value - gained.low, lost.high - lost.value)
    high = value + math.hypot(gained.high - gained.value, lost.value - lost.low)
    return replace(gained, value=value, low=low, high=high)


def _age_s(pid: int) -> float:
    """Return the seconds since a process was started; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0
    return max(time.clock_gettime(time.CLOCK_BOOTTIME) - started, 0.0)


def _resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGESIZE")
