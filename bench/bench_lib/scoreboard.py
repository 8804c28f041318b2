# SPDX-License-Identifier: Apache-2.0
"""Verdicts on the rows of targets.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench_lib.contenders import Contender, Field
from bench_lib.runner import Job, Run
from bench_lib.stats import Interval, interval, median, ratio
from bench_lib.targets import Target

MET, MISSED, NO_PEER = "met", "missed", "no peer"
NOISY = 2.0  # an interval whose ends differ by more says little; the row is marked


@dataclass(frozen=True)
class Score:
    """A row of the scoreboard. Values in the row's unit; None where nothing was measured."""

    target: Target
    ours: float | None
    peer_name: str | None
    peer: float | None
    ratio: Interval | None
    verdict: str
    note: str
    instructions: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The row as the command contract names its keys (and `instructions`, `note`)."""
        found = self.ratio
        return {
            "name": self.target.name,
            "unit": self.target.unit,
            "ours": self.ours,
            "peer_name": self.peer_name,
            "peer": self.peer,
            "ratio": found.median if found else None,
            "low": found.low if found else None,
            "high": found.high if found else None,
            "target": self.target.target,
            "verdict": self.verdict,
            "instructions": self.instructions,
            "note": self.note,
        }


def verdict(found: Interval, target: float) -> str:
    """Met when the whole interval is within the target; for 1.0 it is enough to overlap with it."""
    reached = found.low <= target if target == 1.0 else found.high <= target
    return MET if reached else MISSED


def noise_note(found: Interval) -> str:
    """`noisy` when the interval is too wide to trust a verdict, least of all one by overlap."""
    return "noisy: run again on a quiet machine" if found.high > NOISY * found.low else ""


def unmet_reference(target: Target, peers: Sequence[Contender]) -> str:
    """The references that took no part, e.g. `snmalloc >= 0.7`; "" when all did."""
    lacking = [
        str(need)
        for need in target.reference
        if not any(need.met_by(peer.name, peer.version) for peer in peers)
    ]
    return ", ".join(lacking)


def jobs_of(targets: Sequence[Target], field: Field) -> list[Job]:
    """Every (row, contender) that the targets need, once, a row's contenders together."""
    jobs: dict[tuple[str, str, str], Job] = {}
    for target in targets:
        ours = field.ours(target.ours)
        if ours is not None:
            job = Job(target.bench, ours)
            jobs.setdefault(job.key, job)
        for peer in field.peers(target.peers):
            job = Job(target.peer_bench, peer)
            jobs.setdefault(job.key, job)
    return list(jobs.values())


def score(
    target: Target, field: Field, run: Run, instructions: Mapping[str, float] | None = None
) -> Score:
    """The verdict on one row.

    Args:
        target: the row.
        field: who took part.
        run: what was measured.
        instructions: counts by path of bench/paths.c, if known.
    """
    counted = (instructions or {}).get(target.path)
    ours = field.ours(target.ours)
    values = run.values(target.bench, ours, target.metric) if ours else []
    own = median(values) if values else None
    if target.peers == "constant":
        if not values:
            return Score(
                target, None, target.constant, 1.0, None, MISSED, "ours did not run", counted
            )
        found = interval(values)
        outcome = verdict(found, target.target)
        return Score(target, own, target.constant, 1.0, found, outcome, noise_note(found), counted)
    measured = {
        peer: run.values(target.peer_bench, peer, target.metric)
        for peer in field.peers(target.peers)
    }
    ran = {peer: series for peer, series in measured.items() if series}
    lacking = unmet_reference(target, list(ran))
    note = f"needs {lacking}" if lacking else ""
    if not ran:
        return Score(target, own, None, None, None, NO_PEER, note or "no peer ran", counted)
    best = min(ran, key=lambda peer: median(ran[peer]))
    peer_value = median(ran[best])
    if not values:
        outcome = NO_PEER if lacking else MISSED
        why = note or "ours did not run"
        return Score(target, None, best.name, peer_value, None, outcome, why, counted)
    found = ratio(values, ran[best])
    outcome = NO_PEER if lacking else verdict(found, target.target)
    why = note or noise_note(found)
    return Score(target, own, best.name, peer_value, found, outcome, why, counted)
