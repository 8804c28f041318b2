# SPDX-License-Identifier: Apache-2.0
"""Lines that collectors print: ours (SPANWISE_DEBUG=gctrace=1) and Go's (GODEBUG=gctrace=1)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.results.rows import Rows, Tabular, rows_of
from spanwise.results.values import Result, Value

_N = r"(\d+(?:\.\d+)?)"
_LINE = re.compile(
    rf"gc (\d+) @{_N}s (\d+)%: {_N}\+{_N}\+{_N} ms clock,"
    rf" {_N}\+{_N}/{_N}/{_N}\+{_N} ms cpu,"
    rf" {_N}(?: ?MB)?->{_N}(?: ?MB)?->{_N} ?MB,? \(?{_N} ?MB goal\)?"
    rf"(?:, {_N} MB stacks, {_N} MB globals)?(?:, (\d+) P)?(?: \(forced\))?"
    rf"(?: \(arena: {_N} MB\)?)?\s*"
)
_BEGIN = re.compile(r"gc \d+ @")
QUANTILES = (50, 90, 99)


@dataclass(frozen=True, eq=False)
class GcTrace(Value, Result, Tabular):
    """The cycles that gctrace lines tell, a row each.

    Attributes:
        source: what the lines are of.
        array: number, at_s (since the program's start), gc_percent (of the processor time so far),
            start_ns, mark_ns, end_ns (elapsed), cpu_ns, before_mb, peak_mb, after_mb, goal_mb,
            processors and arena_mb (NaN where the line has none). Of Go's lines start_ns and
            end_ns are pauses, and mark_ns is marking while the program runs; of ours the calls
            that start, mark and sweep.
    """

    source: str
    array: Rows

    @property
    def pauses_ns(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """start_ns and end_ns of all cycles."""
        return np.concatenate([self.array["start_ns"], self.array["end_ns"]]).astype(float)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON: the rows, and quantiles of the pauses."""
        found = self.pauses_ns
        told = {f"p{q}": float(np.percentile(found, q)) for q in QUANTILES} if len(found) else {}
        sums = {"sum": float(found.sum()), "max": float(found.max(initial=0))}
        return {"source": self.source, "pauses_ns": told | sums, "cycles": self.array.to_dicts()}

    def __str__(self) -> str:
        rows, found = self.array, self.pauses_ns
        if not len(rows):
            return f"{self.source}: no gctrace line"
        parts = [f"P{q} {np.percentile(found, q) / 1e3:.4g}" for q in QUANTILES]
        return (
            f"{self.source}: {_format.plural(len(rows), 'cycle')} in {rows['at_s'].max():g} s,"
            f" {rows['gc_percent'][-1]} % of the processor time\n"
            f"  starts and ends: {', '.join(parts)}, longest {found.max() / 1e3:.4g} µs,"
            f" {found.sum() / 1e6:.4g} ms in all\n"
            f"  marking: {rows['mark_ns'].sum() / 1e6:.4g} ms elapsed, processor time of all parts"
            f" {rows['cpu_ns'].sum() / 1e6:.4g} ms\n"
            f"  heap: at most {rows['peak_mb'].max():g} MB, after the last cycle"
            f" {rows['after_mb'][-1]:g} MB"
        )


def _row(fields: tuple[str | None, ...]) -> dict[str, Any]:
    number, at, percent = int(fields[0] or 0), float(fields[1] or 0), int(fields[2] or 0)
    values = [None if field is None else float(field) for field in fields[3:]]
    start, mark, end = (round((value or 0) * 1e6) for value in values[0:3])
    cpu = round(sum(value or 0 for value in values[3:8]) * 1e6)
    before, peak, after, goal = (float(value or 0) for value in values[8:12])
    return {
        "number": number,
        "at_s": at,
        "gc_percent": percent,
        "start_ns": start,
        "mark_ns": mark,
        "end_ns": end,
        "cpu_ns": cpu,
        "before_mb": before,
        "peak_mb": peak,
        "after_mb": after,
        "goal_mb": goal,
        "processors": None if values[14] is None else float(values[14]),
        "arena_mb": values[15],
    }


def parse_gctrace(lines: Iterable[str], source: str = "gctrace") -> GcTrace:
    """Reads gctrace lines; whatever else stands between them is left out.

    Args:
        lines: text of the program's error output.
        source: what to call it.

    Raises:
        InvalidError: a line begins as one of gctrace and goes on differently; it is named.
    """
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if _BEGIN.match(text) is None:
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise InvalidError(
                f"{source}:{number}: no gctrace line as Go or spanwise print it:"
                f" {_format.clipped(text)}"
            )
        found.append(_row(match.groups()))
    empty = tuple(_row(("0", "0", "0", *[None] * 16)))
    return GcTrace(source, rows_of(found, empty))


def read_gctrace(path: str | os.PathLike[str]) -> GcTrace:
    """The gctrace lines of a file, such as a program's error output.

    Raises:
        OSError: it cannot be read.
        InvalidError: as `parse_gctrace`.
    """
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        return parse_gctrace(file, os.fspath(path))
