# SPDX-License-Identifier: Apache-2.0
"""A median and its confidence interval of order statistics.

It is distribution-free: the median is between the k-th smallest and the k-th largest of n values
with probability 1 - 2 P(Binomial(n, 1/2) < k) (H. A. David and H. N. Nagaraja, "Order statistics",
3rd edition, 2003, section 7.1).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple


class Interval(NamedTuple):
    """A median and its interval, in the unit of the values; `sure` is the probability, 0 to 1."""

    median: float
    low: float
    high: float
    sure: float


def interval_of(values: Iterable[float], least_sure: float = 0.9) -> Interval:
    """Return the shortest interval of order statistics with at least this confidence."""
    ordered = sorted(values)
    count, rank = len(ordered), 1
    while 2 * (rank + 1) <= count + 1 and _sure(count, rank + 1) >= least_sure:
        rank += 1
    middle = statistics.median(ordered)
    return Interval(middle, ordered[rank - 1], ordered[-rank], max(0.0, _sure(count, rank)))


def _sure(count: int, rank: int) -> float:
    below = sum(math.comb(count, i) for i in range(rank))
    return float(1 - 2 * below / 2**count)


__all__ = ["Interval", "interval_of"]
