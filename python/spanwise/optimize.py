# SPDX-License-Identifier: Apache-2.0
"""The size-class table that wastes least for recordings: exact under stated rules.

Rules and method: docs/design/optimize.md. Dynamic programming over all sizes that a class may have;
the span of each class is chosen with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spanwise import _format, errors, families, plots
from spanwise._profile import OBJECTIVES, UNITS, SizeProfile, Waste, joint_profile
from spanwise._solver import Rules, Solver
from spanwise.frontier import AS_RECORDED, Frontier, peak_ledger, simulate_frontier
from spanwise.simulate import Progress
from spanwise.sizeclass import SizeClassTable
from spanwise.trace import Recording

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HELD = "held"
"""The objective of the fewest held bytes at the peak, simulated: the minimum of the U."""

BASELINES = ("go", "c16", "jemalloc", "tcmalloc", "mimalloc")
"""Tables that every result is put beside."""

FRONTIER_COUNTS = (4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)
FRONTIER_CACHES = (AS_RECORDED, 1, 2, 4, 8, 16)
FRONTIER_SCALES = (1, 2, 4)
_CHARGE_STEPS = 10

Recordings = Recording | Iterable[Recording]
"""One recording, or several (a list, a `RecordingSet`)."""


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


def optimize(
    recordings: Recordings,
    classes: int = 24,
    objective: str = "peak",
    *,
    align: int = 16,
    holdout: Recordings | None = None,
    max_size: int = 32768,
    page_bytes: int = 8192,
    pages: int = 10,
    partial: float | None = None,
    prior: float = 0.0,
    weights: Sequence[float] | None = None,
    name: str | None = None,
) -> Optimum:
    """Finds the table of at most `classes` classes that wastes least for recordings.

    Args:
        recordings: what to fit the table to.
        classes: at most so many, 1 to 255.
        objective: what a size weighs: "allocs" (every allocation), "time" (how long objects live),
            "peak" (what is live at the peak of requested bytes); or "held": of the tables that are
            best for the peak, the one that holds least there when simulated.
        align: 8, or 16: then every class of 16 bytes and more is a multiple of 16, as a C malloc
            owes.
        holdout: recordings that the table is judged on and not fitted to.
        max_size: the largest class, bytes; the table always has it.
        page_bytes: of the table: 4096 to 65536.
        pages: most pages of a span.
        partial: what each class is charged for spans that are partly empty, in spans. None: half a
            span, for the objective "allocs" nothing.
        prior: part of the weight, 0 to below 1, that is spread over all sizes: a table that knows
            that it will meet sizes which it has not seen.
        weights: how much each recording counts, whatever its length; None: bytes are added up.
        name: of the table; None: best-N-objective.

    Returns:
        The table with what it gains, in the recordings and in those that were held out.

    Raises:
        InvalidError: rules that no table meets, a recording without allocations, or without any
            of at most max_size bytes.
    """
    if name is not None:
        families.check_name(name)
    fitted = _listed(recordings)
    if not fitted:
        raise errors.InvalidError("no recording to fit a table to; give at least one")
    kind = "peak" if objective == HELD else objective
    if kind not in OBJECTIVES:
        known = ", ".join((*OBJECTIVES, HELD))
        raise errors.InvalidError(f"objective {objective!r}: must be one of {known}")
    charge = (0.0 if kind == "allocs" else 0.5) if partial is None else float(partial)
    rules = Rules(classes, align, max_size, page_bytes, pages, charge, prior)
    profile = joint_profile(fitted, kind, weights)
    held_out = _listed(holdout) if holdout is not None else []
    judged = joint_profile(held_out, kind, None) if held_out else None
    fit = _Fit(fitted, objective, profile, rules, len(fitted))
    return Optimum(fit, fit.best(name), held_out, judged)


def _listed(recordings: Recordings) -> list[Recording]:
    listed = [recordings] if isinstance(recordings, Recording) else list(recordings)
    for one in listed:
        if not isinstance(one, Recording):
            raise TypeError(f"recordings must be Recording objects, not {type(one).__name__}")
    return listed


class _Fit:
    """What a table is fitted to, and under which rules."""

    def __init__(
        self,
        recordings: list[Recording],
        objective: str,
        profile: SizeProfile,
        rules: Rules,
        count: int,
    ) -> None:
        self.recordings = recordings
        self.objective = objective
        self.kind = "peak" if objective == HELD else objective
        self.profile = profile
        self.rules = rules
        self._span_weight = profile.seconds if self.kind == "time" else float(count)

    def solver(self, **changed: Any) -> Solver:
        """The best tables under the rules, some of them changed."""
        rules = dataclasses.replace(self.rules, **changed)
        return Solver(self.profile, rules, self._span_weight)

    def source(self) -> str:
        """For table files: where the table comes from."""
        names = ", ".join(one.name for one in self.recordings)
        return f"spanwise optimize, objective {self.objective}, of {names}"

    def tables(
        self, counts: Iterable[int], scales: Sequence[int]
    ) -> dict[tuple[int, int], SizeClassTable]:
        """The best tables by number of classes and length of spans.

        Beyond some number no further class is worth the charge for its spans; that the U rises
        there is what the frontier shows, so the charge is then lowered until it is.
        """
        wanted = sorted(set(counts))
        charges = [*(self.rules.partial / 4**step for step in range(_CHARGE_STEPS)), 0.0]
        solvers: list[Solver] = []

        def table(count: int, scale: int) -> SizeClassTable:
            name = f"best-{count}-{self.objective}"
            for step, charge in enumerate(charges):
                if step == len(solvers):
                    solvers.append(self.solver(classes=wanted[-1], partial=charge))
                found = solvers[step].table(count, name, self.source(), scale)
                if len(found) == count:
                    break
            return found

        return {(count, scale): table(count, scale) for scale in scales for count in wanted}

    def best(self, name: str | None) -> SizeClassTable:
        """The table that the objective asks for."""
        most = self.rules.classes
        solver = self.solver()
        called = name or f"best-{most}-{self.objective}"
        if self.objective != HELD:
            return solver.table(most, called, self.source())
        counts = [n for n in FRONTIER_COUNTS if n < most] + [most]
        found = {
            (count, scale): solver.table(count, called, self.source(), scale)
            for scale in FRONTIER_SCALES
            for count in counts
        }
        return min(found.values(), key=lambda table: peak_ledger(self.recordings, table).held_bytes)


class Optimum:
    """The best table for recordings, and what it gains.

    Attributes:
        table: the table.
        objective: what it was fitted to.
        unit: of all amounts of waste: "bytes" or "byte-seconds".
        waste: what it wastes on the recordings it was fitted to.
        baselines: what go, c16, jemalloc, tcmalloc and mimalloc waste on them.
        holdout_waste: what it wastes on the recordings that were held out; None: there are none.
        holdout_baselines: what the others waste on those.
        rules: what the optimiser might choose from.
    """

    def __init__(
        self,
        fit: _Fit,
        table: SizeClassTable,
        held_out: list[Recording],
        judged: SizeProfile | None,
    ) -> None:
        self._fit = fit
        self.table = table
        self.objective = fit.objective
        self.unit = UNITS[fit.kind]
        self.rules = fit.rules
        self.held_out = tuple(held_out)
        self.waste = fit.profile.waste(table)
        self.baselines = _baselines(fit.profile)
        self.holdout_waste = judged.waste(table) if judged is not None else None
        self.holdout_baselines = _baselines(judged) if judged is not None else {}

    @property
    def baseline(self) -> str:
        """The table that gains are told against: c16, or go where 8-byte alignment is enough."""
        return "c16" if self.rules.align == 16 else "go"

    @property
    def gain(self) -> float:
        """The part of the baseline's waste that the table saves on what it was fitted to."""
        return _saved(self.baselines[self.baseline], self.waste)

    @property
    def holdout_gain(self) -> float | None:
        """The part that it saves on what was held out; None: nothing was."""
        if self.holdout_waste is None:
            return None
        return _saved(self.holdout_baselines[self.baseline], self.holdout_waste)

    @cached_property
    def frontier(self) -> Frontier:
        """Waste against the number of classes, simulated: some 100 runs up to the peak."""
        return self.make_frontier()

    def make_frontier(
        self,
        counts: Sequence[int] = FRONTIER_COUNTS,
        caches: Sequence[int] = FRONTIER_CACHES,
        scales: Sequence[int] = FRONTIER_SCALES,
        progress: Progress | None = None,
    ) -> Frontier:
        """The frontier at points of one's own.

        Args:
            counts: numbers of classes.
            caches: numbers of caches, 0 for one a recorded thread.
            scales: lengths of spans, as factors.
            progress: called with the number of operations done since its last call.
        """
        counts = sorted({*counts, self.rules.classes})
        tables = self._fit.tables(counts, scales)
        return simulate_frontier(self._fit.recordings, tables, caches, progress)

    def frontier_operations(self) -> int:
        """Operations that the frontier simulates, for a progress bar."""
        points = len({*FRONTIER_COUNTS, self.rules.classes}) * len(FRONTIER_SCALES)
        return points * sum(one.summary.peak_op for one in self._fit.recordings)

    @cached_property
    def constraints(self) -> list[Constraint]:
        """What each rule costs: the best table with that rule changed."""
        rules = self.rules
        room = -(-262144 // rules.page_bytes)
        changes: list[tuple[str, dict[str, Any]]] = [
            (f"align {24 - rules.align} instead of {rules.align}", {"align": 24 - rules.align}),
            ("largest class 65536 B", {"max_size": 65536, "pages": max(rules.pages, room)}),
            ("largest class 262144 B", {"max_size": 262144, "pages": max(rules.pages, room)}),
            (f"spans of up to {4 * rules.pages} pages", {"pages": 4 * rules.pages}),
            ("the fewest pages for the largest class", {"pages": self._fewest_pages()}),
            ("spans that Go's 32-bit division serves", {"narrow": True}),
            ("nothing charged for partly empty spans", {"partial": 0.0}),
            ("twice as many classes", {"classes": min(2 * rules.classes, 255)}),
        ]
        return [self._constraint(rule, changed) for rule, changed in changes]

    def _fewest_pages(self) -> int:
        return -(-self.rules.max_size // self.rules.page_bytes)

    def _constraint(self, rule: str, changed: dict[str, Any]) -> Constraint:
        solver = self._fit.solver(**changed)
        table = solver.table(solver.rules.classes, "changed", "")
        waste = self._fit.profile.waste(table).total
        plain = self._fit.solver().table(self.rules.classes, "plain", "")
        return Constraint(rule, waste, self._fit.profile.waste(plain).total - waste)

    # --- other forms ---

    def to_dict(self) -> dict[str, Any]:
        """All of it but the frontier, for JSON."""
        return {
            "table": self.table.to_table_file(),
            "objective": self.objective,
            "unit": self.unit,
            "baseline": self.baseline,
            "gain": self.gain,
            "holdout_gain": self.holdout_gain,
            "waste": self.waste.to_dict(),
            "baselines": {name: waste.to_dict() for name, waste in self.baselines.items()},
            "holdout_waste": self.holdout_waste.to_dict() if self.holdout_waste else None,
            "holdout_baselines": {n: w.to_dict() for n, w in self.holdout_baselines.items()},
            "constraints": [dataclasses.asdict(one) for one in self.constraints],
        }

    def rows(self) -> list[tuple[str, ...]]:
        """One row a table: waste over requested, and its parts; held out: the last column."""
        every = [*self.baselines.values(), self.waste]
        judged = [*self.holdout_baselines.values(), self.holdout_waste]
        rows = []
        for i, waste in enumerate(every):
            cells = [waste.table, _amount(waste.total, self.unit), _percent(waste.share)]
            parts = (waste.roundup, waste.tail, waste.large_rounding)
            cells += [_amount(part, self.unit) for part in parts]
            other = judged[i] if self.holdout_waste is not None else None
            cells += [_percent(other.share)] if other is not None else []
            rows.append(tuple(cells))
        return rows

    @property
    def head(self) -> tuple[str, ...]:
        """Titles of `rows`."""
        head = ("", "waste", "of requested", "round-up", "tail", "large rounding")
        return (*head, "held out") if self.holdout_waste is not None else head

    def verdict(self) -> str:
        """One sentence: what the table saves."""
        text = (
            f"{self.table.name}: {_format.plural(len(self.table), 'class')} waste"
            f" {_amount(self.waste.total, self.unit)} instead of the"
            f" {_amount(self.baselines[self.baseline].total, self.unit)} of {self.baseline},"
            f" {_gained(self.gain)}"
        )
        if self.holdout_gain is None:
            return text + "; nothing was held out."
        return text + f"; {_gained(self.holdout_gain)} on what was held out."

    def __str__(self) -> str:
        names = ", ".join(one.name for one in self._fit.recordings)
        rules = self.rules
        what = (
            f"{names}, objective {self.objective}: at most {rules.classes} classes to"
            f" {rules.max_size} B, aligned to {rules.align}, spans of up to {rules.pages} pages of"
            f" {rules.page_bytes} B"
        )
        costs: list[Sequence[str]] = [
            (one.rule, _signed(one.saved, self.unit), _percent_of(one.saved, self.waste.total))
            for one in self.constraints
        ]
        return "\n".join(
            [
                what,
                _format.table(self.rows(), self.head, indent="  "),
                "what would be saved with",
                _format.table(costs, indent="  "),
                self.verdict(),
            ]
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _format.html_table(self.rows(), self.head, self.verdict())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the frontier; returns the matplotlib Axes."""
        return self.frontier.plot(ax)

    def plot_waste(self, ax: Axes | None = None) -> Axes:
        """Draws the round-up of each size, beside the baseline's; returns the matplotlib Axes."""
        return plots.waste([SizeClassTable.named(self.baseline), self.table], ax=ax)


def _baselines(profile: SizeProfile) -> dict[str, Waste]:
    return {name: profile.waste(SizeClassTable.named(name)) for name in BASELINES}


def _saved(before: Waste, after: Waste) -> float:
    return 1 - after.total / before.total if before.total else 0.0


def _gained(gain: float) -> str:
    return f"{_percent(abs(gain))} {'less' if gain >= 0 else 'more'}"


def _amount(value: float, unit: str) -> str:
    return _format.size(value) + ("" if unit == "bytes" else " s")


def _signed(value: float, unit: str) -> str:
    return ("-" if value < 0 else "") + _amount(abs(value), unit)


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def _percent_of(part: float, whole: float) -> str:
    return _percent(part / whole) if whole else "-"
