# SPDX-License-Identifier: Apache-2.0
"""The arguments of `optimize`: checks and defaults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spanwise import errors
from spanwise.optimizer.profile import (
    OBJECTIVES,
    RESIDENT,
    check_allocates,
)
from spanwise.optimizer.solver import Fit, Rules
from spanwise.recordings.recording import Recording
from spanwise.tables import families
from spanwise.tables.table import STOCK, SizeClassTable, as_table

WASTE_PERCENT = 25
"""The default bound on the waste of an unseen size, in percent of its slot."""

PRIOR = 0.02
"""The default share of the weight that is spread over all sizes."""

CANDIDATES_MIN, CANDIDATES_MAX = 48, 160
BUDGET_OPERATIONS = 200_000_000
"""By default the objective `resident` simulates this many operations, within those bounds."""


@dataclass(frozen=True)
class Options:
    """The arguments of `optimize` besides `recordings` and `progress`; `optimize` explains them.

    Attributes:
        tables: the stock tables, then the given ones.
        held_out: the held-out recordings, opened; None: none were given.
    """

    classes: int
    objective: str
    align: int
    largest_bytes: int
    page_bytes: int
    pages: int
    partial: float
    waste_percent: int
    prior: float | None
    least_percent: float
    weights: Sequence[float] | None
    candidates: int | None
    mixed: bool
    folds: int | None
    name: str | None
    moment: SizeClassTable | None
    tables: list[SizeClassTable]
    held_out: list[Recording] | None

    def check(self, fitted: list[Recording]) -> None:
        """Raise InvalidError for options that are out of range or do not fit the recordings."""
        if self.name is not None:
            families.check_name(self.name)
        if not fitted:
            raise errors.InvalidError("no recording to fit a table to; give at least one")
        if self.objective not in OBJECTIVES:
            names = ", ".join(OBJECTIVES)
            raise errors.InvalidError(f"objective {self.objective!r}: must be one of {names}")
        if not 0 <= self.least_percent <= 100:
            raise errors.InvalidError(f"least_percent {self.least_percent}: must be 0 to 100")
        if self.candidates is not None and self.candidates < 1:
            raise errors.InvalidError(f"candidates {self.candidates}: must be at least 1")
        if self.held_out == []:
            raise errors.InvalidError("holdout: no recording; give at least one, or none at all")
        check_held_out(self.held_out or [], fitted)
        if not self.mixed:
            check_programs([*fitted, *(self.held_out or [])])
        if self.folds and self.weights is not None:
            raise errors.InvalidError(
                "weights and folds: a held-out part has no weight; give one of both"
                " (--weight, --folds)"
            )

    def fit(self, fitted: list[Recording]) -> Fit:
        """Return the fit of recordings."""
        prior = self.prior
        if prior is None:
            prior = PRIOR if self.objective == RESIDENT else 0.0
        rules = Rules(
            self.classes,
            self.align,
            self.largest_bytes,
            self.page_bytes,
            self.pages,
            float(self.partial),
            float(prior),
            self.waste_percent,
        )
        return Fit(fitted, self.objective, rules, self.weights)

    def candidates_for(self, recordings: Sequence[Recording]) -> int:
        """Return the maximum number of tables that a search on these recordings simulates."""
        return self.candidates or default_candidates(recordings)


def default_candidates(recordings: Sequence[Recording]) -> int:
    """Return the number of tables that the objective `resident` simulates by default."""
    operations = max(1, sum(map(len, recordings)))
    return max(CANDIDATES_MIN, min(CANDIDATES_MAX, BUDGET_OPERATIONS // operations))


def check_held_out(held_out: Iterable[Recording], fitted: Iterable[Recording]) -> None:
    """Raise InvalidError for a held-out recording without allocations, or one that is fitted to."""
    for one in held_out:
        check_allocates(one)
        if any(one is other or _same_file(one, other) for other in fitted):
            raise errors.InvalidError(
                f"{one.name}: cannot be held out, because the table is fitted to it"
            )


def check_programs(recordings: Iterable[Recording]) -> None:
    """Raise InvalidError for recordings of different programs."""
    first: tuple[str, str] | None = None
    for one in recordings:
        if "program" not in dict(one.meta):
            continue
        name = Path(one.program).name
        if first is not None and name != first[1]:
            raise errors.InvalidError(
                f"{one.name}: is of {name}, and {first[0]} of {first[1]}; give recordings of one"
                " program, or fit a table to several with mixed=True (--mixed)"
            )
        first = first or (one.name, name)


def _same_file(one: Recording, other: Recording) -> bool:
    if one.path is None or other.path is None:
        return False
    try:
        return Path(one.path).samefile(other.path)
    except OSError:
        return False


def given_tables(tables: Iterable[SizeClassTable | str]) -> list[SizeClassTable]:
    """Return the stock tables and the given ones, without duplicates."""
    found = [SizeClassTable.named(name) for name in STOCK]
    for table in map(as_table, tables):
        if table in found:
            continue
        if table.name in {one.name for one in found}:
            raise errors.InvalidError(f"two different tables have the name {table.name!r}")
        found.append(table)
    return found
