# SPDX-License-Identifier: Apache-2.0
"""Totals of a recording, counts by size, thread and call site, and sums over recordings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise._lib import lib
from spanwise.results.rows import Result, Rows, as_rows
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from spanwise.recordings.recording import Recording


HISTOGRAM_DTYPE = np.dtype([("size_bytes", "<u8"), ("count", "<u8"), ("total_bytes", "<u8")])
"""A size of `Recording.histogram`: requests of that size and their bytes."""

THREADS_DTYPE = np.dtype(
    [
        ("thread", "<u4"),
        ("ops", "<u8"),
        ("allocs", "<u8"),
        ("frees", "<u8"),
        ("reallocs", "<u8"),
        ("allocated_bytes", "<u8"),
    ]
)
"""A row of `Recording.threads`."""

_TABULATED = 1 << 16
_DROP_REASONS = ("none", "disk", "memory", "other")
_DROP_WORDS = (
    "the recorder does not say why",
    "the disk was full, or the file at its size limit",
    "there was no memory for them",
    "the recording's file was lost",
)


NO_EVENTS = "it holds no events"
"""The gap of an empty recording, which is none if it is a sample."""


@dataclass(frozen=True, repr=False)
class Summary(Result):
    """Totals of a recording; the fields are those of sw_trace_summary (include/spanwise/trace.h).

    Sizes are in bytes, duration_ns in nanoseconds. Events that could not be ordered are counted in
    unknown_frees, unknown_reallocs and missed_frees; calls that the recorder lost in dropped_calls.
    """

    ops: int
    allocs: int
    frees: int
    reallocs: int
    zeroed_allocs: int
    aligned_allocs: int
    allocated_bytes: int
    reallocated_bytes: int
    peak_requested_bytes: int
    peak_op: int
    peak_live_objects: int
    end_requested_bytes: int
    end_live_objects: int
    largest_bytes: int
    duration_ns: int
    threads: int
    sites: int
    unknown_frees: int
    unknown_reallocs: int
    missed_frees: int
    calls: int
    dropped_calls: int
    drop_reason: int
    children_unrecorded: int
    children_recorded: int
    incomplete: int
    thread_ends: int

    @property
    def events(self) -> int:
        """Allocations, frees and reallocations: the operations without the ends of threads."""
        return self.ops - self.thread_ends

    def text_rows(self) -> list[tuple[str, str]]:
        """Return the most important totals as text."""
        rows = [
            ("operations", _format.number(self.events)),
            ("allocations", _format.number(self.allocs)),
            ("frees", _format.number(self.frees)),
            ("reallocations", _format.number(self.reallocs)),
            ("bytes allocated", _format.size(self.allocated_bytes)),
            ("peak, requested", _format.size(self.peak_requested_bytes)),
            ("peak, objects", _format.number(self.peak_live_objects)),
            ("live at the end", _format.size(self.end_requested_bytes)),
            ("largest request", _format.size(self.largest_bytes)),
            ("threads", _format.number(self.threads)),
            ("call sites", _format.number(self.sites)),
            ("duration", f"{self.duration_ns / 1e9:.3f} s"),
        ]
        return [*rows, *((title, _format.number(count)) for title, count in self.troubles())]

    def troubles(self) -> list[tuple[str, int]]:
        """Return the nonzero counts of missing and repaired events."""
        reason = _DROP_REASONS[min(self.drop_reason, len(_DROP_REASONS) - 1)]
        named = [
            (f"calls lost ({reason})", self.dropped_calls),
            ("frees of unknown addresses", self.unknown_frees),
            ("reallocations of unknown addresses", self.unknown_reallocs),
            ("frees that were missed", self.missed_frees),
            ("children not recorded", self.children_unrecorded),
        ]
        return [(title, count) for title, count in named if count]

    def gaps(self) -> list[str]:
        """Describe what is missing from the recording; [] if it is complete."""
        gaps = []
        if self.dropped_calls:
            gaps.append(
                f"{self.dropped_calls:,} of {_format.plural(self.calls, 'call')} are missing:"
                f" {_DROP_WORDS[min(self.drop_reason, len(_DROP_WORDS) - 1)]}"
            )
        if self.incomplete:
            gaps.append("it has no end: what the program did last is missing")
        if self.ops == 0:
            gaps.append(NO_EVENTS)
        return gaps

    def __str__(self) -> str:
        return _format.table(self.text_rows(), left=1)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _format.html_table(self.text_rows(), ("", ""))


# --- counts ---------------------------------------------------------------------------------------


def count_sizes(blocks: Iterator[NDArray[np.void]]) -> NDArray[np.void]:
    """Count requests of allocations and reallocations by size; rows of HISTOGRAM_DTYPE."""
    small = np.zeros(_TABULATED, np.uint64)
    large: dict[int, int] = {}
    for block in blocks:
        kind = block["kind"]
        sizes = block["size"][(kind == _lib.lib.SW_OP_ALLOC) | (kind == _lib.lib.SW_OP_REALLOC)]
        few = sizes < _TABULATED
        small += np.bincount(sizes[few].astype(np.int64), minlength=_TABULATED).astype(np.uint64)
        for size, count in zip(*np.unique(sizes[~few], return_counts=True), strict=True):
            large[int(size)] = large.get(int(size), 0) + int(count)
    found = [(int(size), int(small[size])) for size in np.flatnonzero(small)]
    rows = [(size, count, size * count) for size, count in found + sorted(large.items())]
    return np.array(rows, HISTOGRAM_DTYPE)


def histogram_of(sizes: NDArray[np.uint64]) -> NDArray[np.void]:
    """Count each size; rows of HISTOGRAM_DTYPE."""
    found, counts = np.unique(sizes, return_counts=True)
    rows = np.zeros(len(found), HISTOGRAM_DTYPE)
    rows["size_bytes"], rows["count"] = found, counts
    rows["total_bytes"] = rows["size_bytes"] * rows["count"]
    return rows


def count_threads(blocks: Iterator[NDArray[np.void]]) -> NDArray[np.void]:
    """Count events per thread; rows of THREADS_DTYPE."""
    counts = np.zeros((5, 0), np.uint64)
    for block in blocks:
        events = block[block["kind"] != _lib.lib.SW_OP_THREAD_END]
        thread, kind = events["thread"].astype(np.int64), events["kind"]
        wide = max(counts.shape[1], int(thread.max(initial=-1)) + 1)
        counts = np.pad(counts, ((0, 0), (0, wide - counts.shape[1])))
        counts[0] += np.bincount(thread, minlength=wide).astype(np.uint64)
        for row, which in enumerate((0, 1, 2), 1):
            counts[row] += np.bincount(thread[kind == which], minlength=wide).astype(np.uint64)
        alloc = kind == _lib.lib.SW_OP_ALLOC
        np.add.at(counts[4], thread[alloc], events["size"][alloc])
    rows = np.zeros(counts.shape[1], THREADS_DTYPE)
    rows["thread"] = np.arange(len(rows))
    for name, column in zip((THREADS_DTYPE.names or ())[1:], counts, strict=True):
        rows[name] = column
    return rows[rows["ops"] > 0]


def count_sites(blocks: Iterator[NDArray[np.void]]) -> dict[int, tuple[int, int]]:
    """Count allocations and their bytes by site. Ids may be large, so they index no array."""
    counts: dict[int, tuple[int, int]] = {}
    for block in blocks:
        rows = block[block["kind"] == _lib.lib.SW_OP_ALLOC]
        sites, place, allocs = np.unique(rows["site"], return_inverse=True, return_counts=True)
        total = np.zeros(len(sites), np.uint64)
        np.add.at(total, place, rows["size"])
        for site, count, size in zip(sites.tolist(), allocs.tolist(), total.tolist(), strict=True):
            before = counts.get(site, (0, 0))
            counts[site] = before[0] + count, before[1] + size
    return counts


# --- sums of several recordings -------------------------------------------------------------------

_MOST = ("largest_bytes", "duration_ns", "drop_reason")
"""The fields of a summary that are combined by maximum; the others are summed."""


def add_summaries(summaries: Sequence[Summary]) -> Summary:
    """Sum totals. Peaks are added as if they coincided, so peak_op is 0."""
    values = [one.to_dict() for one in summaries]
    total = {
        name: (max if name in _MOST else sum)(value[name] for value in values) for name in values[0]
    }
    return Summary(**{**total, "peak_op": 0})


def add_histograms(histograms: Sequence[Rows]) -> Rows:
    """Sum histograms, in ascending size."""
    rows = np.concatenate([np.asarray(one) for one in histograms])
    sizes, inverse = np.unique(rows["size_bytes"], return_inverse=True)
    total = np.zeros(len(sizes), HISTOGRAM_DTYPE)
    total["size_bytes"] = sizes
    np.add.at(total["count"], inverse, rows["count"])
    total["total_bytes"] = total["size_bytes"] * total["count"]
    return as_rows(total)


def add_timelines(timelines: Sequence[Rows]) -> Rows:
    """Sum time lines: at each time of one of them, the last row of each until then."""
    times = np.unique(np.concatenate([rows["time_ns"] for rows in timelines]))
    total = np.zeros(len(times), timelines[0].dtype)
    for rows in timelines:
        last = np.searchsorted(rows["time_ns"], times, side="right") - 1
        for name in total.dtype.names or ():
            total[name] += np.where(last >= 0, rows[name][last], 0) if len(rows) else 0
    total["time_ns"] = times
    return as_rows(total)


def apart(recordings: Sequence[Recording], rows: int) -> Iterator[NDArray[np.void]]:
    """Yield the operations of each recording in turn, with distinct numbers."""
    first = dict.fromkeys(("object", "thread", "site"), 0)
    for one in recordings:
        after = dict(first)
        for block in one.blocks(rows):
            moved = np.array(block)
            event = block["kind"] != lib.SW_OP_THREAD_END
            for name, counts in (("object", event), ("thread", True), ("site", block["site"] > 0)):
                moved[name] = np.where(counts, moved[name] + first[name], moved[name])
                after[name] = max(after[name], int(moved[name].max(initial=0)) + 1)
            yield moved
        first = after


# --- lifetimes ------------------------------------------------------------------------------------


GROUPS = ("class", "site", "size")
"""The kinds of groups that `lifetimes` takes as `by`."""

LIFETIMES_DTYPE = np.dtype(
    [
        ("cls", "<u4"),
        ("site", "<u4"),
        ("size_bytes", "<u8"),
        ("lifetime_ns", "<u8"),
        ("freed", "?"),
        ("count", "<u8"),
        ("total_bytes", "<u8"),
    ]
)
"""Objects of a group with similar lifetimes; columns of other kinds of groups are 0."""


def check_group(by: str) -> None:
    """Check the argument `by` of `lifetimes`."""
    if by not in GROUPS:
        raise errors.InvalidError(f"by {by!r}: use one of {', '.join(GROUPS)}")


def take_lifetimes(
    blocks: Iterator[NDArray[np.void]], by: str, table: SizeClassTable
) -> NDArray[np.void]:
    """Return rows of LIFETIMES_DTYPE by ascending key and lifetime, freed objects first."""
    objects, found, end_ns = _Objects(), _Counts(by, table), 0
    for block in blocks:
        rows = block[block["kind"] != lib.SW_OP_THREAD_END]
        if len(rows):
            end_ns = int(rows["time_ns"][-1])
            found.add(*objects.run(rows), freed=True)
    found.add(*objects.left(end_ns), freed=False)
    return found.rows()


Key = tuple[int, int, int, int, bool]
"""Class, site, size, lifetime, whether it was freed."""

Lived = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint32]]
"""Arrays over objects: lifetime, ns; last size, bytes; site of the allocation."""


class _Objects:
    """Objects by id after the operations so far: birth, last size, site of the allocation."""

    def __init__(self) -> None:
        self._born = np.zeros(0, np.uint64)
        self._size = np.zeros(0, np.uint64)
        self._site = np.zeros(0, np.uint32)
        self._live = np.zeros(0, bool)

    def run(self, rows: NDArray[np.void]) -> Lived:
        """Process operations; return the objects that they free."""
        self._widen(int(rows["object"].max()) + 1)
        rows = rows[np.argsort(rows["object"], kind="stable")]
        ids, kind = rows["object"], rows["kind"]
        first = np.searchsorted(ids, ids)  # the first operation here on the same object
        allocs = kind == lib.SW_OP_ALLOC
        birth = _latest(allocs, first)
        sized = _latest(allocs | (kind == lib.SW_OP_REALLOC), first)
        born = np.where(birth < 0, self._born[ids], rows["time_ns"][birth])
        site = np.where(birth < 0, self._site[ids], rows["site"][birth])
        size = np.where(sized < 0, self._size[ids], rows["size"][sized])
        last = np.append(ids[1:] != ids[:-1], True)
        dead = kind == lib.SW_OP_FREE
        for kept, values in ((self._born, born), (self._size, size), (self._site, site)):
            kept[ids[last]] = values[last]
        self._live[ids[last]] = ~dead[last]
        return rows["time_ns"][dead] - born[dead], size[dead], site[dead]

    def left(self, now_ns: int) -> Lived:
        """Return the live objects; their lifetime is their age."""
        live = self._live
        return np.uint64(now_ns) - self._born[live], self._size[live], self._site[live]

    def _widen(self, count: int) -> None:
        more = count - len(self._live)
        if more > 0:
            more = max(more, len(self._live))
            self._born, self._size, self._site, self._live = (
                np.concatenate([one, np.zeros(more, one.dtype)])
                for one in (self._born, self._size, self._site, self._live)
            )


def _latest(wanted: NDArray[np.bool_], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each operation the last wanted one up to it on the same object; -1: none."""
    places = np.maximum.accumulate(np.where(wanted, np.arange(len(wanted)), -1))
    return np.where(places >= first, places, -1)


def floor_pow2(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Round down to powers of two; 0 stays 0."""
    _, exponent = np.frexp(values.astype(np.float64))
    powers = np.left_shift(np.uint64(1), np.maximum(exponent - 1, 0).astype(np.uint64))
    found: NDArray[np.uint64] = np.where(values > 0, powers, np.uint64(0))
    return found


@dataclass
class _Counts:
    """Counts and bytes of objects by group, lifetime and whether they were freed."""

    by: str
    table: SizeClassTable
    sums: dict[Key, list[int]] = field(default_factory=dict)

    def add(
        self,
        lived: NDArray[np.uint64],
        size: NDArray[np.uint64],
        site: NDArray[np.uint32],
        *,
        freed: bool,
    ) -> None:
        """Adds objects."""
        keys = self._keys(size, site)
        groups = np.stack([*keys, floor_pow2(lived)]).astype(np.uint64)
        unique, place = np.unique(groups, axis=1, return_inverse=True)
        counts = np.bincount(place.ravel(), minlength=unique.shape[1])
        total = np.zeros(unique.shape[1], np.uint64)
        np.add.at(total, place.ravel(), size)
        columns = zip(unique.T.tolist(), counts.tolist(), total.tolist(), strict=True)
        for (cls, number, size_bytes, lifetime), count, total_bytes in columns:
            one = self.sums.setdefault((cls, number, size_bytes, lifetime, freed), [0, 0])
            one[0] += count
            one[1] += total_bytes

    def _keys(
        self, size: NDArray[np.uint64], site: NDArray[np.uint32]
    ) -> tuple[NDArray[np.uint64], ...]:
        """Return class, site and size of each object; 0 if the groups are not by them."""
        none = np.zeros(len(size), np.uint64)
        if self.by == "site":
            return none, site.astype(np.uint64), none
        if self.by == "size":
            return none, none, floor_pow2(size)
        slots = np.asarray(self.table.classes["size_bytes"]).astype(np.uint64)
        cls = np.searchsorted(slots, size) + 1
        large = cls > len(slots)
        slot_bytes = np.where(large, 0, slots[np.minimum(cls, len(slots)) - 1])
        return np.where(large, 0, cls).astype(np.uint64), none, slot_bytes.astype(np.uint64)

    def rows(self) -> NDArray[np.void]:
        """Return all rows."""
        return _in_order(self.sums)


def _in_order(sums: Mapping[Key, Sequence[int]]) -> NDArray[np.void]:
    order = sorted(sums, key=lambda key: (key[:3], not key[4], key[3]))
    return np.array([(*key, *sums[key]) for key in order], LIFETIMES_DTYPE)


def add_lifetimes(found: Sequence[Rows]) -> Rows:
    """Add up lifetimes of several recordings."""
    sums: dict[Key, list[int]] = {}
    for row in (row for rows in found for row in np.asarray(rows).tolist()):
        one = sums.setdefault(row[:5], [0, 0])
        one[0] += row[5]
        one[1] += row[6]
    return as_rows(_in_order(sums))
