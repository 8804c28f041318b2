# SPDX-License-Identifier: Apache-2.0
"""Find size-class tables for recordings: the solver proposes, simulation searches and evaluates.

Rules and method: docs/design/optimize.md. The solver is a dynamic program over all sizes that a
class may have; it also chooses the span of each class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from spanwise import errors
from spanwise.optimizer import local_search
from spanwise.optimizer.evaluation import (
    Choice,
    evaluate,
    grouped,
    ineligible,
    leave_out,
    parts_of,
    split,
)
from spanwise.optimizer.local_search import MixedScores, Scores
from spanwise.optimizer.pareto import peak_ledger
from spanwise.optimizer.profile import HELD, RESIDENT
from spanwise.optimizer.result import LEAST_PERCENT, OptimizeResult
from spanwise.optimizer.solver import (
    SPAN_SCALES,
    WASTE_PERCENT,
    Fit,
    Options,
    Rules,
    default_candidates,
    given_tables,
    held_counts,
)
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import Recordings, as_recordings
from spanwise.results.jobs import Progress, Step, progress_bar
from spanwise.tables.table import STOCK, SizeClassTable, as_table

FAMILIES = ("jemalloc", "tcmalloc", "mimalloc", "pow2", "fibonacci", "geometric-1.25")
"""The tables that take part in each evaluation in addition to the stock ones."""

FOLD_CANDIDATES_MIN = 8
"""Minimum number of tables that a search of default cross-validation simulates."""


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
    partial: float = 0.5,
    waste_percent: int = WASTE_PERCENT,
    prior: float | None = None,
    least_percent: float = LEAST_PERCENT,
    weights: Sequence[float] | None = None,
    candidates: int | None = None,
    mixed: bool = False,
    folds: int | None = None,
    name: str | None = None,
    moment: SizeClassTable | str | None = None,
    progress: Progress = None,
) -> OptimizeResult:
    """Find a table of at most `classes` classes for recordings; evaluate it by simulation.

    The solver proposes tables, and the objective `resident` searches among their neighbours by
    simulation. Then the proposal, the given tables, the stock tables go and c16 and six families
    each run the recordings. The table with the fewest peak resident bytes wins, on the held-out
    recordings if there are any.

    Ctrl-C during the search ends it; the best table so far is evaluated.

    Args:
        recordings: the recordings to fit the table to.
        classes: maximum number of classes, 1 to 255.
        objective: "resident": fewest resident bytes in simulation, classes and spans searched
            together; "held": among the tables that the solver proposes for the peak, the one with
            the fewest held bytes there in simulation; "peak": the solver alone.
        align: 8, or 16: every class of 16 bytes and more is a multiple of 16, as C malloc requires.
            An unaligned table is shown and cannot win.
        holdout: held-out recordings; the table is evaluated on each, but not fitted to them.
        tables: more tables to evaluate.
        largest_bytes: the largest class, bytes; the proposed table always has it.
        page_bytes: of the proposed table, 4096 to 65536.
        pages: maximum pages of a span.
        partial: charge per class for partly empty spans, in spans.
        waste_percent: the most that a class may waste on the smallest request that it serves, in
            percent of its slot, 1 to 100. Classes one step of the alignment apart are always
            allowed. 25 needs at least 28 classes up to 32 KiB; 100: no bound. A given table or
            a family that breaks the bound is shown and cannot win.
        prior: share of the weight, 0 to below 1, that is spread over all sizes, so that the table
            also serves sizes that the recordings do not request. None: 0.02 for "resident", which
            also applies it in its search, else 0.
        least_percent: minimum saving of a winning table, in percent of the resident bytes under
            the stock table, 0 to 100. Two runs of one program differ by about 1 %.
        weights: weight of each recording in the fit, regardless of its length; None: bytes are
            summed. Simulations always sum resident bytes, unweighted.
        candidates: maximum number of tables that "resident" simulates; None: 48 to 160, by the
            length of the recordings.
        mixed: allow recordings of different programs.
        folds: cross-validation: each part is evaluated with the choice made on the others. A
            number: the parts are the recordings, or that many parts of a single one, with a full
            search each. 0: none. None: with "resident" and several recordings of one program,
            none held out and unweighted, 5-fold cross-validation with short searches; else none.
        name: of the proposed table; None: best-N-objective.
        moment: the ledgers of the evaluation are taken at the peak resident under this table;
            None: under the stock table.
        progress: as in `Recording.ledger`; the steps are simulated operations.

    Returns:
        The found table and its evaluation. `holds` is whether it is worth using; `verdict()` gives
        the reason.

    Raises:
        InvalidError: no table meets the rules; a recording without allocations, or without any of
            at most largest_bytes bytes; two different tables of one name; recordings of different
            programs; a held-out recording that is also fitted to; or impossible folds.
    """
    fitted = as_recordings(recordings)
    options = Options(
        classes=classes,
        objective=objective,
        align=align,
        largest_bytes=largest_bytes,
        page_bytes=page_bytes,
        pages=pages,
        partial=partial,
        waste_percent=waste_percent,
        prior=prior,
        least_percent=least_percent,
        weights=weights,
        candidates=candidates,
        mixed=mixed,
        folds=folds,
        name=name,
        moment=None if moment is None else as_table(moment),
        tables=given_tables(tables),
        held_out=None if holdout is None else as_recordings(holdout),
    )
    options.check(fitted)
    validation = CrossValidation.of(fitted, options)
    fit = options.fit(fitted)
    total = simulated_operations(
        fitted,
        classes,
        objective,
        holdout=options.held_out,
        tables=len(options.tables) - len(STOCK),
        candidates=options.candidates_for(fitted),
    )
    total += validation.operations(options)
    with progress_bar(progress, total, "optimize", "operations") as step:
        return _run(fit, options, validation, step)


def simulated_operations(
    recordings: Recordings,
    classes: int,
    objective: str,
    *,
    holdout: Recordings | None = None,
    tables: int = 0,
    candidates: int | None = None,
) -> int:
    """Return an upper bound on the operations that `optimize` simulates, for a progress bar."""
    fitted, held_out = as_recordings(recordings), as_recordings(holdout or [])
    searched = 0
    if objective == HELD:
        searched = len(held_counts(classes)) * len(SPAN_SCALES)
    elif objective == RESIDENT:
        searched = candidates or default_candidates(fitted)
    shown = len(STOCK) + tables + 1
    passes = 2 * shown + len(FAMILIES) + 1  # ledgers take a second pass; the winner may be a family
    return (searched + passes) * sum(map(len, fitted)) + passes * sum(map(len, held_out))


def _run(fit: Fit, options: Options, validation: CrossValidation, step: Step) -> OptimizeResult:
    scores = Scores(fit.recordings, step)
    unseen = [Scores([one], step) for one in options.held_out or ()]
    search = _Search(options, options.candidates_for(fit.recordings), step)
    picked = search.pick(fit, scores, unseen or [scores])
    evaluations = [
        evaluate(
            one, picked.shown, picked.families, picked.found.name, fit.rules, moment=options.moment
        )
        for one in (scores, *unseen)
    ]
    folds, stopped = None, picked.stopped
    if validation.parts and not stopped:
        short = replace(search, candidates=validation.candidates)
        folds = leave_out(validation.parts, lambda others: short.choose_on(fit, others), step)
        stopped = folds is None
    return OptimizeResult(
        fit,
        picked.proposal,
        picked.found,
        evaluations[0],
        tuple(evaluations[1:]),
        folds=folds,
        stopped=stopped,
        least_percent=options.least_percent,
    )


class _Picked(NamedTuple):
    """The tables of an evaluation, and the one that competes with the stock tables."""

    proposal: SizeClassTable
    found: SizeClassTable
    shown: list[SizeClassTable]
    families: list[SizeClassTable]
    stopped: bool


@dataclass(frozen=True)
class _Search:
    """A search for a table."""

    options: Options  # of `optimize`
    candidates: int  # maximum number of tables to simulate
    progress: Step  # called with simulated operations

    def pick(self, fit: Fit, scores: Scores, judged: Sequence[Scores]) -> _Picked:
        """Find a proposal, and the best of all tables on the judged recordings."""
        given = self.options.tables
        proposals = fit.proposals(self.options.name)
        for table in given:
            if table.name == proposals[0].name and table not in proposals:
                raise errors.InvalidError(
                    f"name {table.name!r} belongs to a given table; choose another for the new one"
                )
        proposal, stopped = self._propose(fit, proposals, scores)
        shown = [*(table for table in given if table.name != proposal.name), proposal]
        names = {table.name for table in shown}
        families = [SizeClassTable.named(name) for name in FAMILIES if name not in names]
        families = [table for table in families if table not in shown]
        found = choose([*families, *shown], fit.rules, judged)
        return _Picked(proposal, found, shown, families, stopped)

    def _propose(
        self, fit: Fit, proposals: list[SizeClassTable], scores: Scores
    ) -> tuple[SizeClassTable, bool]:
        """Return the best proposal by the objective, and whether Ctrl-C ended the search."""
        if fit.objective == HELD:
            ledgers = [peak_ledger(fit.recordings, t, progress=self.progress) for t in proposals]
            held = [ledger.held_bytes for ledger in ledgers]
            return proposals[held.index(min(held))], False
        if fit.objective != RESIDENT:
            return proposals[0], False
        name = proposals[0].name
        found = local_search.search(
            proposals[: self.candidates],
            local_search.Neighbourhood(fit.profile, fit.rules),
            MixedScores(scores, fit.unseen(), fit.rules.prior),
            self.candidates,
            lambda specs: fit.make(name, specs),
        )
        return found.table, found.stopped

    def choose_on(self, fit: Fit, recordings: list[Recording]) -> Choice | None:
        """Return the best stock table and the table to use; None: Ctrl-C ended the search."""
        scores = Scores(recordings, self.progress)
        excluded = ineligible(self.options.tables, fit.rules)
        stock = [t for t in self.options.tables if t.name in STOCK and t.name not in excluded]
        best = min(stock, key=scores)
        try:
            picked = self.pick(fit.of(recordings), scores, [scores])
        except errors.InvalidError:  # no request of these recordings fits into a class
            return best, best
        if picked.stopped:
            return None
        return best, picked.found if scores(picked.found) < scores(best) else best


def choose(
    tables: Sequence[SizeClassTable], rules: Rules, judged: Sequence[Scores]
) -> SizeClassTable:
    """Return the best non-stock table: no loss on any recording, then fewest resident bytes."""
    excluded = ineligible(tables, rules)
    stock = [one for one in tables if one.name in STOCK and one.name not in excluded]
    others = [one for one in tables if one.name not in {*excluded, *STOCK}]
    bars = [min(scores.of(stock)) for scores in judged]

    def rank(table: SizeClassTable) -> tuple[bool, int]:
        sizes = [scores(table) for scores in judged]
        return any(size > bar for size, bar in zip(sizes, bars, strict=True)), sum(sizes)

    for scores in judged:
        scores.of(others)  # in parallel
    return min(reversed(others), key=rank)


@dataclass(frozen=True)
class CrossValidation:
    """The parts that are held out in turn, and the budget of each search."""

    parts: list[list[Recording]]  # empty if there is no cross-validation
    candidates: int  # maximum number of tables that each search simulates

    @classmethod
    def of(cls, fitted: list[Recording], options: Options) -> CrossValidation:
        """Return the cross-validation that the options specify."""
        candidates = options.candidates_for(fitted)
        if options.folds is not None:
            parts = parts_of(fitted, options.folds) if options.folds else []
            return cls([[one] for one in parts], candidates)
        plain = not (options.mixed or options.held_out or options.weights is not None)
        by_default = plain and options.objective == RESIDENT and len(fitted) > 1
        groups = grouped(fitted) if by_default else []
        short = max(FOLD_CANDIDATES_MIN, candidates // (2 * max(1, len(groups))))
        return cls(groups, min(candidates, short))

    def operations(self, options: Options) -> int:
        """Return an upper bound on the simulated operations."""
        return sum(
            simulated_operations(
                others,
                options.classes,
                options.objective,
                tables=len(options.tables) - len(STOCK),
                candidates=self.candidates,
            )
            + 2 * sum(map(len, part))
            for part, others in split(self.parts)
        )
