# SPDX-License-Identifier: Apache-2.0
"""What `optimize` found: the table, what it would hold beside the stock tables, frontier, rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spanwise import _format, errors
from spanwise.ledger.parts import PARTS
from spanwise.optimizer.fit import FRONTIER_COUNTS, FRONTIER_SCALES, Fit
from spanwise.optimizer.folds import median_percent, told_folds
from spanwise.optimizer.frontier import AS_RECORDED, Frontier, simulate_frontier
from spanwise.optimizer.profile import UNITS
from spanwise.optimizer.solver import NO_BOUND
from spanwise.optimizer.trial import Trial
from spanwise.results.jobs import Progress, progress_bar
from spanwise.results.rows import Result, Rows, Tabular
from spanwise.tables.classes import file_specs
from spanwise.tables.table import CONDEMNED, SizeClassTable, rebuild

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRONTIER_CACHES = (AS_RECORDED, 1, 2, 4, 8, 16)

LEAST_PERCENT = 1.0
"""The least percentage of the stock table's peak resident bytes that a table must save to hold: as
much as runs of one program differ by."""


@dataclasses.dataclass(frozen=True)
class Constraint:
    """What one rule costs: the waste when it is changed, everything else kept.

    Attributes:
        rule: what was changed, e.g. "align 8 instead of 16".
        waste: of the best table then.
        saved: waste of the table under the rules as they are, minus that.
    """

    rule: str
    waste: float
    saved: float


class OptimizeResult(Result, Tabular):
    """The table that was found for recordings, and what it saves beside the stock tables.

    Attributes:
        table: the found table: of the proposed, the given ones and the families the one with least
            resident on what was held out, or else on what the proposal was fitted to. Where it does
            not hold, its parameters say so, and `build` refuses it unless it is asked for anyway.
        proposal: the table that the objective proposed.
        objective: what that was fitted to.
        trial: how much would be resident of every table on what the proposal was fitted to.
        held_out: the same for each recording that was held out.
        folds: what cross-validation found, a row for each part that was left out in turn: fold,
            events, stock_bytes, chosen_bytes, saved_bytes, saved_percent, stock_stays. None: there
            was none.
        stopped: whether Ctrl-C ended the search for the proposal early, or the cross-validation.
        rules: what the optimiser might choose from.
        arithmetic: round-up, tail and large rounding of the proposal, weighed by the objective and
            with every span full. It is not the ledger's waste.
        unit: of those, and of `constraints`: "bytes" or "byte-seconds".
        least_percent: what a table must save, of the peak resident under the stock table, to hold.
    """

    def __init__(
        self,
        fit: Fit,
        proposal: SizeClassTable,
        table: SizeClassTable,
        trial: Trial,
        held_out: tuple[Trial, ...],
        *,
        folds: Rows | None = None,
        stopped: bool = False,
        least_percent: float = LEAST_PERCENT,
    ) -> None:
        self._fit = fit
        self.proposal = proposal
        self.table = table
        self.objective = fit.objective
        self.trial = trial
        self.held_out = held_out
        self.folds = folds
        self.stopped = stopped
        self.least_percent = least_percent
        self.rules = fit.rules
        self.arithmetic = fit.profile.waste(proposal)
        self.unit = UNITS[fit.kind]
        if not self.holds:
            self.table = self._condemned(table)

    def _condemned(self, table: SizeClassTable) -> SizeClassTable:
        """The table with the trial's verdict against it in its parameters, which `build` reads."""
        file = table.to_dict()
        parameters = {**file.get("parameters", {}), CONDEMNED: self.verdict()}
        specs = file_specs(file)
        return rebuild(specs, table.name, table.page_bytes, file["provenance"], parameters)

    @property
    def stock(self) -> str:
        """The stock table that is to be beaten: of those aligned as asked for, the best."""
        return self.trial.stock

    @property
    def judged(self) -> tuple[Trial, ...]:
        """The trials that decide: those held out; where nothing was, that of the fit."""
        return self.held_out or (self.trial,)

    @property
    def saved_bytes(self) -> int:
        """What is less resident under the found table than under the stock one, where judged."""
        return sum(trial.saved_bytes for trial in self.judged)

    @property
    def saved_share(self) -> float:
        """That, as a part of the peak resident under the stock table."""
        before = self._judged_bytes(self.stock)
        return self.saved_bytes / before if before else 0.0

    @property
    def beats_stock(self) -> bool:
        """Whether less is resident under the found table than under the stock one, where judged."""
        return self.saved_bytes > 0

    @property
    def loses_on(self) -> tuple[str, ...]:
        """The held-out recordings on which more is resident under the found table."""
        return tuple(trial.name for trial in self.held_out if trial.saved_bytes < 0)

    @property
    def holds(self) -> bool:
        """Whether it saves enough, and what it was not fitted to says nothing against it.

        It must save `least_percent` where it is judged, and lose on nothing that was held out; and
        where recordings were left out in turn, the median of what the choice saves must be above 0.
        Parts of a single recording do not decide.
        """
        return self._saves_enough and not self.loses_on and not self._lost_by_folds

    @property
    def _saves_enough(self) -> bool:
        return self.beats_stock and 100 * self.saved_share >= self.least_percent

    @property
    def _lost_by_folds(self) -> bool:
        """Whether cross-validation over several recordings condemns the choice."""
        if self.folds is None or len(self._fit.recordings) == 1:
            return False
        return median_percent(self.folds) <= 0

    @property
    def resident_bytes(self) -> dict[str, int]:
        """The peak resident bytes by table, on what the proposal was fitted to."""
        return dict(self.trial.resident_bytes)

    @cached_property
    def frontier(self) -> Frontier:
        """Waste against the number of classes, simulated: some 100 runs up to the peak."""
        return self.make_frontier()

    def make_frontier(
        self,
        counts: Sequence[int] = FRONTIER_COUNTS,
        caches: Sequence[int] = FRONTIER_CACHES,
        scales: Sequence[int] = FRONTIER_SCALES,
        progress: Progress = None,
    ) -> Frontier:
        """The frontier at points of one's own.

        Args:
            counts: numbers of classes.
            caches: numbers of caches, 0 for one a recorded thread.
            scales: lengths of spans, as factors.
            progress: as of `spanwise.optimize`.
        """
        counts = sorted({*counts, self.rules.classes})
        tables = self._fit.tables(counts, scales)
        total = self._frontier_operations(len(tables))
        with progress_bar(progress, total, "frontier", "operations") as tell:
            return simulate_frontier(self._fit.recordings, tables, caches, tell)

    def _frontier_operations(self, points: int) -> int:
        """Operations that a frontier simulates, for a progress bar."""
        return points * sum(one.summary.peak_op for one in self._fit.recordings)

    @cached_property
    def constraints(self) -> list[Constraint]:
        """What each rule costs: the best table with that rule changed, where there is one."""
        solver = self._fit.solver()
        plain = solver.table(self.rules.classes, "plain", "")
        before = self._fit.profile.waste(plain).total
        found = []
        for rule, changed in self._changes():
            try:
                waste = self._waste_with(changed)
            except errors.InvalidError:  # no table meets the changed rule
                continue
            found.append(Constraint(rule, waste, before - waste))
        return found

    def _changes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        rules = self.rules
        other = 24 - rules.align
        yield f"align {other} instead of {rules.align}", {"align": other}
        for largest in (65536, 262144):
            if largest > rules.largest_bytes:
                pages = max(rules.pages, -(-largest // rules.page_bytes))
                yield f"largest class {largest} B", {"largest_bytes": largest, "pages": pages}
        yield f"spans of up to {4 * rules.pages} pages", {"pages": 4 * rules.pages}
        yield "the fewest pages for the largest class", {"pages": self._fewest_pages()}
        yield "only spans that Go's 32-bit division can index", {"narrow": True}
        yield "no charge for spans that are partly empty", {"partial": 0.0}
        if rules.waste_percent < NO_BOUND:
            yield "no bound on what an unseen size wastes", {"waste_percent": NO_BOUND}
        if rules.prior > 0:
            yield "no prior over sizes that were not seen", {"prior": 0.0}
        yield "twice as many classes", {"classes": min(2 * rules.classes, 255)}

    def _waste_with(self, changed: dict[str, Any]) -> float:
        solver = self._fit.solver(**changed)
        table = solver.table(solver.rules.classes, "changed", "")
        return self._fit.profile.waste(table).total

    def _fewest_pages(self) -> int:
        return -(-self.rules.largest_bytes // self.rules.page_bytes)

    # --- other forms ---

    def to_dict(self) -> dict[str, Any]:
        """All of it but the frontier, for JSON."""
        return {
            "table": self.table.to_dict(),
            "objective": self.objective,
            "stock": self.stock,
            "beats_stock": self.beats_stock,
            "holds": self.holds,
            "saved_bytes": self.saved_bytes,
            "saved_share": self.saved_share,
            "least_percent": self.least_percent,
            "folds": None if self.folds is None else self.folds.to_dicts(),
            "stopped": self.stopped,
            "verdict": self.verdict(),
            "loses_on": list(self.loses_on),
            "trial": self.trial.to_dict(),
            "held_out": [trial.to_dict() for trial in self.held_out],
            "unit": self.unit,
            "arithmetic": self.arithmetic.to_dict(),
            "constraints": [dataclasses.asdict(one) for one in self.constraints],
        }

    @property
    def array(self) -> Rows:
        """The ledgers at the peak resident bytes, one row a table, as `Ledger.array`."""
        return self.trial.array

    def verdict(self) -> str:
        """Which table to take, what it saves where it is judged, and what else was tried."""
        decided = [trial.verdict() for trial in self.judged]
        where = [f" on {trial.name}, held out" if self.held_out else "" for trial in self.judged]
        said = [f"{text}{place}" for text, place in zip(decided, where, strict=True)]
        if not self.held_out:
            fitted = _format.plural(len(self._fit.recordings), "recording").removeprefix("1 ")
            said.append(f"nothing was held out: that is of the very {fitted} it was fitted to")
        if self.folds is not None:
            said.append(told_folds(self.folds))
        return f"{self._outcome()}{'; '.join([*said, *self._asides()])}."

    def _outcome(self) -> str:
        if self.holds:
            return ""
        if self._lost_by_folds and self.beats_stock and not self.loses_on:
            return f"{self.stock} stays: nothing found saves more than 0 B of what was left out: "
        if self.beats_stock and not self._saves_enough and not self.loses_on:
            return f"{self.stock} stays: nothing found saves {self.least_percent:g} %: "
        most, before = max(0, self.saved_bytes), self._judged_bytes(self.stock)
        amount = "more than 0 B"
        if most:
            amount = f"more than {_format.size(most)} ({_format.share(most, before)})"
        if self.loses_on:
            amount += " and loses nowhere"
        return f"{self.stock} stays: nothing found saves {amount}: "

    def _asides(self) -> list[str]:
        """Tables that break a rule and would save more; a search that was ended."""
        trial = self.judged[0]
        best = min(trial.resident_bytes[name] for name in (trial.stock, trial.found))
        said = [
            f"{name}, {trial.ineligible[name]}, would have a peak resident of {_format.size(size)}"
            for name, size in trial.resident_bytes.items()
            if name in trial.ineligible and size < best
        ]
        return [*said, "the search was ended early"] if self.stopped else said

    def __str__(self) -> str:
        rules = self.rules
        what = (
            f"{self.trial.name}, objective {self.objective}: at most {rules.classes} classes to"
            f" {rules.largest_bytes} B, aligned to {rules.align}, spans of up to {rules.pages}"
            f" pages of {rules.page_bytes} B{self._bound()}"
        )
        saves = f"saves, of {_amount(self.arithmetic.total, self.unit)}"
        costs: list[Sequence[str]] = [
            (one.rule, _signed(one.saved, self.unit)) for one in self.constraints
        ]
        return "\n".join(
            [
                what,
                "bytes at the moment of the peak resident, simulated",
                _format.table(self._ledger_rows(), self.trial.comparison.text_head, indent="  "),
                "peak resident, bytes",
                _format.table(*self._resident_rows(), indent="  "),
                f"what {self.table.name} saves of the peak resident under {self.stock}",
                _format.table(*self._split_rows(), indent="  "),
                "round-up and tail that another rule would save (negative: cost), if every span"
                " were full",
                _format.table(costs, ("", saves), indent="  "),
                self.verdict(),
            ]
        )

    def _bound(self) -> str:
        percent = self.rules.waste_percent
        bounded = f", no size wastes more than {percent} % of its slot but by alignment"
        return bounded if percent < NO_BOUND else ""

    def _ledger_rows(self) -> list[Sequence[str]]:
        rows: list[Sequence[str]] = list(self.trial.comparison.text_rows())
        rows.insert(len(PARTS), ())
        return rows

    def _resident_rows(self) -> tuple[list[Sequence[str]], Sequence[str]]:
        """One row a table, the least first; one column a recording or sum; the limit last."""
        trials = (self.trial, *self.held_out)
        names = sorted(self.trial.resident_bytes, key=self._judged_bytes)
        rows: list[Sequence[str]] = [
            (name, *(_format.number(trial.resident_bytes[name]) for trial in trials))
            for name in names
        ]
        rows.append(
            ("limit: perfect packing", *(_format.number(trial.limit_bytes) for trial in trials))
        )
        held_out = (f"{trial.name}, held out" for trial in self.held_out)
        return rows, ("", self.trial.name, *held_out)

    def _judged_bytes(self, name: str) -> int:
        return sum(trial.resident_bytes[name] for trial in self.judged)

    def _split_rows(self) -> tuple[list[Sequence[str]], Sequence[str]]:
        """The gain by cause, one column a recording or sum."""
        trials = (self.trial, *self.held_out)
        splits = [trial.split() for trial in trials]
        rows: list[Sequence[str]] = [
            (cause, *(_format.number(split[cause]) for split in splits)) for cause in splits[0]
        ]
        rows.append(("all", *(_format.number(trial.saved_bytes) for trial in trials)))
        rows.append(())
        left = [trial.left() for trial in trials]
        rows += [(f"left: {cause}", *(_number(one[cause]) for one in left)) for cause in left[0]]
        held_out = (f"{trial.name}, held out" for trial in self.held_out)
        return rows, ("", self.trial.name, *held_out)

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def _repr_html_(self) -> str:
        return _format.html_table(
            self.trial.comparison.text_rows(), self.trial.comparison.text_head, self.verdict()
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the frontier; returns the matplotlib Axes."""
        return self.frontier.plot(ax)

    def plot_waste(self, ax: Axes | None = None) -> Axes:
        """Draws the round-up of each size, beside the stock table's; returns the Axes."""
        from spanwise import plots  # noqa: PLC0415  pictures know models, not models pictures

        return plots.waste([SizeClassTable.named(self.stock), self.table], ax=ax)


def _number(count: int | None) -> str:
    return "unknown" if count is None else _format.number(count)


def _amount(value: float, unit: str) -> str:
    return _format.size(value) + ("" if unit == "bytes" else " s")


def _signed(value: float, unit: str) -> str:
    return ("-" if value < 0 else "") + _amount(abs(value), unit)
