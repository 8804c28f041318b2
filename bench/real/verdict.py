# SPDX-License-Identifier: Apache-2.0
"""Geometric means over programs, and whether ours stands where it must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.contenders import PRELOADS, SPANWISE
from runner.stats import Interval, geometric_mean, ratio
from scoreboard.judge import MISSED, NO_PEER, Bar, noise_note, verdict

from real.field import GLIBC
from real.measure import METRICS, Measured

# By metric the limit of the mean over programs (ours / best peer), and its name in tables.
TARGETS = {"wall_s": 1.0, "cpu_s": 1.0, "peak_rss_bytes": 1.1}
TITLES = {"wall_s": "time", "cpu_s": "CPU time", "peak_rss_bytes": "peak RSS"}
PEERS = (GLIBC, *PRELOADS)


@dataclass(frozen=True)
class Standing:
    """One metric, over all programs that count.

    Attributes:
        metric: of measure.METRICS.
        means: contender to median of the geometric means, glibc = 1.
        peer: the best one; "" when nothing can be compared.
        ratio: ours / best peer with its interval, or None.
        target: upper limit of the ratio.
        verdict: met, missed, no peer.
        note: why not, or "".
    """

    metric: str
    means: Mapping[str, float]
    peer: str
    ratio: Interval | None
    target: float
    verdict: str
    note: str = ""


def counting(measured: Measured) -> list[str]:
    """Programs that every contender ran, with glibc's output, in every repetition."""
    return [
        program.name
        for program in measured.programs
        if all(measured.values(program.name, c.name, METRICS[0]) for c in measured.contenders)
    ]


def means_by_repetition(
    measured: Measured, programs: Sequence[str], contender: str, metric: str
) -> list[float]:
    """One geometric mean over the programs a repetition."""
    columns = [measured.values(program, contender, metric) for program in programs]
    return [geometric_mean(row) for row in zip(*columns, strict=True)]


def stand(measured: Measured, metric: str, absent: Sequence[str]) -> Standing:
    """The verdict of one metric.

    The target is met if the whole interval is within it; a target of 1.0 also if the interval holds
    1.

    Args:
        measured: what was run.
        metric: of measure.METRICS.
        absent: allocators of PEERS that did not take part; with any, the verdict is `no peer`.
    """
    target = TARGETS[metric]
    programs = counting(measured)
    if not programs:
        return Standing(metric, {}, "", None, target, MISSED, "no program counts")
    series = {
        contender.name: means_by_repetition(measured, programs, contender.name, metric)
        for contender in measured.contenders
    }
    means = {name: ratio(values, series[GLIBC]).median for name, values in series.items()}
    peer = min((name for name in series if name != SPANWISE), key=means.__getitem__)
    found = ratio(series[SPANWISE], series[peer])
    if absent:
        return Standing(metric, means, peer, found, target, NO_PEER, f"lacks {', '.join(absent)}")
    return Standing(
        metric, means, peer, found, target, verdict(found, Bar(target)), noise_note(found)
    )


def missing_peers(measured: Measured) -> list[str]:
    """Allocators that the target names and that did not take part."""
    present = {contender.name for contender in measured.contenders}
    return [name for name in PEERS if name not in present]
