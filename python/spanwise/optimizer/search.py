# SPDX-License-Identifier: Apache-2.0
"""Size-class tables for recordings: arithmetic proposes one, simulation tells whether it is good.

Rules and method: docs/design/optimize.md. Dynamic programming over all sizes that a class may have;
the span of each class is chosen with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spanwise import errors
from spanwise.optimizer import neighbours
from spanwise.optimizer.fit import (
    FRONTIER_SCALES,
    HELD,
    RESIDENT,
    SIMULATED,
    Fit,
    held_counts,
    kind_of,
)
from spanwise.optimizer.folds import Choice, dealt, leave_out, parts_of, split
from spanwise.optimizer.frontier import peak_ledger
from spanwise.optimizer.inputs import check_held_out, check_programs, given_tables
from spanwise.optimizer.optimum import LEAST_PERCENT, Constraint, OptimizeResult
from spanwise.optimizer.profile import OBJECTIVES, joint_profile
from spanwise.optimizer.scores import MixedScores, Scores
from spanwise.optimizer.solver import Rules
from spanwise.optimizer.trial import hold_trial, ineligible
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import Recordings, as_recordings
from spanwise.results.jobs import Progress, Step, progress_bar
from spanwise.results.rows import Rows
from spanwise.tables import families
from spanwise.tables.table import STOCK, SizeClassTable

FAMILIES = ("jemalloc", "tcmalloc", "mimalloc", "pow2", "fibonacci", "geometric-1.25")
"""The tables that take part in each trial beside the stock ones."""

WASTE_PERCENT = 25
"""How much an unseen size may waste of its slot, if nothing else is asked for."""

PRIOR = 0.02
"""The part of the weight that is spread over all sizes, if nothing else is asked for."""

CANDIDATES_MIN, CANDIDATES_MAX = 48, 160
BUDGET_OPERATIONS = 200_000_000
"""The objective `resident` simulates, by default, as many tables as make so many operations
together, within these bounds."""

FOLD_CANDIDATES_MIN = 8
"""The least that a search simulates in a cross-validation that nobody asked for."""


def optimize(
    recordings: Recordings,
    classes: int = 32,
    objective: str = RESIDENT,
    *,
    align: int = 16,
    holdout: Recordings | None = None,
    tables: Iterable[SizeClassTable | str] = (),
    largest_bytes: int = 32768,
    page_bytes: int = 8192,
    pages: int = 10,
    partial: float | None = None,
    waste_percent: int = WASTE_PERCENT,
    prior: float | None = None,
    least_percent: float = LEAST_PERCENT,
    weights: Sequence[float] | None = None,
    candidates: int | None = None,
    mixed: bool = False,
    folds: int | None = None,
    name: str | None = None,
    progress: Progress = None,
) -> OptimizeResult:
    """Finds a table of at most `classes` classes for recordings; tries it beside the stock ones.

    Arithmetic proposes tables, and the objective `resident` searches among their neighbours by
    simulation. Whether the found table is any good is told by simulation, too: it, the tables that
    are given, the stock tables go and c16 and six families each run the recordings, and the one
    with the fewest resident bytes at its highest wins; where recordings are held out, by those.

    Ctrl-C during the search ends it, and the best table so far goes on to the trial.

    Args:
        recordings: what to fit the table to.
        classes: at most so many, 1 to 255.
        objective: "resident": the fewest resident bytes when simulated, classes and spans searched
            together; "held": of the tables that are best for the peak, the one that holds least
            there when simulated; or by arithmetic alone, what a size weighs: "allocs" (every
            allocation), "time" (how long objects live), "peak" (what is live at the peak of
            requested bytes).
        align: 8, or 16: then every class of 16 bytes and more is a multiple of 16, as a C malloc
            owes; a table that is not aligned so is shown, and cannot win.
        holdout: recordings that the table is tried on, each by itself, and not fitted to; None:
            nothing is held out.
        tables: more tables to try.
        largest_bytes: the largest class, bytes; the proposed table always has it.
        page_bytes: of the proposed table: 4096 to 65536.
        pages: most pages of a span.
        partial: what each class is charged for spans that are partly empty, in spans. None: half a
            span, for the objective "allocs" nothing.
        waste_percent: the most that a class may waste on the smallest request that it serves, in
            percent of its slot, whether the recordings have such a request or not, 1 to 100;
            neighbouring classes that are one step of the alignment apart are allowed whatever they
            waste. 25 takes at least 28 classes up to 32 KiB; 100 bounds nothing. A given table or a
            family's that breaks it is shown, and cannot win.
        prior: part of the weight, 0 to below 1, that is spread over all sizes: a table that knows
            that it will meet sizes which it has not seen. None: 0.02 for "resident", whose search
            minds it, too, and none for the others. 0: none.
        least_percent: what the found table must save to win, in percent of what is resident under
            the stock table where it is judged, 0 to 100. Less is within what two runs of one
            program differ by. 0: whatever it saves.
        weights: how much each recording counts in the fit, whatever its length; None: bytes are
            added up. The simulations add up what is resident of the recordings' heaps, unweighted.
        candidates: tables that "resident" simulates at most; None: 48 to 160, by how long the
            recordings are.
        mixed: recordings of different programs are wanted together; else they are refused.
        folds: cross-validation, which judges each part of what is fitted to by a choice that was
            made on the others. A number: the parts are the recordings, or so many of a single one,
            with as many whole searches more. 0: none. None: none either, but where "resident" is
            asked for of several recordings of one program, none held out and none weighed: they are
            dealt into at most five parts, with a short search for each.
        name: of the proposed table; None: best-N-objective.
        progress: as of `Recording.ledger`; the steps are simulated operations.

    Returns:
        The found table, and what it and the others would hold. That it beats the stock tables is
        not promised: ask `holds`, and for the reason `verdict()`.

    Raises:
        InvalidError: rules that no table meets, a recording without allocations, or without any
            of at most largest_bytes bytes, two different tables of one name, recordings of
            different programs, a held-out recording that is fitted to, or folds that cannot be.
    """
    if name is not None:
        families.check_name(name)
    fitted = as_recordings(recordings)
    if not fitted:
        raise errors.InvalidError("no recording to fit a table to; give at least one")
    if kind_of(objective) not in OBJECTIVES:
        known = ", ".join((*SIMULATED, *OBJECTIVES))
        raise errors.InvalidError(f"objective {objective!r}: must be one of {known}")
    kind = kind_of(objective)
    charge = (0.0 if kind == "allocs" else 0.5) if partial is None else float(partial)
    spread = (PRIOR if objective == RESIDENT else 0.0) if prior is None else float(prior)
    rules = Rules(classes, align, largest_bytes, page_bytes, pages, charge, spread, waste_percent)
    if not 0 <= least_percent <= 100:
        raise errors.InvalidError(f"least_percent {least_percent}: must be 0 to 100")
    if candidates is not None and candidates < 1:
        raise errors.InvalidError(f"candidates {candidates}: must be at least 1")
    given = given_tables(tables)
    held_out = as_recordings(holdout) if holdout is not None else []
    if holdout is not None and not held_out:
        raise errors.InvalidError("holdout: no recording; give at least one, or none at all")
    check_held_out(held_out, fitted)
    if not mixed:
        check_programs([*fitted, *held_out])
    if folds and weights is not None:
        raise errors.InvalidError(
            "weights: belong to recordings, of which folds leaves each out; give one of both"
            " (--weight, --folds)"
        )
    most = candidates or default_candidates(fitted)
    unasked = objective == RESIDENT and not (mixed or held_out or weights is not None)
    crossing = _crossing(fitted, folds, most, unasked=unasked)
    fit = Fit(fitted, objective, joint_profile(fitted, kind, weights), rules, len(fitted))
    beside = len(given) - len(STOCK)
    total = simulated_operations(
        fitted, classes, objective, holdout=held_out, tables=beside, candidates=most
    )
    total += crossing.operations(classes, objective, beside)
    with progress_bar(progress, total, "optimize", "operations") as tell:
        return _try(
            fit,
            name,
            given,
            held_out,
            candidates=most,
            least_percent=least_percent,
            crossing=crossing,
            progress=tell,
        )


def default_candidates(recordings: Sequence[Recording]) -> int:
    """How many tables the objective `resident` simulates if it is not told."""
    operations = max(1, sum(map(len, recordings)))
    return max(CANDIDATES_MIN, min(CANDIDATES_MAX, BUDGET_OPERATIONS // operations))


def simulated_operations(
    recordings: Recordings,
    classes: int,
    objective: str,
    *,
    holdout: Recordings | None = None,
    tables: int = 0,
    candidates: int | None = None,
) -> int:
    """At most so many operations will `optimize` simulate, for a progress bar.

    Args:
        recordings: as of `optimize`, and so the others.
        classes: at most so many.
        objective: what a size weighs.
        holdout: recordings that are held out.
        tables: number of given tables.
        candidates: tables that are searched.
    """
    fitted, held_out = as_recordings(recordings), as_recordings(holdout or [])
    searched = 0
    if objective == HELD:
        searched = len(held_counts(classes)) * len(FRONTIER_SCALES)
    elif objective == RESIDENT:
        searched = candidates or default_candidates(fitted)
    beside = len(STOCK) + tables + 1
    passes = 2 * beside + len(FAMILIES) + 1  # ledgers are of a second pass; one family may be found
    return (searched + passes) * sum(map(len, fitted)) + passes * sum(map(len, held_out))


class _Picked(NamedTuple):
    """What takes part in a trial, and the table to set against the stock ones."""

    proposal: SizeClassTable
    found: SizeClassTable
    shown: list[SizeClassTable]
    families: list[SizeClassTable]
    stopped: bool


def _try(
    fit: Fit,
    name: str | None,
    given: list[SizeClassTable],
    held_out: list[Recording],
    *,
    candidates: int,
    least_percent: float,
    crossing: _Crossing,
    progress: Step,
) -> OptimizeResult:
    """Finds a proposal, and tries it beside the others on what is held out, or else as fitted."""
    scores = Scores(fit.recordings, progress)
    unseen = [Scores([one], progress) for one in held_out]
    picked = _pick(fit, name, given, candidates, scores=scores, unseen=unseen, progress=progress)
    tables = (picked.shown, picked.families, picked.found.name, fit.rules)
    trials = [hold_trial(one, *tables) for one in (scores, *unseen)]
    folds: Rows | None = None
    stopped = picked.stopped
    if crossing.parts and not stopped:
        folds = crossing.rows(fit, name, given, progress)
        stopped = folds is None
    found = (picked.proposal, picked.found, trials[0], tuple(trials[1:]))
    return OptimizeResult(fit, *found, folds=folds, stopped=stopped, least_percent=least_percent)


def _pick(
    fit: Fit,
    name: str | None,
    given: list[SizeClassTable],
    candidates: int,
    *,
    scores: Scores,
    unseen: list[Scores],
    progress: Step,
) -> _Picked:
    """Finds a proposal, and of all tables the best on what is held out, or else as fitted."""
    proposals = fit.proposals(name)
    for table in given:
        if table.name == proposals[0].name and table not in proposals:
            raise errors.InvalidError(
                f"name {table.name!r} belongs to a given table; choose another for the new one"
            )
    proposal, stopped = _proposal(fit, proposals, candidates, scores, progress)
    shown = [*(table for table in given if table.name != proposal.name), proposal]
    taken = {table.name for table in shown}
    families_ = [SizeClassTable.named(name) for name in FAMILIES if name not in taken]
    families_ = [table for table in families_ if table not in shown]
    found = choose([*families_, *shown], fit.rules, unseen or [scores])
    return _Picked(proposal, found, shown, families_, stopped)


def _proposal(
    fit: Fit,
    proposals: list[SizeClassTable],
    candidates: int,
    scores: Scores,
    progress: Step,
) -> tuple[SizeClassTable, bool]:
    """The best proposal by the objective; whether Ctrl-C ended the search for it."""
    if fit.objective == HELD:
        held = [peak_ledger(fit.recordings, one, progress=progress).held_bytes for one in proposals]
        return proposals[held.index(min(held))], False
    if fit.objective != RESIDENT:
        return proposals[0], False
    near = neighbours.Neighbourhood(fit.profile, fit.rules)
    name = proposals[0].name
    found = neighbours.search(
        proposals[:candidates],
        near,
        MixedScores(scores, fit.unseen(), fit.rules.prior),
        candidates,
        lambda specs: fit.make(name, specs),
    )
    return found.table, found.stopped


def choose(
    tables: Sequence[SizeClassTable], rules: Rules, judged: Sequence[Scores]
) -> SizeClassTable:
    """The table to set against the stock ones: least resident, and losing on no recording.

    Args:
        tables: every table of the trial; of equal ones the last is taken.
        rules: what a table must keep to win.
        judged: the recordings that decide, each by itself.
    """
    kept_out = ineligible(tables, rules)
    stock = [one for one in tables if one.name in STOCK and one.name not in kept_out]
    free = [one for one in tables if one.name not in {*kept_out, *STOCK}]
    bars = [min(scores.of(stock)) for scores in judged]

    def rank(table: SizeClassTable) -> tuple[bool, int]:
        sizes = [scores(table) for scores in judged]
        return any(size > bar for size, bar in zip(sizes, bars, strict=True)), sum(sizes)

    for scores in judged:
        scores.of(free)
    return min(reversed(free), key=rank)


# --- cross-validation -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Crossing:
    """What is left out in turn, and how many tables each search simulates.

    Attributes:
        parts: none: there is no cross-validation.
        candidates: of a search on the others.
    """

    parts: list[list[Recording]]
    candidates: int

    def operations(self, classes: int, objective: str, tables: int) -> int:
        """As `simulated_operations`."""
        most = self.candidates
        return sum(
            simulated_operations(others, classes, objective, tables=tables, candidates=most)
            + 2 * sum(map(len, part))
            for part, others in split(self.parts)
        )

    def rows(
        self, fit: Fit, name: str | None, given: list[SizeClassTable], progress: Step
    ) -> Rows | None:
        """What is saved of each part by the choice on the others; None: Ctrl-C ended a search."""

        def choose_on(others: list[Recording]) -> Choice | None:
            scores = Scores(others, progress)
            return _choice(fit, name, given, self.candidates, scores=scores, progress=progress)

        return leave_out(self.parts, choose_on, progress)


def _crossing(
    recordings: list[Recording], folds: int | None, candidates: int, *, unasked: bool
) -> _Crossing:
    """The cross-validation that `folds` asks for, of recordings that are fitted to."""
    if folds is None:
        parts = dealt(recordings) if unasked and len(recordings) > 1 else []
        fewer = max(FOLD_CANDIDATES_MIN, candidates // (2 * max(1, len(parts))))
        return _Crossing(parts, min(candidates, fewer))
    return _Crossing([[one] for one in parts_of(recordings, folds)] if folds else [], candidates)


def _choice(
    fit: Fit,
    name: str | None,
    given: list[SizeClassTable],
    candidates: int,
    *,
    scores: Scores,
    progress: Step,
) -> Choice | None:
    """The stock table of other recordings, and the table to take; None: Ctrl-C ended the search."""
    kept_out = ineligible(given, fit.rules)
    stock = [one for one in given if one.name in STOCK and one.name not in kept_out]
    best = min(stock, key=scores)
    try:
        others = fit.of(list(scores.recordings))
        picked = _pick(others, name, given, candidates, scores=scores, unseen=[], progress=progress)
    except errors.InvalidError:  # no request of these recordings fits into a class
        return best, best
    if picked.stopped:
        return None
    return best, picked.found if scores(picked.found) < scores(best) else best


__all__ = [
    "HELD",
    "LEAST_PERCENT",
    "RESIDENT",
    "Constraint",
    "OptimizeResult",
    "optimize",
    "simulated_operations",
]
