# SPDX-License-Identifier: Apache-2.0
"""Lines that collectors print: ours (SPANWISE_DEBUG=gctrace=1) and Go's (GODEBUG=gctrace=1)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.gc.pauses import mutator_utilisation, pause_histogram
from spanwise.results.rows import Rows, Tabular, rows_of
from spanwise.results.values import Result, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

    def _intervals(self, stopped: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], float]:
        """Starts and lengths of the pauses, and the length of the whole time, in nanoseconds."""
        rows = self.array
        at = rows["at_s"] * 1e9
        phases = [rows[name].astype(float) for name in ("start_ns", "mark_ns", "end_ns")]
        if stopped:  # the time in a line is that of its cycle's end
            lengths = np.sum(phases, axis=0)
            starts = at - lengths
        else:
            starts = np.concatenate([at, at + phases[0] + phases[1]])
            lengths = np.concatenate([phases[0], phases[2]])
        shift = min(float(starts.min(initial=0.0)), 0.0)  # `at_s` is rounded: no start below 0
        return starts - shift, lengths, float((starts - shift + lengths).max(initial=0.0))

    def pause_histogram(self, *, stopped: bool = False) -> Rows:
        """How many pauses took how long; see `spanwise.pause_histogram`.

        Args:
            stopped: marking stops the program too, as where spanwise marks at once: start, mark and
                end are one pause. Else starts and ends are, as in Go.
        """
        return pause_histogram(np.round(self._intervals(stopped)[1]))

    def utilisation(
        self, windows_ns: Iterable[float] | None = None, *, stopped: bool = False
    ) -> Rows:
        """The least share of any window left to the program; `spanwise.mutator_utilisation`.

        The time is from the program's start to the end of the last cycle. Lines tell when a cycle
        was to the millisecond, and Go's do not tell of assists.

        Args:
            windows_ns: lengths of windows; None: from the shortest pause to the whole time.
            stopped: as in `pause_histogram`.

        Raises:
            InvalidError: there is no line, or a window is not above 0 or longer than the time.
        """
        if not len(self.array):
            raise InvalidError(f"{self.source}: no gctrace line, so no time")
        return mutator_utilisation(*self._intervals(stopped), windows_ns)

    def plot_pause_histogram(self, ax: Axes | None = None, *, stopped: bool = False) -> Axes:
        """How many pauses took how long."""
        from spanwise.plots.collectors import pause_histogram as draw  # noqa: PLC0415

        return draw(self.pause_histogram(stopped=stopped), ax)

    def plot_utilisation(self, ax: Axes | None = None, *, stopped: bool = False) -> Axes:
        """The least share of windows that was left to the program, by their length."""
        from spanwise.plots.collectors import utilisation as draw  # noqa: PLC0415

        return draw(self.utilisation(stopped=stopped), ax)

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
