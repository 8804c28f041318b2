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

CLASSES, ALIGN, OBJECTIVE, WASTE_PERCENT = 32, 16, "resident", 25
"""The rules of the table that the loop is closed with."""


_VARIABLES = (
    *("RECORD_FILE", "RECORD_AREAS", "RECORD_STACKS", "RECORD_PYTHON", "RECORD_CHILDREN"),
    *("RECORD_PID", "TRACKED", "LEDGER"),
)
"""Names, after SPANWISE_, of the variables that recorder and preloaded malloc read."""


def same_environment() -> dict[str, str]:
    """The environment in which a second run allocates as the first did: hash seeds are fixed.

    It has every variable that the recorder or the preloaded malloc would add: python copies its
    environment into its heap, so two variables more could mean a span more.
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
        outside: what each of these runs had resident outside of the heap at its end, bytes.
    """

    predicted: Ledger
    runs: tuple[ProcessLedger, ...] = ()
    peak_rss: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()

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
    def outside_bytes(self) -> int | None:
        """Median of `outside`, which no table saves; None: it was not measured."""
        return round(statistics.median(self.outside)) if self.outside else None

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
    """A program under the stock preloaded malloc and under the one of the table found for it.

    Attributes:
        label: what the program is called.
        stock: under the table of the installed one.
        best: under the table that was found for it, which may be no better.
        classes: number of classes of that table.
        wins: whether the optimiser's verdict is for that table.
        verdict: the optimiser's verdict.
        why_not: why the table was not built; "" when it was.
        plain_rss: the peak RSS of each run without spanwise, in the same rounds as `peak_rss` of
            the others; bytes, rising. CPython keeps its own allocator in these runs.
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
        """All of it, for JSON."""
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
        for title, told in (("peak resident", _peak_resident), ("limit", _limit)):
            rows.append((title, *(_number(told(ledger)) for _, ledger, _ in columns)))
        rows.append(("outside the heap", *map(_number, self._outside())))
        head = ("", *(title for title, _, _ in columns))
        what = f"{self.label}: ledger at the peak of live bytes, predicted"
        what += "" if self.why_not else " beside measured (live bytes up to 1/32 below the peak)"
        table = _format.table(rows, head, indent="  ")
        limit = "  limit: what perfect packing would have resident, the highest requested bytes"
        outside = "  outside the heap: resident at the end of plain runs, median; no table saves it"
        return f"{what}, bytes\n{table}\n{limit}\n{outside}"

    def _outside(self) -> list[int | None]:
        """The bytes measured outside of the heap, by column; None: none was measured."""
        found: list[int | None] = []
        for one in (self.stock, self.best):
            found += [None, one.outside_bytes] if one.ledger is not None else [None]
        return found

    def sentence(self) -> str:
        """Predicted resident and wasted bytes with the verdict, then what was measured.

        The last sentence compares the peak RSS with that of the program without spanwise.
        """
        before = self.stock.predicted
        parts = {name: getattr(before, name) for name in PARTS if name != "requested_bytes"}
        most = max(parts, key=lambda name: parts[name])
        resident, limit = _peak_resident(before) or 0, _limit(before) or 0
        return (
            f"{self.label} would have a peak resident of {_format.size(resident)} under"
            f" {before.table}, of which perfect packing would save {_format.size(resident - limit)}"
            f" ({_format.share(resident - limit, resident)}); of what it held at its peak"
            f" {_format.size(before.waste_bytes)}"
            f" ({_format.share(before.waste_bytes, before.held_bytes)}) were waste, most of it in"
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
        """The peak RSS without spanwise, under c16 and under the table, and what that saves."""
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
    """What runs save of others; both rising. Ranges that overlap are no difference."""
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
