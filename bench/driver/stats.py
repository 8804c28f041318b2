# SPDX-License-Identifier: Apache-2.0
"""Medians with order-statistic intervals, and ratios of interleaved repetitions.

The interval of a median needs no assumption about the distribution: the k-th smallest and the k-th
largest of n values enclose the median with probability 1 - 2 P(Binomial(n, 1/2) < k) (David and
Nagaraja, "Order Statistics", section 7.1).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A median and its confidence interval.

    Attributes:
        median: in the unit of the values.
        low: lower bound.
        high: upper bound.
        coverage: probability that the interval contains the true median; below 0.95 for < 6 values.
    """

    median: float
    low: float
    high: float
    coverage: float


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of values above 0.

    Raises:
        ValueError: there are no values, or one is not above 0.
    """
    if not values:
        raise ValueError("the geometric mean of no values")
    return math.exp(sum(map(math.log, values)) / len(values))


def order_rank(count: int, confidence: float = CONFIDENCE) -> tuple[int, float]:
    """Return the rank k of the interval's ends and its true coverage.

    Args:
        count: number of values, at least 1.
        confidence: the minimum coverage, 0 to 1.

    Returns:
        The largest k >= 1 whose interval reaches the confidence, else 1; and its coverage.
    """

    def coverage(rank: int) -> float:
        return 1 - 2 * sum(math.comb(count, i) for i in range(rank)) / (1 << count)

    rank = 1
    while rank + 1 <= (count + 1) // 2 and coverage(rank + 1) >= confidence:
        rank += 1
    return rank, max(coverage(rank), 0.0)


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the median of at least one value with its order-statistic interval."""
    rank, coverage = order_rank(len(values), confidence)
    ordered = sorted(values)
    return Interval(statistics.median(values), ordered[rank - 1], ordered[-rank], coverage)


def ratio(ours: Sequence[float], peer: Sequence[float]) -> Interval:
    """Divide ours by the peer's, repetition by repetition.

    Both values of a repetition were measured close together, so a slow phase of the machine affects
    both and cancels out.

    Args:
        ours: one value per repetition.
        peer: as many values in the same order, none of them 0.

    Raises:
        ValueError: the lengths differ.
    """
    return interval([a / b for a, b in zip(ours, peer, strict=True)])
