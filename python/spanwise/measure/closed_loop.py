# SPDX-License-Identifier: Apache-2.0
"""The closed loop: fit a table to a recorded program, build it, and measure the program again.

The simulator predicts, and the tracked preloaded malloc measures. Both know the exact peak of held
bytes, so that is compared. The preloaded malloc's ledger of the peak is of a moment with live
bytes at most 1/32 below their peak.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanwise import _format, errors
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.measure.bench_rounds import variables_of
from spanwise.measure.running import ProcessLedger, run

CLASSES, ALIGN, OBJECTIVE, WASTE_PERCENT = 32, 16, "resident", 25
"""The rules of the fitted table."""


_VARIABLES = (
    *("RECORD_FILE", "RECORD_AREAS", "RECORD_PYTHON", "RECORD_CHILDREN"),
    *("RECORD_PID", "TRACKED", "LEDGER"),
)
"""The variables of recorder and preloaded malloc, without the prefix SPANWISE_."""


def same_environment() -> dict[str, str]:
    """Return an environment with fixed hash seeds, in which all runs allocate alike.

    It has every variable that the recorder or the preloaded malloc adds, because python copies its
    environment into its heap.
    """
    return {**variables_of({}), **{f"SPANWISE_{name}": "0" for name in _VARIABLES}}


@dataclass(frozen=True)
class Measured:
    """A program under one table: the prediction and the runs.

    Attributes:
        predicted: the simulator's ledger at the peak of the recording.
        runs: the ledger of each run under the preloaded malloc of that table; empty: not run.
        peak_rss: the peak RSS of each untracked run, bytes, ascending.
        outside: resident bytes outside of the heap at the end of each untracked run.
    """

    predicted: Ledger
    runs: tuple[ProcessLedger, ...] = ()
    peak_rss: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()

    @property
    def predicted_bytes(self) -> int:
        """The peak of the held bytes of the simulated heap."""
        assert self.predicted.stats is not None
        return self.predicted.stats.peak_held_bytes

    @property
    def measured_bytes(self) -> int | None:
        """Median over the runs of the peak of held bytes; None: not run."""
        held = [one.peak_held_bytes for one in self.runs]
        return round(statistics.median(held)) if held else None

    @property
    def outside_bytes(self) -> int | None:
        """Median of `outside`; None: not measured."""
        return round(statistics.median(self.outside)) if self.outside else None

    @property
    def error(self) -> float | None:
        """Measured / predicted - 1; None: not run."""
        measured = self.measured_bytes
        return None if measured is None else measured / self.predicted_bytes - 1

    @property
    def ledger(self) -> Ledger | None:
        """The measured ledger at the peak of live bytes of the median run."""
        runs = sorted(self.runs, key=lambda one: one.peak_held_bytes)
        return runs[len(runs) // 2].peak if runs else None

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        ledger = self.ledger
        return {
            "table": self.predicted.table,
            "predicted_peak_held_bytes": self.predicted_bytes,
            "measured_peak_held_bytes": self.measured_bytes,
            "error": self.error,
            "runs": [one.peak_held_bytes for one in self.runs],
            "tracked_peak_rss_bytes": [one.peak_rss_bytes for one in self.runs],
            "peak_rss_bytes": list(self.peak_rss),
            "outside_bytes": self.outside_bytes,
            "predicted": self.predicted.to_dict(),
            "measured": ledger.to_dict() if ledger else None,
        }


def measure(
    argv: Sequence[str],
    predicted: Ledger,
    count: int,
    *,
    lib: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Measured:
    """Run a program under a preloaded malloc.

    Args:
        argv: program and arguments.
        predicted: the simulator's ledger of its recording, under the table of that malloc.
        count: runs.
        lib: a folder of `build`; None: the installed preloaded malloc.
        env: the program's environment; None: `same_environment`.

    Raises:
        ProgramError: the program failed, or wrote no ledger. Other errors as of `run`.
    """
    given = same_environment() if env is None else env
    return Measured(predicted, tuple(_run_again(argv, lib, given) for _ in range(count)))


def _run_again(
    argv: Sequence[str],
    lib: str | os.PathLike[str] | None,
    env: Mapping[str, str],
) -> ProcessLedger:
    result = run(argv, lib=lib, env=env)
    if result.main is None:
        raise errors.ProgramError(result.why_no_ledger())
    if result.returncode != 0:
        raise errors.ProgramError(f"{argv[0]}: ended with {result.returncode} when run again")
    return result.main


@dataclass(frozen=True)
class Loop:
    """A program under the installed preloaded malloc and under that of its fitted table.

    Attributes:
        label: name of the program.
        stock: under the installed table.
        best: under the fitted table, which may be no better.
        classes: number of classes of the fitted table.
        wins: whether the optimiser prefers the fitted table.
        verdict: of the optimiser.
        why_not: why the table was not built; "" if it was.
        plain_rss: the peak RSS of each run without spanwise, bytes, ascending; in the rounds of
            `peak_rss`, with CPython's own allocator.
    """

    label: str
    stock: Measured
    best: Measured
    classes: int
    wins: bool
    verdict: str
    why_not: str = ""
    plain_rss: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "plain_peak_rss_bytes": list(self.plain_rss),
            "classes": self.classes,
            "wins": self.wins,
            "verdict": self.verdict,
            "stock": self.stock.to_dict(),
            "best": self.best.to_dict(),
            "built": not self.why_not,
            "why_not": self.why_not,
        }

    def columns(self) -> list[tuple[str, Ledger, int]]:
        """Return title, ledger and peak of held bytes per column: predicted, then measured."""
        found = []
        for one in (self.stock, self.best):
            table = one.predicted.table
            found.append((table, one.predicted, one.predicted_bytes))
            measured = one.measured_bytes
            if one.ledger is not None and measured is not None:
                found.append(("measured", one.ledger, measured))
        return found

    def __str__(self) -> str:
        """Return predicted and measured ledgers at the peak as a table."""
        columns = self.columns()
        names = [*PARTS.items(), ("held_bytes", "held")]
        rows: list[Sequence[str]] = [
            (title, *(_format.number(getattr(ledger, name)) for _, ledger, _ in columns))
            for name, title in names
        ]
        rows.insert(len(PARTS), ())
        rows.append(("peak held", *(_format.number(most) for _, _, most in columns)))
        for title, figure in (("peak resident", _peak_resident), ("limit", _limit)):
            rows.append((title, *(_number(figure(ledger)) for _, ledger, _ in columns)))
        rows.append(("outside the heap", *map(_number, self._outside())))
        head = ("", *(title for title, _, _ in columns))
        what = f"{self.label}: ledger at the peak of live bytes, predicted"
        what += "" if self.why_not else " and measured (live bytes up to 1/32 below the peak)"
        table = _format.table(rows, head, indent="  ")
        limit = "  limit: the highest requested bytes, which is what perfect packing needs"
        outside = (
            "  outside the heap: resident at the end of untracked runs, median; no table saves it"
        )
        return f"{what}, bytes\n{table}\n{limit}\n{outside}"

    def _outside(self) -> list[int | None]:
        """Return the bytes outside of the heap per column; None: not measured."""
        found: list[int | None] = []
        for one in (self.stock, self.best):
            found += [None, one.outside_bytes] if one.ledger is not None else [None]
        return found

    def sentence(self) -> str:
        """Return predicted resident and wasted bytes, verdict, measurement and peak RSS as text."""
        before = self.stock.predicted
        parts = {name: getattr(before, name) for name in PARTS if name != "requested_bytes"}
        most = max(parts, key=lambda name: parts[name])
        resident, limit = _peak_resident(before) or 0, _limit(before) or 0
        return (
            f"{self.label} would have a peak resident of {_format.size(resident)} under"
            f" {before.table}; perfect packing would save {_format.size(resident - limit)}"
            f" ({_format.share(resident - limit, resident)}); of the bytes held at its peak"
            f" {_format.size(before.waste_bytes)}"
            f" ({_format.share(before.waste_bytes, before.held_bytes)}) was waste, most of it in"
            f" {PARTS[most]} ({_format.size(parts[most])}); {self.verdict.rstrip('.')}."
            f" {self._measured()}.{self._resident()}"
        )

    def _measured(self) -> str:
        stock, best = self.stock, self.best
        if stock.measured_bytes is None or best.measured_bytes is None:
            return f"It was not built, so nothing was measured: {self.why_not}"
        used = "With it built and used" if self.wins else "With it built and used all the same"
        return (
            f"{used}, {self.label} held {_format.size(best.measured_bytes)} at most instead"
            f" of {_format.size(stock.measured_bytes)} (predicted"
            f" {_format.size(best.predicted_bytes)} instead of"
            f" {_format.size(stock.predicted_bytes)})"
        )

    def _resident(self) -> str:
        """Return the peak RSS without spanwise, under c16 and under the table, and the saving."""
        stock, best, plain = self.stock.peak_rss, self.best.peak_rss, self.plain_rss
        if not stock or not best or not plain:
            return ""
        without, under, found = (
            _format.size(round(statistics.median(one))) for one in (plain, stock, best)
        )
        runs = _format.plural(len(plain), "interleaved run")
        return (
            f" The peak RSS of {self.label} was {without} without spanwise, {under} under"
            f" {self.stock.predicted.table} and {found} under {self.best.predicted.table} (medians"
            f" of {runs}): {_saved(plain, best)}."
        )


def _saved(plain: Sequence[int], ours: Sequence[int]) -> str:
    """Compare sorted peaks of runs; overlapping ranges count as no difference."""
    before, after = statistics.median(plain), statistics.median(ours)
    change = f"{_format.size(round(abs(before - after)))} ({abs(before - after) / before:.1%})"
    if ours[-1] < plain[0]:
        return f"spanwise saves {change}"
    if plain[-1] < ours[0]:
        return f"no saving, spanwise costs {change}"
    return "no difference, the ranges of the runs overlap"


def _peak_resident(ledger: Ledger) -> int | None:
    return ledger.peak_resident_bytes


def _limit(ledger: Ledger) -> int | None:
    return ledger.stats.peak_requested_bytes if ledger.stats else None


def _number(count: int | None) -> str:
    return "-" if count is None else _format.number(count)
