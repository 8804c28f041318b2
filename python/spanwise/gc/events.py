# SPDX-License-Identifier: Apache-2.0
"""Pauses and events of a collector: histograms, minimum mutator utilisation, rows of intervals."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanwise import _format
from spanwise._lib import ffi, lib
from spanwise.errors import InvalidError
from spanwise.results.rows import Result, Rows, Tabular, Value, as_rows, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes


STEPS = 4
"""Buckets of a histogram per power of two."""

WINDOWS = 61
"""Default number of window lengths."""

HISTOGRAM_DTYPE = np.dtype([("from_ns", np.uint64), ("to_ns", np.uint64), ("calls", np.uint64)])
UTILISATION_DTYPE = np.dtype([("window_ns", np.float64), ("utilisation", np.float64)])


def _bucket_edges(buckets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the lower edges of buckets: 0, 1, 2, 3, then `STEPS` equal steps per doubling."""
    doubling = np.maximum(buckets // STEPS - 1, 0)
    return np.where(buckets < STEPS, buckets, (STEPS + buckets % STEPS) << doubling).astype(
        np.uint64
    )


def pause_histogram(ns: ArrayLike) -> Rows:
    """Return a histogram of pauses, in buckets a fifth to a quarter wide.

    Args:
        ns: lengths of the pauses in whole nanoseconds, below 2**53.

    Returns:
        `from_ns` (inclusive), `to_ns` (exclusive) and `calls` of each bucket, from the first to
        the last that is not empty.

    Raises:
        InvalidError: a length is negative or too large.
    """
    lengths = np.atleast_1d(np.asarray(ns)).astype(np.float64).ravel()
    if len(lengths) and not (lengths.min() >= 0 and lengths.max() < 2**53):
        raise InvalidError("lengths of pauses must be 0 to 2**53 nanoseconds")
    whole = lengths.astype(np.int64)
    doubling = np.maximum(np.frexp(whole)[1].astype(np.int64) - 3, 0)  # STEPS is 2**2
    index = np.where(whole < STEPS, whole, doubling * STEPS + (whole >> doubling))
    first = int(index.min()) if len(index) else 0
    counts = np.bincount(index - first)
    buckets = np.arange(first, first + len(counts), dtype=np.int64)
    rows = np.zeros(len(counts), HISTOGRAM_DTYPE)
    rows["from_ns"], rows["to_ns"] = _bucket_edges(buckets), _bucket_edges(buckets + 1)
    rows["calls"] = counts
    return as_rows(rows)


def _joined(
    starts: NDArray[np.float64], ends: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Merge pauses into ascending intervals that neither overlap nor touch."""
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.r_[True, starts[1:] > ends[:-1]]
    return starts[first], ends[np.r_[np.flatnonzero(first)[1:] - 1, len(ends) - 1]]


def _windows(
    given: Iterable[float] | None, lengths: NDArray[np.float64], total: float
) -> NDArray[np.float64]:
    if given is None:
        paused = lengths[lengths > 0]
        least = max(float(paused.max() / 100), float(paused.min())) if len(paused) else total / 100
        return np.geomspace(min(least, total), total, WINDOWS)
    windows = np.array([float(window) for window in given])
    if len(windows) and not (windows.min() > 0 and windows.max() <= total):
        raise InvalidError(f"windows must be above 0 and at most the measured time, {total:.0f} ns")
    return windows


def mutator_utilisation(
    starts_ns: ArrayLike,
    lengths_ns: ArrayLike,
    total_ns: float,
    windows_ns: Iterable[float] | None = None,
) -> Rows:
    """Return the minimum mutator utilisation: the smallest pause-free share of any window.

    The result is exact: a worst window begins where a pause begins, ends where one ends, or is at
    an end of the measured time.

    Args:
        starts_ns: starts of the pauses, from the beginning of the measured time.
        lengths_ns: lengths of the pauses.
        total_ns: length of the measured time; pauses are cut off there.
        windows_ns: lengths of windows; None: 61 from a hundredth of the longest pause, or the
            shortest pause if that is longer, to `total_ns`.

    Returns:
        `window_ns` and `utilisation` (0 to 1), one row per window.

    Raises:
        InvalidError: the time is not positive, starts and lengths differ in number, or a window is
            not positive or is longer than the time.
    """
    total = float(total_ns)
    begun = np.atleast_1d(np.asarray(starts_ns)).astype(np.float64).ravel()
    lengths = np.atleast_1d(np.asarray(lengths_ns)).astype(np.float64).ravel()
    if not total > 0 or len(begun) != len(lengths):
        raise InvalidError("the time must be above 0, and each pause needs a start and a length")
    windows = _windows(windows_ns, lengths, total)
    rows = np.ones(len(windows), UTILISATION_DTYPE)
    rows["window_ns"] = windows
    if len(begun) == 0:
        return as_rows(rows)
    starts, ends = _joined(np.clip(begun, 0, total), np.clip(begun + lengths, 0, total))
    # Paused time before each start and end; it is linear between these points.
    times = np.r_[0.0, np.c_[starts, ends].ravel(), total]
    paused = np.r_[0.0, np.c_[np.zeros(len(starts)), ends - starts].ravel().cumsum()]
    paused = np.r_[paused, paused[-1]]
    for row, window in enumerate(windows):
        candidates = np.clip(np.r_[starts, ends - window], 0, total - window)
        within = np.interp(candidates + window, times, paused) - np.interp(
            candidates, times, paused
        )
        rows["utilisation"][row] = min(max(round(1 - float(within.max()) / window, 12), 0.0), 1.0)
    return as_rows(rows)


EVENT_KINDS = ("cycle", "pause", "mark", "sweep", "assist", "wait", "finalize")
"""In the order of sw_gc_event_kind; `CollectorEvents` explains them."""

_C_DTYPE = np.dtype([(name, np.uint64) for name in ("start_ns", "ns", "cycle", "thread", "kind")])
EVENT_DTYPE = np.dtype(
    [
        ("kind", "U8"),
        ("cycle", np.uint64),
        ("thread", np.uint64),
        ("start_ns", np.uint64),
        ("ns", np.uint64),
    ]
)
"""An interval: one of EVENT_KINDS, the number of the latest cycle (0: none), the thread id of the
operating system, the start since the heap was created, and the duration."""

SUM_DTYPE = np.dtype([("kind", "U8"), ("events", np.uint64), ("ns", np.uint64)])
_BLOCK = 1 << 12


@dataclass(frozen=True, eq=False)
class CollectorEvents(Value, Result, Tabular):
    """The events of a collected heap, in the order of their starts.

    The kinds, each an interval:

    - `cycle`: from the start of a cycle to its end, with the program's time in between.
    - `pause`: the program was stopped while a call worked on a cycle (stop-the-world).
    - `mark`: a piece of marking, in a pause or by a background thread; the first scans the roots.
    - `sweep`: a piece of sweeping, in a pause, by a background thread or by an allocation.
    - `assist`: `CollectedHeap.new()` worked on a cycle, or waited for marking, as the pace demands.
    - `wait`: from a stop request until the last thread stopped.
    - `finalize`: a finalizer ran.

    `mutator()` returns the program's own time: from `begin_ns` to `total_ns`, without the pauses.

    Attributes:
        source: name of the heap.
        array: `kind`, `cycle` (the number of the latest; 0: none), `thread`, `start_ns` (since the
            heap was created) and `ns`. If two events have the same start, the longer one comes
            first, because it contains the other.
        lost: events that newer ones overwrote.
        total_ns: age of the heap when the events were read.
        begin_ns: its age when recording began; if events were lost, the end of the first event
            after them.
    """

    source: str
    array: Rows
    lost: int
    total_ns: int = field(compare=False)
    begin_ns: int = field(default=0, compare=False)

    def of(self, kind: str) -> Rows:
        """Return the rows of one kind."""
        return as_rows(np.asarray(self.array)[self.array["kind"] == kind])

    def sums(self) -> Rows:
        """Return the number of events of each kind, and their total duration.

        Returns:
            `kind`, `events` and `ns`, one row per kind.
        """
        rows = np.zeros(len(EVENT_KINDS), SUM_DTYPE)
        for row, kind in zip(rows, EVENT_KINDS, strict=True):
            mine = self.of(kind)
            row["kind"], row["events"], row["ns"] = kind, len(mine), mine["ns"].sum()
        return as_rows(rows)

    def mutator(self) -> Rows:
        """Return when the program ran: from `begin_ns` to `total_ns`, without the pauses.

        Returns:
            `start_ns` and `ns`, one row per interval.
        """
        pauses = self.of("pause")
        starts, ends = pauses["start_ns"].astype(np.int64), pauses["ns"].astype(np.int64)
        ends = np.maximum.accumulate(starts + ends) if len(starts) else starts
        begun = np.maximum(np.r_[self.begin_ns, ends], self.begin_ns)
        ended = np.r_[starts, self.total_ns]
        runs = ended > begun
        made = np.zeros(int(runs.sum()), [("start_ns", np.uint64), ("ns", np.uint64)])
        made["start_ns"], made["ns"] = begun[runs], (ended - begun)[runs]
        return as_rows(made)

    def utilisation(self, windows_ns: Iterable[float] | None = None) -> Rows:
        """Return the minimum mutator utilisation; see `spanwise.mutator_utilisation()`.

        Args:
            windows_ns: lengths of windows; None: 61 up to the recorded time, which is from
                `begin_ns` to `total_ns`.

        Raises:
            InvalidError: nothing was recorded, or a window is not positive or is longer than the
                recorded time.
        """
        pauses, recorded = self.of("pause"), self.total_ns - self.begin_ns
        if recorded <= 0:
            raise InvalidError(
                f"{self.source}: no events were recorded; call record_events() first"
            )
        starts, lengths = pauses["start_ns"].astype(np.int64), pauses["ns"].astype(np.int64)
        own = starts + lengths > self.begin_ns
        starts, lengths = starts[own] - self.begin_ns, lengths[own]
        return mutator_utilisation(starts, lengths, recorded, windows_ns)

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write the events as lanes for Perfetto and chrome://tracing: one per kind and thread.

        Kinds: mutator, assist, mark, sweep, pause, wait, finalize and cycle.

        Args:
            path: of the file, JSON in the Trace Event Format; it is written whole or not at all.

        Raises:
            OSError: the system refused to write.
        """
        from spanwise.report.export import write_lanes  # noqa: PLC0415

        write_lanes(self, path)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the events over time, one lane per kind."""
        return draw("lanes", self.array, self.mutator(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "source": self.source,
            "begin_ns": self.begin_ns,
            "total_ns": self.total_ns,
            "lost": self.lost,
            "events": self.array.to_dicts(),
        }

    def __str__(self) -> str:
        sums = [
            f"{row['kind']} {row['events']} ({_format.digits(int(row['ns']) / 1e6)} ms)"
            for row in self.sums()
            if row["events"]
        ]
        lost = f", {self.lost} lost" if self.lost else ""
        count = _format.plural(len(self.array), "event")
        whole = f"{_format.digits((self.total_ns - self.begin_ns) / 1e6)} ms"
        kinds = f": {', '.join(sums)}" if sums else ""
        return f"{self.source}: {count} in {whole}{lost}{kinds}"


def take_events(c_gc: Any) -> tuple[NDArray[np.void], int, int]:
    """Take all finished events, as rows of EVENT_DTYPE, in the order of their ends.

    Returns:
        The rows, the number of lost events, and the end of the first event after the last lost one.
    """
    block, lost, lost_now = np.zeros(_BLOCK, _C_DTYPE), 0, ffi.new("uint64_t *")
    complete_ns = 0
    found = []
    count = _BLOCK
    while count == _BLOCK:
        buffer = ffi.from_buffer("sw_gc_event[]", block)
        count = int(lib.sw_gc_take_events(c_gc, buffer, _BLOCK, lost_now))
        if lost_now[0]:
            lost += int(lost_now[0])
            complete_ns = int(block["start_ns"][0] + block["ns"][0])
        found.append(block[:count].copy())
    taken = np.concatenate(found)
    rows = np.zeros(len(taken), EVENT_DTYPE)
    rows["kind"] = np.array(EVENT_KINDS)[taken["kind"].astype(np.intp)]
    for name in ("cycle", "thread", "start_ns", "ns"):
        rows[name] = taken[name]
    return rows, lost, complete_ns


def as_events(
    source: str, parts: list[NDArray[np.void]], lost: int, total_ns: int, begin_ns: int = 0
) -> CollectorEvents:
    """Merge batches of events, which are ordered by end, into one list ordered by start."""
    rows = np.concatenate([np.zeros(0, EVENT_DTYPE), *parts])
    rows = rows[np.lexsort((-rows["ns"].astype(np.int64), rows["start_ns"]))]
    ended = int((rows["start_ns"] + rows["ns"]).max(initial=0))
    return CollectorEvents(source, as_rows(rows), lost, max(total_ns, ended), begin_ns)
