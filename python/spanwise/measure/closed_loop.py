# SPDX-License-Identifier: Apache-2.0
"""A table is found for a recorded program and built, and the program is measured on it again.

What is predicted is the simulator's; what is measured is the preloaded malloc's, in its tracked
form. The two are compared by the peak of held bytes, which both know exactly: the preloaded
malloc's ledger of the peak is of a moment when live bytes were at most 1/32 below their highest.
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
from spanwise.measure.process_ledger import ProcessLedger
from spanwise.measure.running import run

CLASSES, ALIGN, OBJECTIVE = 32, 16, "peak"
"""The rules of the table that the loop is closed with."""


_VARIABLES = (
    *("RECORD_FILE", "RECORD_AREAS", "RECORD_STACKS", "RECORD_CHILDREN", "RECORD_PID"),
    *("TRACKED", "LEDGER"),
)
"""What recorder and preloaded malloc find in a program's environment, after SPANWISE_."""


def same_environment() -> dict[str, str]:
    """The environment in which a second run allocates as the first did: hash seeds are fixed.

    It has a variable for each that the recorder or the preloaded malloc will set: python copies its
    environment, and two variables more or fewer may be a span more or fewer.
    """
    seeds = {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
    return {**os.environ, **seeds, **{f"SPANWISE_{name}": "0" for name in _VARIABLES}}


@dataclass(frozen=True)
class Measured:
    """A program under one table: what the simulator predicts, and what its runs told.

    Attributes:
        predicted: the simulator's ledger at the peak of its recording.
        runs: what each run under the preloaded malloc of that table told; none: it was not run.
        peak_rss: the peak RSS of each run at full speed, whose heap keeps no requested sizes, in
            bytes and rising.
    """

    predicted: Ledger
    runs: tuple[ProcessLedger, ...] = ()
    peak_rss: tuple[int, ...] = ()

    @property
    def predicted_bytes(self) -> int:
        """Most that the simulated heap held at once."""
        assert self.predicted.stats is not None
        return self.predicted.stats.peak_held_bytes

    @property
    def measured_bytes(self) -> int | None:
        """Median over the runs of the most that the heap held at once; None: it was not run."""
        told = [one.peak_held_bytes for one in self.runs]
        return round(statistics.median(told)) if told else None

    @property
    def error(self) -> float | None:
        """Measured over predicted, less 1; None: it was not run."""
        measured = self.measured_bytes
        return None if measured is None else measured / self.predicted_bytes - 1

    @property
    def ledger(self) -> Ledger | None:
        """The measured ledger at the peak of live bytes, of the run that held the median."""
        told = sorted(self.runs, key=lambda one: one.peak_held_bytes)
        return told[len(told) // 2].peak if told else None

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        ledger = self.ledger
        return {
            "table": self.predicted.table,
            "predicted_peak_held_bytes": self.predicted_bytes,
            "measured_peak_held_bytes": self.measured_bytes,
            "error": self.error,
            "runs": [one.peak_held_bytes for one in self.runs],
            "tracked_peak_rss_bytes": [one.peak_rss_bytes for one in self.runs],
            "peak_rss_bytes": list(self.peak_rss),
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
    """Runs a program under a preloaded malloc.

    Args:
        argv: program and arguments.
        predicted: the simulator's ledger of its recording, under the table of that malloc.
        count: runs.
        lib: a folder that `build` made; None: the preloaded malloc that is installed.
        env: the program's environment; None: `same_environment`.

    Raises:
        ProgramError: the program failed, or told no ledger. Else as `run`.
    """
    given = same_environment() if env is None else env
    return Measured(predicted, tuple(_run_again(argv, lib, given, True) for _ in range(count)))


def measure_rss(
    argv: Sequence[str],
    libs: Sequence[str | os.PathLike[str] | None],
    count: int,
    *,
    env: Mapping[str, str] | None = None,
) -> list[tuple[int, ...]]:
    """Peak RSS of a program under preloaded mallocs at full speed, which run in turns.

    Args:
        argv: program and arguments.
        libs: folders that `build` made; None: the preloaded malloc that is installed.
        count: runs of each.
        env: the program's environment; None: `same_environment`.

    Returns:
        For each of `libs` the bytes of its runs, rising.

    Raises:
        As `measure`.
    """
    given = same_environment() if env is None else env
    found: list[list[int]] = [[] for _ in libs]
    for _ in range(count):
        for told, lib in zip(found, libs, strict=True):
            told.append(_run_again(argv, lib, given, False).peak_rss_bytes)
    return [tuple(sorted(told)) for told in found]


def _run_again(
    argv: Sequence[str],
    lib: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    tracked: bool,
) -> ProcessLedger:
    result = run(argv, lib=lib, env=env, tracked=tracked)
    if result.main is None:
        raise errors.ProgramError(result.why_no_ledger())
    if result.returncode != 0:
        raise errors.ProgramError(f"{argv[0]}: ended with {result.returncode} when run again")
    return result.main


@dataclass(frozen=True)
class Loop:
    """A program under the stock preloaded malloc and under the one of the table found for it.

    Attributes:
        label: what the program is called.
        stock: under the table of the installed one.
        best: under the table that was found for it, which may be no better.
        classes: number of classes of that table.
        why_not: why the table was not built; "" when it was.
    """

    label: str
    stock: Measured
    best: Measured
    classes: int
    why_not: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "classes": self.classes,
            "beats_stock": self.beats_stock,
            "stock": self.stock.to_dict(),
            "best": self.best.to_dict(),
            "built": not self.why_not,
            "why_not": self.why_not,
        }

    def columns(self) -> list[tuple[str, Ledger, int]]:
        """Title, ledger and peak of held bytes of each column: predicted, then measured."""
        found = []
        for one in (self.stock, self.best):
            table = one.predicted.table
            found.append((table, one.predicted, one.predicted_bytes))
            measured = one.measured_bytes
            if one.ledger is not None and measured is not None:
                found.append(("measured", one.ledger, measured))
        return found

    def __str__(self) -> str:
        """Ledgers at the peak, predicted beside measured."""
        columns = self.columns()
        names = [*PARTS.items(), ("held_bytes", "held")]
        rows: list[Sequence[str]] = [
            (title, *(_format.number(getattr(ledger, name)) for _, ledger, _ in columns))
            for name, title in names
        ]
        rows.insert(len(PARTS), ())
        rows.append(("most held at once", *(_format.number(most) for _, _, most in columns)))
        head = ("", *(title for title, _, _ in columns))
        what = f"{self.label}: ledger at the peak of live bytes, predicted"
        what += "" if self.why_not else " beside measured (live bytes up to 1/32 below the peak)"
        return f"{what}, bytes\n{_format.table(rows, head, indent='  ')}"

    @property
    def beats_stock(self) -> bool:
        """Whether the found table would hold less at the peak of live bytes, as predicted."""
        return self.best.predicted.held_bytes < self.stock.predicted.held_bytes

    def sentence(self) -> str:
        """What was wasted, whether the found table would hold less, what was measured with it."""
        before = self.stock.predicted
        parts = {name: getattr(before, name) for name in PARTS if name != "requested_bytes"}
        most = max(parts, key=lambda name: parts[name])
        return (
            f"{self.label} wasted {_format.size(before.waste_bytes)}"
            f" ({_format.share(before.waste_bytes, before.held_bytes)}) of what it held at its peak"
            f" under {before.table}, most of it in {PARTS[most]} ({_format.size(parts[most])});"
            f" {self._predicted()}; {self._measured()}."
        )

    def _predicted(self) -> str:
        before, after = self.stock.predicted, self.best.predicted
        what = f"{after.table}, {_format.plural(self.classes, 'class')}, would waste"
        wasted = _format.size(after.waste_bytes)
        if self.beats_stock:
            saved = before.waste_bytes - after.waste_bytes
            return f"{what} {wasted}, {_format.size(saved)} less"
        beyond = after.waste_bytes - before.waste_bytes
        worse = f"{wasted}, {_format.size(beyond)} beyond that" if beyond else "as much"
        return f"no table that was found holds less, so {before.table} stays ({what} {worse})"

    def _measured(self) -> str:
        stock, best = self.stock, self.best
        if stock.measured_bytes is None or best.measured_bytes is None:
            return f"it was not built, so nothing was measured: {self.why_not}"
        used = "built and used" if self.beats_stock else "built and used all the same"
        return (
            f"{used}, {self.label} held {_format.size(best.measured_bytes)} at most instead"
            f" of {_format.size(stock.measured_bytes)} (predicted"
            f" {_format.size(best.predicted_bytes)} instead of"
            f" {_format.size(stock.predicted_bytes)}){self._resident()}"
        )

    def _resident(self) -> str:
        """Peak RSS under both; no difference where the runs of one lie among those of the other."""
        stock, best = self.stock.peak_rss, self.best.peak_rss
        if not stock or not best:
            return ""
        if best[-1] < stock[0] or stock[-1] < best[0]:
            less, more = (_format.size(round(statistics.median(one))) for one in (best, stock))
            runs = _format.plural(len(best), "run")
            return f"; its peak RSS was {less} instead of {more} (medians of {runs} each)"
        spans = (f"{_format.size(one[0])} to {_format.size(one[-1])}" for one in (best, stock))
        return f"; its peak RSS was no different ({', and before '.join(spans)})"
