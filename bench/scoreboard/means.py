# SPDX-License-Identifier: Apache-2.0
"""Rows of the field over several programs: geometric means, and the rank that they give."""

from __future__ import annotations

from dataclasses import replace

from runner.contenders import Contender, Field
from runner.runs import Run
from runner.stats import geometric_mean, interval, median, ratio

from scoreboard.judge import MISSED, NO_PEER, Rules, bar_of, verdict
from scoreboard.scores import Score, best_peer, ours_in, rivals, unmet_reference
from scoreboard.targets import Target


def by_repetition(target: Target, run: Run, who: Contender) -> list[float]:
    """A geometric mean over the programs a repetition; empty when a program failed in one."""
    columns = [run.values(bench, who, target.metric) for bench in target.programs]
    if not all(run.whole(column) for column in columns):
        return []
    return [geometric_mean(row) for row in zip(*columns, strict=True)]


def score_programs(target: Target, field: Field, run: Run, rules: Rules) -> Score:
    """The verdict on a row with programs, by its geometric mean or its rank."""
    blank = Score(
        target, bar_of(target, rules, len(run.repetitions)), None, None, None, None, "", ""
    )
    ours = ours_in(target, field)
    values = by_repetition(target, run, ours) if ours else []
    if not values:
        return replace(blank, verdict=MISSED, note="ours did not run")
    scored = _rank if target.peers == "rank" else _mean
    return scored(blank, values, field, run)


def _told(blank: Score, lacking: str) -> Score:
    """The row with its verdict; no peer when one of the field is missing."""
    if lacking:
        return replace(blank, verdict=NO_PEER, note=f"needs {lacking}")
    return replace(blank, verdict=verdict(blank.ratio, blank.bar), note=blank.bar.refusal)


def _mean(blank: Score, values: list[float], field: Field, run: Run) -> Score:
    """Ours over the best peer of each program, multiplied up."""
    target = blank.target
    bests = [
        best_peer(replace(target, peers="preload"), bench, field, run) for bench in target.programs
    ]
    lacking = ", ".join(
        dict.fromkeys(filter(None, (unmet_reference(target, b.ran) for b in bests)))
    )
    if any(best.contender is None for best in bests):
        return replace(blank, verdict=NO_PEER, note=f"needs {lacking}")
    others = [geometric_mean(row) for row in zip(*(b.values for b in bests), strict=True)]
    found = ratio(values, others)
    told = replace(
        blank, ours=median(values), peer_name="best of each", peer=median(others), ratio=found
    )
    return _told(told, lacking)


def _rank(blank: Score, values: list[float], field: Field, run: Run) -> Score:
    """The rank of ours among all, 1 being the lowest mean; means are shown over glibc's."""
    target = blank.target
    means = {who: by_repetition(target, run, who) for who in rivals(target, field)}
    ran = {who: series for who, series in means.items() if series}
    lacking = unmet_reference(target, list(ran))
    if not ran:
        return replace(blank, verdict=NO_PEER, note=f"needs {lacking}")
    columns = list(zip(*ran.values(), strict=True))
    ranks = [
        1.0 + sum(value < own for value in column)
        for own, column in zip(values, columns, strict=True)
    ]
    base = next((s for who, s in ran.items() if who.name == "glibc"), [1.0] * len(values))
    relative = {who.name: ratio(series, base).median for who, series in ran.items()}
    best = min(relative, key=relative.__getitem__)
    told = replace(
        blank,
        ours=ratio(values, base).median,
        peer_name=best,
        peer=relative[best],
        ratio=interval(ranks),
        terms=_standing(ratio(values, base).median, relative),
    )
    return _told(told, lacking)


def _standing(ours: float, others: dict[str, float]) -> str:
    """All means in order, glibc = 1."""
    every = sorted([("ours", ours), *others.items()], key=lambda pair: pair[1])
    return "rank by means, glibc = 1: " + ", ".join(f"{n} {value:.3f}" for n, value in every)
