# SPDX-License-Identifier: Apache-2.0
"""The rows of targets.toml as they were measured: who ran, the best peer, ratio and verdict."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from runner.contenders import Contender, Field
from runner.counts import Counts
from runner.runs import Job, Race, Run
from runner.stats import Interval, median, ratio

from scoreboard.judge import (
    MET,
    MISSED,
    NO_PEER,
    SKIPPED,
    Bar,
    Rules,
    bar_of,
    is_eased,
    noise_note,
    verdict,
)
from scoreboard.targets import PROPER, Target


@dataclass(frozen=True)
class Score:
    """A row of the scoreboard. Values in the row's unit; None where nothing was measured.

    `bar` is what it is judged by; `terms` says who competes and how, where that is not the rule,
    and what the others reached.
    """

    target: Target
    bar: Bar
    ours: float | None
    peer_name: str | None
    peer: float | None
    ratio: Interval | None
    verdict: str
    note: str
    counts: Counts | None = None
    terms: str = ""

    @property
    def is_eased(self) -> bool:
        """Met by a weaker target, but not what was asked."""
        return self.verdict == MET and is_eased(self.target, self.ratio, self.bar)

    def as_json(self) -> dict[str, Any]:
        """The row as the command contract names its keys, and more."""
        found = self.ratio
        told = "; ".join(filter(None, (self.note, self.terms)))
        return {
            "name": self.target.name,
            "unit": self.target.unit,
            "ours": self.ours,
            "peer_name": self.peer_name,
            "peer": self.peer,
            "ratio": found.median if found else None,
            "low": found.low if found else None,
            "high": found.high if found else None,
            "target": self.bar.limit,
            "verdict": self.verdict,
            "instructions": self.counts.instructions if self.counts else None,
            "counts": self.counts.as_json() if self.counts else None,
            "note": told,
            "cause": self.target.cause if self.verdict == MISSED or self.is_eased else "",
            "asked": self.target.target,
            "weaker": asdict(self.bar.weaker) if self.bar.weaker else None,
            "decision": self.target.decision,
        }


def unmet_reference(target: Target, peers: Sequence[Contender]) -> str:
    """The references that took no part, e.g. `snmalloc >= 0.7`; "" when all did."""
    lacking = [
        str(need)
        for need in target.reference
        if not any(need.met_by(peer.name, peer.version) for peer in peers)
    ]
    return ", ".join(lacking)


def free_gb() -> float:
    """Memory that is available now, in 10^9 bytes; infinite if the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123  (no regular file)
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024 / 1e9
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9


def lacks_memory(target: Target, free: float) -> str:
    """Why a row cannot run on a machine with so many GB free; "" when it can."""
    if target.needs_gb <= free:
        return ""
    return f"needs {target.needs_gb:g} GB of free memory, there are {free:.1f}"


def ours_in(target: Target, field: Field) -> Contender | None:
    """Our contender of a row, with the row's environment."""
    ours = field.ours(target.ours)
    return None if ours is None else replace(ours, variables=target.environment)


def rivals(target: Target, field: Field) -> list[Contender]:
    """The peers that compete in a row."""
    basis = "preload" if target.programs else target.peers
    return [peer for peer in field.peers(basis) if target.admits(peer.name, peer.version)]


def wanted_peers(target: Target, field: Field) -> list[Contender]:
    """The peers that a row shows: those that compete, and those that stand apart."""
    return rivals(target, field) if target.only else field.peers(target.peers)


def races_of(targets: Sequence[Target], field: Field) -> list[Race]:
    """The races of all rows, so that runner.hopeless drops no peer that could win one."""
    rows = [row for row in targets if row.peers in PROPER and not row.is_field]
    pairs = [(row, bench) for row in rows for bench in (row.peer_bench, row.base) if bench]
    return [[Job(bench, peer) for peer in rivals(row, field)] for row, bench in pairs]


def jobs_of(targets: Sequence[Target], field: Field) -> list[Job]:
    """Every (row, contender) that the targets need, once, a row's contenders together."""
    rows: dict[str, dict[Contender, Job]] = {}
    for target in targets:
        if target.peers == "counts":
            continue
        ours = ours_in(target, field)
        pairs = [(target.bench, target.peer_bench)]
        if target.programs:
            pairs = [(bench, bench) for bench in target.programs]
        if target.base:
            pairs.append((target.base, target.base))
        for bench, other in pairs:
            wanted = [(other, peer) for peer in wanted_peers(target, field)]
            if ours is not None:
                wanted.insert(0, (bench, ours))
                if target.peers == "self":
                    wanted.append((other, ours))
            for name, contender in wanted:
                rows.setdefault(name, {}).setdefault(contender, Job(name, contender))
    return [job for row in rows.values() for job in row.values()]


@dataclass(frozen=True)
class Best:
    """The best peer of a row: its values by repetition, and who took part."""

    contender: Contender | None
    values: list[float]
    ran: list[Contender]


def best_peer(target: Target, bench: str, field: Field, run: Run) -> Best:
    """The rival with the lowest median among those that ran in every repetition."""
    measured = {peer: run.values(bench, peer, target.metric) for peer in rivals(target, field)}
    ran = [peer for peer, series in measured.items() if series]
    whole = [peer for peer in ran if run.whole(measured[peer])]
    if not whole:
        return Best(None, [], ran)
    best = min(whole, key=lambda peer: median(measured[peer]))
    return Best(best, measured[best], ran)


def score(
    target: Target,
    field: Field,
    run: Run,
    rules: Rules,
    *,
    counts: Mapping[str, Counts] | None = None,
    free: float = math.inf,
) -> Score:
    """The verdict on one row.

    Args:
        target: the row.
        field: who took part.
        run: what was measured.
        rules: what was fixed before.
        counts: what each path of Target.paths executes, where known.
        free: memory that the run could have, GB; a row that needs more is skipped.
    """
    bar = bar_of(target, rules, len(run.repetitions))
    blank = Score(target, bar, None, None, None, None, "", "")
    lack = lacks_memory(target, free)
    if lack:
        return replace(blank, verdict=SKIPPED, note=lack)
    found = _score(blank, field, run, counts or {})
    return replace(found, terms=_terms(target, field, run))


def _terms(target: Target, field: Field, run: Run) -> str:
    """Who competes and how, and the figures of peers that do not; "" if all compete."""
    if not target.because:
        return ""
    parts = []
    if target.environment:
        parts.append("ours with " + " ".join(f"{k}={v}" for k, v in target.environment))
    if target.only:
        parts.append(f"against {', '.join(map(str, target.only))} alone")
    if target.apart:
        parts.append(f"{', '.join(_apart(target, field, run))} not compared")
    return f"{', '.join(parts)}: {target.because}"


def _apart(target: Target, field: Field, run: Run) -> list[str]:
    """`mimalloc3 4.90 ns` for each peer that stands apart; what is asked for when none was run."""
    peers = [p for p in field.peers(target.peers) if not target.admits(p.name, p.version)]
    series = {peer: run.values(target.peer_bench, peer, target.metric) for peer in peers}
    shown = [
        f"{p.name} {median(values):.2f} {target.unit}" for p, values in series.items() if values
    ]
    return shown or [str(each) for each in target.apart]


def _score(blank: Score, field: Field, run: Run, known: Mapping[str, Counts]) -> Score:
    target = blank.target
    if target.peers == "counts":
        return _score_counts(blank, known)
    beside = known.get(target.paths[0]) if target.paths else None
    blank = replace(blank, counts=beside)
    ours = ours_in(target, field)
    values = run.values(target.bench, ours, target.metric) if ours else []
    if values:
        blank = replace(blank, ours=median(values))
    if target.peers in PROPER:
        return _score_peers(blank, values, field, run)
    if target.peers == "self":
        other = run.values(target.peer_bench, ours, target.metric) if ours else []
        name = f"itself at {target.peer_bench}"
        known_value = median(other) if other else None
    else:
        other, name, known_value = [1.0] * len(values), target.constant, 1.0
    blank = replace(blank, peer_name=name, peer=known_value)
    if not values or not other:
        return _unmeasured(blank, "ours did not run")
    return _judged(blank, ratio(values, other))


def _unmeasured(blank: Score, why: str, lacking: str = "") -> Score:
    """A row without a ratio: missed, unless it is not judged or a reference is missing."""
    outcome = NO_PEER if lacking else verdict(None, blank.bar)
    return replace(blank, verdict=outcome, note=f"needs {lacking}" if lacking else why)


def _judged(blank: Score, found: Interval, lacking: str = "") -> Score:
    outcome = NO_PEER if lacking else verdict(found, blank.bar)
    notes = [f"needs {lacking}"] if lacking else [blank.bar.refusal, noise_note(found)]
    return replace(blank, ratio=found, verdict=outcome, note="; ".join(filter(None, notes)))


def _score_peers(blank: Score, values: list[float], field: Field, run: Run) -> Score:
    """A row that is compared with the best of other allocators."""
    target = blank.target
    best = best_peer(target, target.peer_bench, field, run)
    lacking = unmet_reference(target, best.ran)
    if best.contender is None:
        return replace(
            blank, verdict=NO_PEER, note=f"needs {lacking}" if lacking else "no peer ran"
        )
    blank = replace(blank, peer_name=best.contender.name, peer=median(best.values))
    blank = replace(blank, bar=blank.bar.spared(target.spare / median(best.values)))
    base_ours: list[float] = []
    ours = ours_in(target, field)
    base = best_peer(target, target.base, field, run) if target.base else None
    if base is not None and ours is not None:
        base_ours = run.values(target.base, ours, target.metric)
    if not values or (base is not None and not (base_ours and base.values)):
        why = "ours did not run" if not values else f"{target.base} did not run"
        return _unmeasured(blank, why, lacking)
    if base is None:
        return _judged(blank, ratio(values, best.values), lacking)
    here = [a / b for a, b in zip(values, best.values, strict=True)]
    there = [a / b for a, b in zip(base_ours, base.values, strict=True)]
    return _judged(blank, ratio(here, there), lacking)


def _score_counts(blank: Score, known: Mapping[str, Counts]) -> Score:
    """A row that compares the instructions of two paths: exact, without an interval."""
    ours, other = (known.get(path) for path in blank.target.paths)
    blank = replace(blank, peer_name=blank.target.peer_bench)
    if ours is None or other is None:
        return replace(blank, verdict=NO_PEER, note="was not counted: it needs valgrind")
    share = ours.instructions / other.instructions
    blank = replace(
        blank,
        ours=ours.instructions,
        peer_name=f"itself at {blank.target.peer_bench}",
        peer=other.instructions,
        counts=ours,
    )
    return _judged(blank, Interval(share, share, share, 1.0, 1))
