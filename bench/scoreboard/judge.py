# SPDX-License-Identifier: Apache-2.0
"""Decides by which limit a row of the scoreboard is judged, and gives the verdict.

Everything here is fixed before a run: the targets, the machines that weaker ones hold on, and how
often a row is repeated. A row that was measured under other terms is reported, never judged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runner.stats import Interval

from scoreboard.machine import UNKNOWN
from scoreboard.targets import Target, Weaker

MET, MISSED, NO_PEER, REPORTED, SKIPPED = "met", "missed", "no peer", "reported", "skipped"
NOISY = 2.0  # a row whose interval's ends differ by a larger factor is marked as noisy
LEVEL = 1.0  # the one target that a row may reach by overlap: "no difference"


@dataclass(frozen=True)
class Rules:
    """What bench/scoreboard/targets.toml fixes for every row of a run.

    Attributes:
        repetitions: how many a row must have to be judged, no fewer and no more.
        machine: key of this machine's class; UNKNOWN when the file does not list it.
    """

    repetitions: int
    machine: str = UNKNOWN


@dataclass(frozen=True)
class Bar:
    """What a row is judged by in one run.

    Attributes:
        limit: ours / best peer must not exceed it; None: the row has no target.
        weaker: the weaker target that it comes from, if it does.
        refusal: why the row is reported although it has a target; "": it is judged.
    """

    limit: float | None
    weaker: Weaker | None = None
    refusal: str = ""

    def spared(self, share: float) -> Bar:
        """The bar with a limit of at least 1 plus the share, if there are both."""
        if self.limit is None or share == 0:
            return self
        return replace(self, limit=max(self.limit, round(1 + share, 3)))

    @property
    def is_judged(self) -> bool:
        """Whether there is a verdict."""
        return self.limit is not None and not self.refusal


def bar_of(target: Target, rules: Rules, repetitions: int) -> Bar:
    """What a row is judged by.

    Args:
        target: the row.
        rules: of the file of targets.
        repetitions: how many were made. A row that compares counts has none: they are exact.
    """
    if target.target is None:
        return Bar(None)
    weaker = target.weaker_on(rules.machine)
    limit = target.target if weaker is None else weaker.target
    refusal = ""
    if target.weaker and rules.machine == UNKNOWN:
        refusal = "machine class unknown"
    elif target.peers != "counts" and repetitions != rules.repetitions:
        refusal = f"repetitions made: {repetitions}, fixed: {rules.repetitions}"
    return Bar(limit, weaker, refusal)


def verdict(found: Interval | None, bar: Bar) -> str:
    """The verdict on a row that was compared; None: ours did not run."""
    if not bar.is_judged or bar.limit is None:
        return REPORTED
    if found is None:
        return MISSED
    return MET if reaches(found, bar.limit, may_overlap=bar.weaker is None) else MISSED


def reaches(found: Interval, limit: float, *, may_overlap: bool) -> bool:
    """Whether the whole interval is within the limit; for a limit of 1.0 overlap may be enough.

    A noisy interval overlaps with anything, so its median must be within the limit as well. For a
    weaker target overlap is never enough.
    """
    if may_overlap and limit == LEVEL:
        return found.low <= limit and (found.median <= limit or not noise_note(found))
    return found.high <= limit


def is_eased(target: Target, found: Interval | None, bar: Bar) -> bool:
    """Met by a weaker target, but not what was asked."""
    if target.target is None or bar.weaker is None or verdict(found, bar) != MET or found is None:
        return False
    return not reaches(found, target.target, may_overlap=True)


def noise_note(found: Interval) -> str:
    """`noisy` when the interval is too wide to trust a verdict, least of all one by overlap."""
    return "noisy: run again on a quiet machine" if found.high > NOISY * found.low else ""
