# SPDX-License-Identifier: Apache-2.0
"""Statistics of pauses: a histogram of lengths, and the minimum mutator utilisation.

The minimum mutator utilisation of a window length is the smallest share of any such window that is
free of pauses (Cheng and Blelloch, "A parallel, real-time garbage collector", 2001).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanwise.errors import InvalidError
from spanwise.results.rows import Rows, as_rows

STEPS = 4
"""Buckets of a histogram per power of two."""

WINDOWS = 41
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
        least = max(min(float(lengths.min(initial=total)), total) / 2, 1.0)
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
        windows_ns: lengths of windows; None: 41 from half of the shortest pause to `total_ns`.

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
        rows["utilisation"][row] = min(max(1 - float(within.max()) / window, 0.0), 1.0)
    return as_rows(rows)
