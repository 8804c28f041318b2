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
from spanwise.optimizer.frontier import AS_RECORDED, Frontier, simulate_frontier
from spanwise.optimizer.profile import UNITS
from spanwise.optimizer.trial import Trial
from spanwise.results.progress import Progress, progress_bar
from spanwise.results.rows import Rows, Tabular
from spanwise.results.values import Result
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRONTIER_CACHES = (AS_RECORDED, 1, 2, 4, 8, 16)


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


class Optimum(Result, Tabular):
    """The table that was found for recordings, and what it would hold beside the stock tables.

    Attributes:
        table: the found table: of the proposed and the given ones, the one that would hold least.
        proposal: the table that the objective proposed.
        objective: what that was fitted to.
        trial: what every table would hold at the peak of what the proposal was fitted to.
        held_out: the same for each recording that was held out.
        rules: what the optimiser might choose from.
        arithmetic: round-up, tail and large rounding of the proposal, weighed by the objective and
            with every span full: what was minimised. It is not the ledger's waste.
        unit: of those, and of `constraints`: "bytes" or "byte-seconds".
    """

    def __init__(
        self,
        fit: Fit,
        proposal: SizeClassTable,
        table: SizeClassTable,
        trial: Trial,
        held_out: tuple[Trial, ...],
    ) -> None:
        self._fit = fit
        self.proposal = proposal
        self.table = table
        self.objective = fit.objective
        self.trial = trial
        self.held_out = held_out
        self.rules = fit.rules
        self.arithmetic = fit.profile.waste(proposal)
        self.unit = UNITS[fit.kind]

    @property
    def stock(self) -> str:
        """The stock table that is to be beaten: of those aligned as asked for, the best."""
        return self.trial.stock_ledger.table

    @property
    def beats_stock(self) -> bool:
        """Whether the found table would hold less than the stock table at the peak."""
        return self.trial.beats_stock

    @property
    def loses_on(self) -> tuple[str, ...]:
        """The held-out recordings on which the found table would hold more than the stock table."""
        return tuple(trial.name for trial in self.held_out if trial.saved_bytes < 0)

    @property
    def holds(self) -> bool:
        """Whether it beats the stock table, and loses on nothing that was held out."""
        return self.beats_stock and not self.loses_on

    @property
    def held_bytes(self) -> dict[str, int]:
        """Held bytes at the peak, by table, of what the proposal was fitted to."""
        return self.trial.held_bytes

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
            "loses_on": list(self.loses_on),
            "trial": self.trial.to_dict(),
            "held_out": [trial.to_dict() for trial in self.held_out],
            "unit": self.unit,
            "arithmetic": self.arithmetic.to_dict(),
            "constraints": [dataclasses.asdict(one) for one in self.constraints],
        }

    @property
    def array(self) -> Rows:
        """The ledgers at the peak, one row a table, with the columns of `Ledger.array`."""
        return self.trial.array

    def verdict(self) -> str:
        """Which table holds least, and whether that is so on each recording that was held out."""
        said = [self.trial.verdict()]
        said += [trial.held_out_verdict() for trial in self.held_out]
        return "; ".join(said if self.held_out else [*said, "nothing was held out"]) + "."

    def __str__(self) -> str:
        rules = self.rules
        what = (
            f"{self.trial.name}, objective {self.objective}: at most {rules.classes} classes to"
            f" {rules.largest_bytes} B, aligned to {rules.align}, spans of up to {rules.pages}"
            f" pages of {rules.page_bytes} B"
        )
        ledgers: list[Sequence[str]] = list(self.trial.comparison.text_rows())
        ledgers.insert(len(PARTS), ())
        saves = f"saves, of {_amount(self.arithmetic.total, self.unit)}"
        costs: list[Sequence[str]] = [
            (one.rule, _signed(one.saved, self.unit)) for one in self.constraints
        ]
        return "\n".join(
            [
                what,
                "bytes at the peak, simulated",
                _format.table(ledgers, self.trial.comparison.text_head, indent="  "),
                *self._held_out_lines(),
                "round-up and tail that another rule would save (negative: cost), if every span"
                " were full",
                _format.table(costs, ("", saves), indent="  "),
                self.verdict(),
            ]
        )

    def _held_out_lines(self) -> list[str]:
        """Held bytes of each recording that was held out, one column a table."""
        if not self.held_out:
            return []
        rows = [
            (trial.name, *map(_format.number, trial.held_bytes.values())) for trial in self.held_out
        ]
        head = ("", *self.held_out[0].held_bytes)
        return ["bytes held at the peak, held out", _format.table(rows, head, indent="  ")]

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


def _amount(value: float, unit: str) -> str:
    return _format.size(value) + ("" if unit == "bytes" else " s")


def _signed(value: float, unit: str) -> str:
    return ("-" if value < 0 else "") + _amount(abs(value), unit)
