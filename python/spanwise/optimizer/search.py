# SPDX-License-Identifier: Apache-2.0
"""Size-class tables for recordings: arithmetic proposes one, simulation tells whether it is good.

Rules and method: docs/design/optimize.md. Dynamic programming over all sizes that a class may have;
the span of each class is chosen with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from spanwise import errors
from spanwise.ledger.comparison import Comparison
from spanwise.optimizer.fit import FRONTIER_SCALES, HELD, Fit, held_counts
from spanwise.optimizer.optimum import Constraint, Optimum
from spanwise.optimizer.profile import OBJECTIVES, check_allocates, joint_profile
from spanwise.optimizer.solver import Rules
from spanwise.optimizer.trial import Trial, barred, simulate, work
from spanwise.recordings.compare import Recordings, as_recordings
from spanwise.recordings.recording import Recording
from spanwise.results.progress import Progress, Step, progress_bar
from spanwise.tables import families
from spanwise.tables.table import STOCK, SizeClassTable, as_table


def optimize(
    recordings: Recordings,
    classes: int = 24,
    objective: str = "peak",
    *,
    align: int = 16,
    holdout: Recordings | None = None,
    tables: Iterable[SizeClassTable | str] = (),
    largest_bytes: int = 32768,
    page_bytes: int = 8192,
    pages: int = 10,
    partial: float | None = None,
    prior: float = 0.0,
    weights: Sequence[float] | None = None,
    name: str | None = None,
    progress: Progress = None,
) -> Optimum:
    """Finds a table of at most `classes` classes for recordings; tries it beside the stock ones.

    The objective proposes a table by arithmetic. Whether it is any good is told by simulation: the
    proposed table, those that are given, and the stock tables go and c16 each run the recordings
    to their peaks, and the one that holds fewest bytes there wins.

    Args:
        recordings: what to fit the table to.
        classes: at most so many, 1 to 255.
        objective: what a size weighs: "allocs" (every allocation), "time" (how long objects live),
            "peak" (what is live at the peak of requested bytes); or "held": of the tables that are
            best for the peak, the one that holds least there when simulated.
        align: 8, or 16: then every class of 16 bytes and more is a multiple of 16, as a C malloc
            owes; a stock or given table that is not aligned so is shown, and cannot win.
        holdout: recordings that the table is tried on, each by itself, and not fitted to.
        tables: more tables to try.
        largest_bytes: the largest class, bytes; the proposed table always has it.
        page_bytes: of the proposed table: 4096 to 65536.
        pages: most pages of a span.
        partial: what each class is charged for spans that are partly empty, in spans. None: half a
            span, for the objective "allocs" nothing.
        prior: part of the weight, 0 to below 1, that is spread over all sizes: a table that knows
            that it will meet sizes which it has not seen.
        weights: how much each recording counts in the fit, whatever its length; None: bytes are
            added up. The trial adds up what the recordings' heaps would hold, unweighted.
        name: of the proposed table; None: best-N-objective.
        progress: as of `Recording.ledger`; the steps are simulated operations.

    Returns:
        The found table, and what it and the others would hold. That it beats the stock tables is
        not promised: ask `beats_stock` and `loses_on`.

    Raises:
        InvalidError: rules that no table meets, a recording without allocations, or without any
            of at most largest_bytes bytes, two different tables of one name, or a held-out
            recording that is fitted to.
    """
    if name is not None:
        families.check_name(name)
    fitted = as_recordings(recordings)
    if not fitted:
        raise errors.InvalidError("no recording to fit a table to; give at least one")
    kind = "peak" if objective == HELD else objective
    if kind not in OBJECTIVES:
        known = ", ".join((*OBJECTIVES, HELD))
        raise errors.InvalidError(f"objective {objective!r}: must be one of {known}")
    charge = (0.0 if kind == "allocs" else 0.5) if partial is None else float(partial)
    rules = Rules(classes, align, largest_bytes, page_bytes, pages, charge, prior)
    given = _given(tables)
    held_out = as_recordings(holdout) if holdout is not None else []
    for one in held_out:
        check_allocates(one)
        if any(one is other or _same_file(one, other) for other in fitted):
            raise errors.InvalidError(
                f"{one.name}: cannot be held out, because the table is fitted to it"
            )
    profile = joint_profile(fitted, kind, weights)
    fit = Fit(fitted, objective, profile, rules, len(fitted))
    total = simulated_operations(
        fitted, classes, objective, holdout=held_out, tables=len(given) - len(STOCK)
    )
    with progress_bar(progress, total, "optimize", "operations") as tell:
        return _try(fit, fit.proposals(name), given, held_out, tell)


def simulated_operations(
    recordings: Recordings,
    classes: int,
    objective: str,
    *,
    holdout: Recordings | None = None,
    tables: int = 0,
) -> int:
    """At most so many operations will `optimize` simulate, for a progress bar.

    Args:
        recordings: as of `optimize`, and so the others.
        classes: at most so many.
        objective: what a size weighs.
        holdout: recordings that are held out.
        tables: number of given tables.
    """
    proposals = len(held_counts(classes)) * len(FRONTIER_SCALES) if objective == HELD else 1
    beside = len(STOCK) + tables
    return work(as_recordings(recordings), beside + proposals) + work(
        as_recordings(holdout or []), beside + 1
    )


def _same_file(one: Recording, other: Recording) -> bool:
    """Whether both were opened from one file."""
    if one.path is None or other.path is None:
        return False
    try:
        return Path(one.path).samefile(other.path)
    except OSError:
        return False


def _given(tables: Iterable[SizeClassTable | str]) -> list[SizeClassTable]:
    """The stock tables, and those given that are no copies; two of one name are refused."""
    found = [SizeClassTable.named(name) for name in STOCK]
    for table in map(as_table, tables):
        if table in found:
            continue
        if table.name in {one.name for one in found}:
            raise errors.InvalidError(f"two different tables have the name {table.name!r}")
        found.append(table)
    return found


def _try(
    fit: Fit,
    proposals: list[SizeClassTable],
    given: list[SizeClassTable],
    held_out: list[Recording],
    progress: Step,
) -> Optimum:
    """Simulates proposals and given tables; the best proposal goes on to what was held out."""
    for table in given:
        if table.name == proposals[0].name and table not in proposals:
            raise errors.InvalidError(
                f"name {table.name!r} belongs to a given table; choose another for the new one"
            )
    ledgers = simulate(fit.recordings, proposals, progress)
    best = min(range(len(proposals)), key=lambda i: ledgers[i].held_bytes)
    proposal = proposals[best]
    every = [table for table in given if table.name != proposal.name]
    align = fit.rules.align
    kept_out = barred(every, align)
    comparison = Comparison([*simulate(fit.recordings, every, progress), ledgers[best]])
    free = [one for one in comparison.ledgers if one.table not in {*kept_out, *STOCK}]
    found = min(reversed(free), key=lambda one: one.held_bytes).table
    every.append(proposal)
    fitted = Trial(_names(fit.recordings), comparison, found, align, kept_out)
    others = [
        Trial(one.name, Comparison(simulate([one], every, progress)), found, align, kept_out)
        for one in held_out
    ]
    table = next(table for table in every if table.name == found)
    return Optimum(fit, proposal, table, fitted, tuple(others))


def _names(recordings: Iterable[Recording]) -> str:
    return ", ".join(one.name for one in recordings)


__all__ = ["HELD", "Constraint", "Optimum", "optimize", "simulated_operations"]
