# SPDX-License-Identifier: Apache-2.0
"""Medians, order-statistic intervals of them, and ratios of interleaved repetitions.

The interval of a median needs no assumption about the distribution: between the k-th smallest and
the k-th largest of n values it holds the median with probability 1 - 2 P(Binomial(n, 1/2) < k)
(David and Nagaraja, "Order Statistics", section 7.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A median and where it lies.

    Attributes:
        median: the middle value, in the unit of the values.
        low: lower bound.
        high: upper bound.
        coverage: probability that [low, high] holds the true median; below 0.95 when there are
            fewer than six values.
        count: number of values.
    """

    median: float
    low: float
    high: float
    coverage: float
    count: int

    def holds(self, value: float) -> bool:
        """Whether the value lies within the bounds."""
        return self.low <= value <= self.high


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the middle two.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("the median of no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def geometric_mean(values: Sequence[float]) -> float:
    """Of values above 0.

    Raises:
        ValueError: there are none, or one is not above 0.
    """
    if not values:
        raise ValueError("the geometric mean of no values")
    return math.exp(sum(map(math.log, values)) / len(values))


def order_rank(count: int, confidence: float = CONFIDENCE) -> tuple[int, float]:
    """The rank k of the interval's ends and the probability that it covers the median.

    Args:
        count: number of values, at least 1.
        confidence: least probability wanted, 0 to 1.

    Returns:
        The largest k >= 1 whose interval has the confidence, else 1; and its true coverage.
    """

    def coverage(rank: int) -> float:
        return 1 - 2 * sum(math.comb(count, i) for i in range(rank)) / (1 << count)

    rank = 1
    while rank + 1 <= (count + 1) // 2 and coverage(rank + 1) >= confidence:
        rank += 1
    return rank, max(coverage(rank), 0.0)


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The median of the values with its order-statistic interval."""
    middle = median(values)
    rank, coverage = order_rank(len(values), confidence)
    ordered = sorted(values)
    return Interval(middle, ordered[rank - 1], ordered[-rank], coverage, len(values))


def ratio(ours: Sequence[float], peer: Sequence[float]) -> Interval:
    """Divides ours by the peer's, repetition by repetition.

    Repetitions with the same number ran next to each other, so a slow moment of the machine hits
    both and cancels.

    Args:
        ours: one value a repetition.
        peer: as many values, in the same order, none of them 0.

    Raises:
        ValueError: the lengths differ.
    """
    if len(ours) != len(peer):
        raise ValueError(f"{len(ours)} values of ours and {len(peer)} of the peer")
    return interval([a / b for a, b in zip(ours, peer, strict=True)])


def describe(found: Interval) -> str:
    """`faster`, `slower`, or `no difference` when the interval holds 1."""
    if found.holds(1.0):
        return "no difference"
    return "faster" if found.high < 1 else "slower"
