# SPDX-License-Identifier: Apache-2.0
"""A median and its confidence interval of order statistics.

Nothing is assumed of the distribution: between the k-th least and the k-th most of n values the
median lies with a probability of 1 - 2 P(Binomial(n, 1/2) < k) (H. A. David and H. N. Nagaraja,
"Order statistics", 3rd edition, 2003, section 7.1).
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
    """The shortest interval of order statistics that is at least so sure, or all of the values.

    Args:
        values: at least one.
        least_sure: probability, 0 to 1, that the interval is to have; fewer values give less.
    """
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
