# SPDX-License-Identifier: Apache-2.0
"""Runs rows in interleaved repetitions and judges each by its target.

Targets and repetitions are fixed in bench/targets.toml before a run. A run with fewer repetitions
prints ratios without verdicts.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from driver.contenders import OURS, Contender, Machine
from driver.measure import Figures, measure
from driver.rows import Row
from driver.stats import Interval, geometric_mean, interval, ratio
from driver.tools import BenchError, NoPeerError

MET, MISSED, NO_PEER, FAILED = "met", "missed", "no peer", "failed"
REPORTED, SKIPPED = "reported", "skipped"
NOISY = 2.0  # if the interval's ends differ by a larger factor, overlap with 1 is not enough
LEVEL = 1.0  # the target that "no difference" meets
GLIBC = "glibc"


@dataclass
class Plan:
    """A row with its contenders.

    Attributes:
        row: of targets.toml.
        ours: our contender.
        peers: the other contenders.
        note: why the row cannot be measured; "" if it can.
        verdict: the verdict if the row cannot be measured.
    """

    row: Row
    ours: Contender | None = None
    peers: list[Contender] = field(default_factory=list)
    note: str = ""
    verdict: str = ""


@dataclass(frozen=True)
class Score:
    """The result of a row.

    Attributes:
        row: of targets.toml.
        ours: median of our values, in the row's unit.
        peer_name: the best peer, "" without one.
        peer: its median.
        ratio: ours over the best peer, or over the limit.
        verdict: met, missed, no peer, failed, skipped or reported.
        note: why there is no verdict, or the results of the others.
    """

    row: Row
    ours: float | None
    peer_name: str
    peer: float | None
    ratio: Interval | None
    verdict: str
    note: str = ""


Values = Mapping[Contender, list[Figures]]


def free_gb() -> float:
    """Return the free memory in 10^9 bytes."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9


def plan(row: Row, machine: Machine) -> Plan:
    """Find the contenders of a measured row.

    Raises:
        BenchError: a program of ours is missing, or a source is invalid.
    """
    if row.needs_gb > free_gb():
        return Plan(row, note=f"needs {row.needs_gb:g} GB of free memory", verdict=SKIPPED)
    (ours,) = machine.contenders(row.ours)
    peers: list[Contender] = []
    lacking: list[str] = []
    for source in row.peers:
        try:
            peers += machine.contenders(source)
        except NoPeerError as error:
            lacking.append(str(error))
    peers = [peer for peer in peers if not any(map(peer.meets, row.without))]
    lacking += [f"needs {n}" for n in row.needs if not any(peer.meets(n) for peer in peers)]
    if lacking:
        return Plan(row, ours, peers, note="; ".join(lacking), verdict=NO_PEER)
    return Plan(row, ours, peers)


def execute(
    plans: Sequence[Plan], repetitions: int, *, quick: bool, say: Callable[[str], None]
) -> tuple[dict[Contender, list[Figures]], dict[Contender, str]]:
    """Run every contender once per repetition, row by row.

    Args:
        plans: plans of the rows; rows with the same contender share its runs.
        repetitions: at least 1.
        quick: short runs.
        say: called with a line of progress.

    Returns:
        Figures by contender, one entry per repetition; and the error of each failed contender,
        which is not run again.
    """
    values: dict[Contender, list[Figures]] = {}
    failures: dict[Contender, str] = {}
    for repetition in range(repetitions):
        for number, one in enumerate(plans, 1):
            if one.verdict in (SKIPPED, NO_PEER):
                continue
            say(f"repetition {repetition + 1}/{repetitions}, row {number}/{len(plans)}")
            for who in (one.ours, *one.peers):
                if who is None or who in failures or len(values.get(who, ())) > repetition:
                    continue
                try:
                    values.setdefault(who, []).append(measure(who, quick=quick))
                except BenchError as error:
                    failures[who] = str(error)
    return values, failures


def series(values: Values, who: Contender, name: str, per: float = 1.0) -> list[float]:
    """Return one figure per repetition; none if a repetition lacks it."""
    rows = values.get(who, [])
    return [row[name] / per for row in rows] if all(name in row for row in rows) else []


def _best(one: Plan, values: Values) -> tuple[Contender | None, list[float]]:
    """Return the peer with the lowest median, and its values."""
    found = {peer: series(values, peer, one.row.value) for peer in one.peers}
    ran = {peer: each for peer, each in found.items() if each}
    if not ran:
        return None, []
    best = min(ran, key=lambda peer: statistics.median(ran[peer]))
    return best, ran[best]


def score(
    one: Plan,
    values: Values,
    failures: Mapping[Contender, str],
    bases: Mapping[str, Plan],
    *,
    judged: bool,
) -> Score:
    """Judge a measured row.

    Args:
        one: the row's plan.
        values: from `execute`.
        failures: from `execute`.
        bases: plans by row name, for rows with a base.
        judged: whether the run has enough repetitions for a verdict.
    """
    row = one.row
    blank = Score(row, None, "", None, None, one.verdict, one.note)
    if one.verdict or one.ours is None:
        return blank
    ours = series(values, one.ours, row.value, row.per)
    if one.ours in failures or not ours:
        why = failures.get(one.ours, f"has no figure '{row.value}'")
        return replace(blank, verdict=FAILED, note=why)
    found = replace(blank, ours=statistics.median(ours))
    if row.limit is not None:
        over = interval([value / row.limit for value in ours])
        found = replace(found, peer_name="limit", peer=row.limit, ratio=over)
        return _with_verdict(found, LEVEL, judged=judged, overlap=False)
    failed = [failures[peer] for peer in one.peers if peer in failures]
    best, theirs = _best(one, values)
    if best is None:
        return replace(found, verdict=NO_PEER, note="; ".join(failed) or "no peer ran")
    note = "; ".join(failed)
    shown = replace(found, peer_name=best.name, peer=statistics.median(theirs), note=note)
    if 0 in theirs:
        return replace(shown, verdict=REPORTED, note="the peer's value is 0")
    if row.base:
        ours, theirs = _over_base(ours, theirs, bases[row.base], values)
    target = row.target
    if target is not None and row.spare:
        target = max(target, 1 + row.spare / statistics.median(theirs))
    return _with_verdict(replace(shown, ratio=ratio(ours, theirs)), target, judged=judged)


def _over_base(
    ours: list[float], theirs: list[float], base: Plan, values: Values
) -> tuple[list[float], list[float]]:
    """Divide both series by the values of the same side in the base row."""
    assert base.ours is not None
    own = series(values, base.ours, base.row.value, base.row.per)
    _, other = _best(base, values)
    return (
        [a / b for a, b in zip(ours, own, strict=True)],
        [a / b for a, b in zip(theirs, other, strict=True)],
    )


def _with_verdict(
    found: Score, target: float | None, *, judged: bool, overlap: bool = True
) -> Score:
    assert found.ratio is not None
    if target is None or not judged:
        return replace(found, verdict=REPORTED)
    reached = reaches(found.ratio, target, overlap=overlap)
    return replace(found, verdict=MET if reached else MISSED)


def reaches(found: Interval, target: float, *, overlap: bool = True) -> bool:
    """Return whether the whole interval is within the target.

    A target of 1 against a peer is also met by "no difference" (the interval contains 1), unless
    the interval is too wide; then the median must be within the target.
    """
    if overlap and target == LEVEL:
        noisy = found.high > NOISY * found.low
        return found.low <= target and (found.median <= target or not noisy)
    return found.high <= target


# --- means over rows ------------------------------------------------------------------------------


def score_mean(row: Row, plans: Sequence[Plan], values: Values, *, judged: bool) -> Score:
    """Judge the geometric mean over several rows.

    With `rank`, the result is the rank of our mean among all allocators, 1 being the lowest. Else
    it is our mean over the mean of the best peer of each row.
    """
    blank = Score(row, None, "", None, None, FAILED)
    chosen = [p for p in plans if any(fnmatchcase(p.row.name, pattern) for pattern in row.rows)]
    if not chosen or any(p.verdict for p in chosen):
        return replace(blank, verdict=NO_PEER, note="a row of the mean was not measured")
    table = [_by_name(p, values, row.value) for p in chosen]
    names = [name for name in table[0] if all(each.get(name) for each in table)]
    if OURS not in names:
        return replace(blank, note="ours failed in a row of the mean")
    means = {
        name: [geometric_mean(column) for column in zip(*(t[name] for t in table), strict=True)]
        for name in names
    }
    ours = means.pop(OURS)
    base = means.get(GLIBC, [1.0] * len(ours))
    relative = {name: ratio(each, base).median for name, each in {OURS: ours, **means}.items()}
    standing = sorted(relative, key=relative.__getitem__)
    note = "over glibc: " + ", ".join(f"{name} {relative[name]:.3f}" for name in standing)
    if row.rank is not None:
        ranks = [1.0 + sum(m[i] < own for m in means.values()) for i, own in enumerate(ours)]
        shown = replace(blank, ours=relative[OURS], peer_name=standing[0], note=note)
        shown = replace(shown, peer=relative[standing[0]], ratio=interval(ranks))
        return _with_verdict(shown, row.rank, judged=judged, overlap=False)
    bests = [_best(p, values)[1] for p in chosen]
    others = [geometric_mean(column) for column in zip(*bests, strict=True)]
    shown = replace(blank, ours=statistics.median(ours), peer_name="best of each", note=note)
    shown = replace(shown, peer=statistics.median(others), ratio=ratio(ours, others))
    return _with_verdict(shown, row.target, judged=judged)


def _by_name(one: Plan, values: Values, name: str) -> dict[str, list[float]]:
    everyone = [who for who in (one.ours, *one.peers) if who is not None]
    return {who.name: series(values, who, name) for who in everyone}
