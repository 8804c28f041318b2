# SPDX-License-Identifier: Apache-2.0
"""The result of `optimize`: the table, its evaluation against the stock tables, the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spanwise import _format
from spanwise.ledger.parts import PARTS
from spanwise.optimizer.evaluation import Evaluation, describe_folds, median_percent
from spanwise.optimizer.pareto import AS_RECORDED, ParetoFront, simulate_pareto
from spanwise.optimizer.solver import NO_BOUND, PARETO_COUNTS, SPAN_SCALES, Fit
from spanwise.results.jobs import Progress, progress_bar
from spanwise.results.rows import Result, Rows, Tabular, draw
from spanwise.tables.classes import file_specs
from spanwise.tables.table import CONDEMNED, SizeClassTable, rebuild

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARETO_CACHES = (AS_RECORDED, 1, 2, 4, 8, 16)

LEAST_PERCENT = 1.0
"""The minimum saving of a table that holds, in percent of the stock table's peak resident bytes.
Two runs of one program differ by as much."""


class OptimizeResult(Result, Tabular):
    """The table that was found for recordings, and what it saves over the stock tables.

    Attributes:
        table: the found table: among the proposal, the given tables and the families, the one with
            the fewest resident bytes on the held-out recordings, or else on the fitted ones. If it
            does not hold, its parameters have the verdict, and `build` refuses it by default.
        proposal: the table that the objective proposed.
        objective: of the fit.
        evaluation: the resident bytes under every table on the fitted recordings.
        held_out: the same for each held-out recording.
        folds: rows of cross-validation, one per held-out part: fold, events, stock_bytes,
            chosen_bytes, saved_bytes, saved_percent, stock_chosen. None: there was none.
        stopped: whether Ctrl-C ended the search or the cross-validation early.
        rules: the constraints on the proposal.
        arithmetic: round-up, tail and large rounding of the proposal in bytes, if every span is
            full. It is not the ledger's waste.
        least_percent: minimum saving of a table that holds, in percent of the peak resident under
            the stock table.
    """

    def __init__(
        self,
        fit: Fit,
        proposal: SizeClassTable,
        table: SizeClassTable,
        evaluation: Evaluation,
        held_out: tuple[Evaluation, ...],
        *,
        folds: Rows | None = None,
        stopped: bool = False,
        least_percent: float = LEAST_PERCENT,
    ) -> None:
        self._fit = fit
        self.proposal = proposal
        self.table = table
        self.objective = fit.objective
        self.evaluation = evaluation
        self.held_out = held_out
        self.folds = folds
        self.stopped = stopped
        self.least_percent = least_percent
        self.rules = fit.rules
        self.arithmetic = fit.profile.waste(proposal)
        if not self.holds:
            self.table = self._condemned(table)

    def _condemned(self, table: SizeClassTable) -> SizeClassTable:
        """Return the table with the verdict in its parameters, where `build` reads it."""
        file = table.to_dict()
        parameters = {**file.get("parameters", {}), CONDEMNED: self.verdict()}
        specs = file_specs(file)
        return rebuild(specs, table.name, table.page_bytes, file["provenance"], parameters)

    @property
    def stock(self) -> str:
        """The baseline: the eligible stock table with the fewest resident bytes."""
        return self.evaluation.stock

    @property
    def judged(self) -> tuple[Evaluation, ...]:
        """The evaluations that decide: the held-out ones, or else that of the fit."""
        return self.held_out or (self.evaluation,)

    @property
    def saved_bytes(self) -> int:
        """The resident bytes that the found table saves over the stock one, over all `judged`."""
        return sum(one.saved_bytes for one in self.judged)

    @property
    def saved_share(self) -> float:
        """`saved_bytes` as a share of the peak resident under the stock table."""
        before = self._judged_bytes(self.stock)
        return self.saved_bytes / before if before else 0.0

    @property
    def beats_stock(self) -> bool:
        """Whether the found table saves anything over the stock one."""
        return self.saved_bytes > 0

    @property
    def loses_on(self) -> tuple[str, ...]:
        """The held-out recordings with more resident bytes under the found table."""
        return tuple(one.name for one in self.held_out if one.saved_bytes < 0)

    @property
    def holds(self) -> bool:
        """Whether the found table is worth using.

        It must save at least `least_percent`, lose on no held-out recording, and the median saving
        of cross-validation over several recordings must be positive. Parts of a single recording do
        not decide.
        """
        return self._saves_enough and not self.loses_on and not self._lost_by_folds

    @property
    def _saves_enough(self) -> bool:
        return self.beats_stock and 100 * self.saved_share >= self.least_percent

    @property
    def _lost_by_folds(self) -> bool:
        """Whether cross-validation over several recordings rejects the table."""
        if self.folds is None or len(self._fit.recordings) == 1:
            return False
        return median_percent(self.folds) <= 0

    @property
    def resident_bytes(self) -> dict[str, int]:
        """The peak resident bytes by table on the fitted recordings."""
        return dict(self.evaluation.resident_bytes)

    @cached_property
    def pareto(self) -> ParetoFront:
        """Simulated waste versus number of classes; about 100 runs up to the peak."""
        return self.make_pareto()

    def make_pareto(
        self,
        counts: Sequence[int] = PARETO_COUNTS,
        caches: Sequence[int] = PARETO_CACHES,
        scales: Sequence[int] = SPAN_SCALES,
        progress: Progress = None,
    ) -> ParetoFront:
        """Return the Pareto front at chosen points.

        Args:
            counts: numbers of classes; that of the rules is added.
            caches: numbers of caches, 0 for one per recorded thread.
            scales: factors on the length of spans.
            progress: as in `spanwise.optimize`.
        """
        tables = self._fit.tables({*counts, self.rules.classes}, scales)
        recordings = self._fit.recordings
        total = len(tables) * sum(one.summary.peak_op for one in recordings)
        with progress_bar(progress, total, "pareto", "operations") as step:
            return simulate_pareto(recordings, tables, caches, step)

    # --- the verdict ---

    def verdict(self) -> str:
        """Say which table to use, what it saves on the deciding recordings, and what was tried."""
        if self.held_out:
            parts = [f"{one.verdict()} on {one.name}, held out" for one in self.held_out]
        else:
            count = _format.plural(len(self._fit.recordings), "recording").removeprefix("1 ")
            fitted = " it was fitted to" if self.evaluation.found == self.proposal.name else ""
            parts = [self.evaluation.verdict()]
            parts.append(f"no held-out data: measured on the {count}{fitted}")
        if self.folds is not None:
            parts.append(describe_folds(self.folds))
        return f"{self._rejection()}{'; '.join([*parts, *self._remarks()])}."

    def _rejection(self) -> str:
        """Say why the stock table is kept; "" if the found table holds."""
        if self.holds:
            return ""
        said = f"no table beats {self.stock}"
        if self.loses_on:
            return f"{said} on every held-out recording: "
        if not self.beats_stock:
            return f"{said}: "
        if self._lost_by_folds:
            return f"{said} in cross-validation: "
        return f"{said} by {self.least_percent:g} %: "

    def _remarks(self) -> list[str]:
        """Return notes about ineligible tables that would save more, and an interrupted search."""
        one = self.judged[0]
        best = min(one.resident_bytes[name] for name in (one.stock, one.found))
        parts = [
            f"{name}, {one.ineligible[name]}, would have a peak resident of {_format.size(size)}"
            for name, size in one.resident_bytes.items()
            if name in one.ineligible and size < best
        ]
        return [*parts, "the search was ended early"] if self.stopped else parts

    # --- other forms ---

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, without the Pareto front."""
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
            "evaluation": self.evaluation.to_dict(),
            "held_out": [one.to_dict() for one in self.held_out],
            "arithmetic": self.arithmetic.to_dict(),
        }

    @property
    def array(self) -> Rows:
        """The ledgers of the evaluation, one row per table, as `Ledger.array`."""
        return self.evaluation.array

    def __str__(self) -> str:
        rules, comparison = self.rules, self.evaluation.comparison
        percent = rules.waste_percent
        bound = f", at most {percent} % waste of a slot unless alignment forces more"
        what = (
            f"{self.evaluation.name}, objective {self.objective}: at most {rules.classes} classes"
            f" to {rules.largest_bytes} B, aligned to {rules.align}, spans of up to {rules.pages}"
            f" pages of {rules.page_bytes} B{bound if percent < NO_BOUND else ''}"
        )
        ledgers: list[Sequence[str]] = list(comparison.text_rows())
        ledgers.insert(len(PARTS), ())
        sections = [
            f"bytes {comparison.when}, simulated",
            _format.table(ledgers, comparison.text_head, indent="  "),
            "peak resident, each table at its own moment, bytes",
            _format.table(*self._resident_rows(), indent="  "),
            f"what {self.table.name} saves of the peak resident under {self.stock}, by cause"
            f" {comparison.when}",
            _format.table(*self._split_rows(), indent="  "),
        ]
        return "\n".join([what, *sections, self.verdict()])

    @property
    def _evaluations(self) -> tuple[Evaluation, ...]:
        return (self.evaluation, *self.held_out)

    def _head(self) -> Sequence[str]:
        return ("", self.evaluation.name, *(f"{one.name}, held out" for one in self.held_out))

    def _resident_rows(self) -> tuple[list[Sequence[str]], Sequence[str]]:
        """Return one row per table, fewest resident bytes first; the limit last."""
        names = sorted(self.evaluation.resident_bytes, key=self._judged_bytes)
        sizes = [(name, [one.resident_bytes[name] for one in self._evaluations]) for name in names]
        sizes.append(("limit: perfect packing", [one.limit_bytes for one in self._evaluations]))
        return [(name, *map(_format.number, row)) for name, row in sizes], self._head()

    def _judged_bytes(self, name: str) -> int:
        return sum(one.resident_bytes[name] for one in self.judged)

    def _split_rows(self) -> tuple[list[Sequence[str]], Sequence[str]]:
        """Return the saving by cause, and what is left."""
        splits = [one.split() for one in self._evaluations]
        rows: list[Sequence[str]] = [
            (cause, *(_format.number(split[cause]) for split in splits)) for cause in splits[0]
        ]
        rows.append(
            (
                "all: peaks at their own moments",
                *(_format.number(one.saved_bytes) for one in self._evaluations),
            )
        )
        rows.append(())
        left = [one.left() for one in self._evaluations]
        rows += [(f"left: {cause}", *(_number(one[cause]) for one in left)) for cause in left[0]]
        return rows, self._head()

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def _repr_html_(self) -> str:
        comparison = self.evaluation.comparison
        return _format.html_table(comparison.text_rows(), comparison.text_head, self.verdict())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the Pareto front; return the matplotlib Axes."""
        return self.pareto.plot(ax)

    def plot_waste(self, ax: Axes | None = None) -> Axes:
        """Draw the round-up of each size under this and the stock table; return the Axes."""
        return draw("waste", [SizeClassTable.named(self.stock), self.table], ax=ax)


def _number(count: int | None) -> str:
    return "unknown" if count is None else _format.number(count)
