# SPDX-License-Identifier: Apache-2.0
"""The exact search for the table with the least cost, and the options of all searches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib, errors
from spanwise._lib import check, ffi, lib
from spanwise._owner import Owned
from spanwise.optimizer.profile import (
    OBJECTIVES,
    PEAK,
    RESIDENT,
    SizeProfile,
    check_allocates,
    joint_profile,
)
from spanwise.recordings.recording import Recording
from spanwise.tables import families
from spanwise.tables.table import STOCK, SizeClassTable, as_table, rebuild

_UINT32 = (1 << 32) - 1
SPAN_BYTES_MAX = int(lib.SW_TABLE_SPAN_BYTES_MAX)
SLOTS_MAX = 8192
NO_BOUND = 100
"""The `waste_percent` without a bound."""

PARETO_COUNTS = (4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)
SPAN_SCALES = (1, 2, 4)
_CHARGE_STEPS = 10


@dataclass(frozen=True)
class Rules:
    """The constraints on a table.

    Attributes:
        prior: share of the weight that is spread evenly over the logarithm of the size, for sizes
            that the recordings do not request.
        waste_percent: the most that a class may waste on the smallest request that it serves, in
            percent of its slot, unless the alignment forces more; 100: no bound.
    """

    classes: int  # maximum number of classes
    align: int  # 8, or 16 for every class of 16 bytes and more
    largest_bytes: int  # the largest class, bytes
    page_bytes: int  # page size of the table
    pages: int  # maximum pages of a span
    partial: float  # empty spans charged per class, such as 0.5
    prior: float
    waste_percent: int = NO_BOUND

    def may_follow(self, below: int, size: int) -> bool:
        """Return whether a class may follow one of `below` bytes (0: none) by `waste_percent`."""
        step = 8 if size <= self.align else self.align
        waste = size - below - 1
        return size - below <= step or 100 * waste <= self.waste_percent * size

    def fewest_classes(self) -> int:
        """Return the fewest classes that keep `waste_percent`: each as large as it may be."""
        small = range(8, self.align, 8)
        sizes = [*small, *range(self.align, self.largest_bytes + 1, self.align)]
        below = last = count = 0
        for size in sizes:
            if not self.may_follow(below, size):
                below, count = last, count + 1
            last = size
        return count + 1


class Solver:
    """The best tables of 1, 2, ... classes for a profile under rules."""

    def __init__(self, profile: SizeProfile, rules: Rules, span_weight: float) -> None:
        self.rules = rules
        options = ffi.new("sw_optimize_options *")
        lib.sw_optimize_options_init(options)
        for name, value, what in (
            ("classes", rules.classes, "classes"),
            ("align", rules.align, "align"),
            ("page_bytes", rules.page_bytes, "page_bytes"),
            ("pages_max", rules.pages, "pages"),
            ("max_bytes", rules.largest_bytes, "largest_bytes"),
        ):
            setattr(options, name, _lib.as_index(value, what, _UINT32))
        options.span_charge = span_weight * rules.partial
        weights = np.ascontiguousarray(_with_prior(profile, rules))
        bound = _lib.as_index(rules.waste_percent, "waste_percent", _UINT32)
        if not 1 <= bound <= NO_BOUND:
            raise errors.InvalidError(
                f"waste_percent {bound}: must be 1 to 100; 100 bounds nothing"
            )
        out = ffi.new("sw_optimizer **")
        given = _lib.pointer(weights, "const double *")
        check(lib.sw_optimizer_create_bounded(options, bound, given, out))
        self._owned = Owned(out[0], lib.sw_optimizer_destroy)

    def table(self, classes: int, name: str, source: str, span_scale: int = 1) -> SizeClassTable:
        """Return the best table of at most `classes` classes."""
        specs = ffi.new("sw_class_spec[]", classes)
        count, result = ffi.new("uint32_t *"), ffi.new("sw_optimize_result *")
        check(lib.sw_optimizer_table(self._owned.c, classes, specs, count, result))
        page = self.rules.page_bytes
        pairs = [
            (int(s.size_bytes), _scaled(int(s.size_bytes), int(s.pages), page, span_scale))
            for s in specs[0 : count[0]]
        ]
        return rebuild(pairs, name, page, source, asdict(self.rules))


def _scaled(size: int, pages: int, page_bytes: int, scale: int) -> int:
    """Return the pages times the largest factor up to `scale` that tables allow."""
    most = min(SPAN_BYTES_MAX, SLOTS_MAX * size) // page_bytes
    return pages * max(1, min(scale, most // pages))


def _with_prior(profile: SizeProfile, rules: Rules) -> NDArray[np.float64]:
    """Return the weights with the prior's share spread over all sizes."""
    if not 0 <= rules.prior < 1:
        raise errors.InvalidError(f"prior {rules.prior}: must be at least 0 and below 1")
    if rules.prior == 0:
        return profile.weights
    spread = spread_weights(profile, rules.largest_bytes)
    mixed: NDArray[np.float64] = (1 - rules.prior) * profile.weights + rules.prior * spread
    return mixed


def spread_weights(profile: SizeProfile, largest_bytes: int) -> NDArray[np.float64]:
    """Return weights of all sizes up to the largest, with equal bytes in each doubling of the size.

    The total is the bytes that the profile requests of these sizes.
    """
    largest = min(largest_bytes, len(profile.weights) - 1)
    spread = np.zeros(len(profile.weights))
    spread[1 : largest + 1] = 1.0 / np.arange(1, largest + 1) ** 2
    sizes = np.arange(len(spread))
    served = float(profile.weights[: largest + 1] @ sizes[: largest + 1])
    spread *= served / float(spread @ sizes)
    return spread


# --- a fit ----------------------------------------------------------------------------------------


class Fit:
    """The input of a fit: recordings, an objective and rules."""

    def __init__(
        self,
        recordings: list[Recording],
        objective: str,
        rules: Rules,
        weights: Sequence[float] | None = None,
    ) -> None:
        self.recordings = recordings
        self.objective = objective
        self.rules = rules
        self.profile = joint_profile(recordings, weights)

    def solver(self, **changed: Any) -> Solver:
        """Return the solver under the rules with some of them changed."""
        rules = dataclasses.replace(self.rules, **changed)
        return Solver(self.profile, rules, float(len(self.recordings)))

    def of(self, recordings: list[Recording]) -> Fit:
        """Return the same fit of other recordings, unweighted."""
        return Fit(recordings, self.objective, self.rules)

    def unseen(self) -> SizeProfile:
        """Return requests of all sizes that a class may serve, with the recordings' total bytes."""
        weights = spread_weights(self.profile, self.rules.largest_bytes)
        return dataclasses.replace(self.profile.up_to(0), weights=weights)

    def source(self) -> str:
        """Return the provenance of a table, for its file."""
        names = ", ".join(one.name for one in self.recordings)
        return f"spanwise optimize, objective {self.objective}, of {names}"

    def tables(
        self, counts: Iterable[int], scales: Sequence[int]
    ) -> dict[tuple[int, int], SizeClassTable]:
        """Return the best tables by (number of classes, span scale), without a bound on waste."""
        wanted = sorted(set(counts))
        charges = [*(self.rules.partial / 4**step for step in range(_CHARGE_STEPS)), 0.0]
        solvers: list[Solver] = []

        def table(count: int, scale: int) -> SizeClassTable:
            name = f"best-{count}-{self.objective}"
            for step, charge in enumerate(charges):
                if step == len(solvers):
                    changed = {"classes": wanted[-1], "partial": charge}
                    solvers.append(self.solver(**changed, waste_percent=NO_BOUND))
                found = solvers[step].table(count, name, self.source(), scale)
                if len(found) == count:
                    break
            return found

        return {(count, scale): table(count, scale) for scale in scales for count in wanted}

    def proposals(self, name: str | None) -> list[SizeClassTable]:
        """Return the solver's candidate tables, all with one name (None: best-N-OBJECTIVE)."""
        most = self.rules.classes
        solver = self.solver()
        name = name or f"best-{most}-{self.objective}"
        if self.objective == PEAK:
            return [solver.table(most, name, self.source())]
        fewest = self.rules.fewest_classes()
        found: dict[int, SizeClassTable] = {}
        for scale in SPAN_SCALES:
            for count in held_counts(most):
                if count >= fewest:
                    table = solver.table(count, name, self.source(), scale)
                    found.setdefault(table.hash, table)
        return list(found.values())

    def make(self, name: str, specs: Sequence[tuple[int, int, int]]) -> SizeClassTable:
        """Return a table of the given classes, with the provenance and the rules of this fit."""
        page = self.rules.page_bytes
        return rebuild(specs, name, page, self.source(), asdict(self.rules))


def held_counts(most: int) -> list[int]:
    """Return the numbers of classes that the simulated objectives try."""
    return [count for count in PARETO_COUNTS if count < most] + [most]


WASTE_PERCENT = 25
"""The default bound on the waste of an unseen size, in percent of its slot."""

PRIOR = 0.02
"""The default share of the weight that is spread over all sizes."""

CANDIDATES_MIN, CANDIDATES_MAX = 48, 160
BUDGET_OPERATIONS = 200_000_000
"""By default the objective `resident` simulates this many operations, within those bounds."""


@dataclass(frozen=True)
class Options:
    """The arguments of `optimize` besides `recordings` and `progress`; `optimize` explains them."""

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
    tables: list[SizeClassTable]  # the stock tables, then the given ones
    held_out: list[Recording] | None  # the held-out recordings, opened; None: none were given

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
