# SPDX-License-Identifier: Apache-2.0
"""Parses gctrace lines of spanwise (SPANWISE_DEBUG=gctrace=1) and Go (GODEBUG=gctrace=1)."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.gc.events import mutator_utilisation, pause_histogram
from spanwise.results.files import reading
from spanwise.results.jobs import Progress, Step, progress_bar
from spanwise.results.rows import Result, Rows, Tabular, Value, draw, rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_N = r"\d{1,9}(?:\.\d{1,9})?"  # at most eleven days in milliseconds, so sums fit in 64 bits
_LINE = re.compile(
    rf"gc (?P<number>\d{{1,9}}) @(?P<at_s>{_N})s (?P<percent>\d{{1,9}})%:"
    rf" (?P<clock>{_N}\+{_N}(?:\+{_N}\+{_N})?\+{_N}) ms clock,"
    rf" (?P<cpu>{_N}\+(?:{_N}\+{_N}\+)?{_N}/{_N}/{_N}\+{_N}) ms cpu,"
    rf" (?P<before>{_N})(?: ?MB)?->(?P<peak>{_N})(?: ?MB)?->(?P<after>{_N}) ?MB,?"
    rf" \(?(?P<goal>{_N}) ?MB goal\)?"
    rf"(?:, {_N} MB stacks, {_N} MB globals)?(?:, (?P<processors>\d{{1,9}}) P)?(?: \(forced\))?"
    rf"(?: \(arena: (?P<arena>{_N}) MB\)?)?"
)
_BEGIN = re.compile(r"gc \d+ @")
_END = re.compile(r'\s*(?:\\n)?(?:".*)?')  # the rest of a JSON log line
_LABEL = re.compile(r"(?:\x1b\[[\d;]*m)*(\[pod/[^\]\s]+\]|[\w./-]+ *\|)")
"""The prefix by which `kubectl logs --prefix` and `docker compose logs` name the process."""

_OPEN_MAX = 64
QUANTILES = (50, 90, 99)
_SHOWN = 20
_COLUMNS = (
    *("process", "number", "at_s", "gc_percent", "start_ns", "mark_ns", "end_ns", "cpu_ns"),
    *("before_mb", "peak_mb", "after_mb", "goal_mb", "processors", "arena_mb"),
)


@dataclass(frozen=True, eq=False)
class GcTrace(Value, Result, Tabular):
    """The cycles that gctrace lines report, one row per cycle.

    Attributes:
        source: name of the input.
        array: process (from 1), number, at_s (since the program's start), gc_percent (of the CPU
            time so far), start_ns, mark_ns, end_ns (elapsed), cpu_ns, before_mb, peak_mb,
            after_mb, goal_mb, processors and arena_mb (NaN if not in the line). In Go's lines,
            start_ns and end_ns are pauses and mark_ns is concurrent work (in Go 1.5: scan,
            synchronization and mark); in ours, they are the calls that start, mark and sweep.
        torn_lines: gctrace lines that other output interrupted; they are skipped.
    """

    source: str
    array: Rows
    torn_lines: int = 0

    @property
    def processes(self) -> list[GcTrace]:
        """The cycles of each process, in the order of their first lines."""
        ids = self.array["process"]
        return [
            GcTrace(f"{self.source}, process {one}", self.array[ids == one])
            for one in np.unique(ids).tolist()
        ]

    @property
    def pauses_ns(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """start_ns and end_ns of all cycles."""
        return np.concatenate([self.array["start_ns"], self.array["end_ns"]]).astype(float)

    def _intervals(self, stopped: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], float]:
        """Return starts and lengths of the pauses, and the total time, in nanoseconds."""
        rows = self.array
        at = rows["at_s"] * 1e9
        phases = [rows[name].astype(float) for name in ("start_ns", "mark_ns", "end_ns")]
        if stopped:  # the time in a line is the end of its cycle
            lengths = np.sum(phases, axis=0)
            starts = at - lengths
        else:
            starts = np.concatenate([at, at + phases[0] + phases[1]])
            lengths = np.concatenate([phases[0], phases[2]])
        shift = min(float(starts.min(initial=0.0)), 0.0)  # `at_s` is rounded: no start below 0
        return starts - shift, lengths, float((starts - shift + lengths).max(initial=0.0))

    def pause_histogram(self, *, stopped: bool = False) -> Rows:
        """Return a histogram of the pauses; see `spanwise.pause_histogram()`.

        Args:
            stopped: marking also stops the program, as in spanwise without steps, so start, mark
                and end form one pause. False: start and end are separate pauses, as in Go.
        """
        return pause_histogram(np.round(self._intervals(stopped)[1]))

    def utilisation(
        self, windows_ns: Iterable[float] | None = None, *, stopped: bool = False
    ) -> Rows:
        """Return the minimum mutator utilisation; see `spanwise.mutator_utilisation()`.

        The measured time is from the program's start to the end of the last cycle. Lines have the
        time of a cycle in milliseconds, and Go's lines do not include assists.

        Args:
            windows_ns: lengths of windows; None: 61 up to the measured time, as in
                `spanwise.mutator_utilisation()`.
            stopped: as in `pause_histogram()`.

        Raises:
            InvalidError: there is no line, a window is not positive or is longer than the measured
                time, or there are several processes.
        """
        if not len(self.array):
            raise InvalidError(f"{self.source}: no gctrace line, so the time is unknown")
        count = len(np.unique(self.array["process"]))
        if count > 1:
            raise InvalidError(
                f"{self.source}: lines of {count} processes, which have a time each; take one of"
                " .processes"
            )
        return mutator_utilisation(*self._intervals(stopped), windows_ns)

    def plot_pause_histogram(
        self, ax: Axes | None = None, *, stopped: bool = False, label: str = ""
    ) -> Axes:
        """Draw a histogram of the pauses.

        Args:
            ax: where to draw; None makes a new figure.
            stopped: as in `pause_histogram()`.
            label: names the trace in the legend, and draws an outline; "": filled.
        """
        return draw("pause_histogram", self.pause_histogram(stopped=stopped), ax, label=label)

    def plot_utilisation(
        self, ax: Axes | None = None, *, stopped: bool = False, label: str = ""
    ) -> Axes:
        """Draw the minimum mutator utilisation by length of the window.

        Args:
            ax: where to draw; None makes a new figure.
            stopped: as in `pause_histogram()`.
            label: names the trace in the legend.
        """
        return draw("utilisation", self.utilisation(stopped=stopped), ax, label=label)

    def to_dict(self) -> dict[str, Any]:
        """Return the rows and the quantiles of the pauses, for JSON."""
        found = self.pauses_ns
        quantiles = (
            {f"p{q}": float(np.percentile(found, q)) for q in QUANTILES} if len(found) else {}
        )
        sums = {"sum": float(found.sum()), "max": float(found.max(initial=0))}
        return {
            "source": self.source,
            "torn_lines": self.torn_lines,
            "pauses_ns": quantiles | sums,
            "cycles": self.array.to_dicts(),
        }

    def __str__(self) -> str:
        parts = self.processes
        if not parts:
            lines = [f"{self.source}: no gctrace line"]
        elif len(parts) == 1:
            lines = [self._summary(self.source)]
        else:
            lines = [f"{self.source}: {_format.plural(len(parts), 'process')}"]
            lines += [one._summary(f"process {i}") for i, one in enumerate(parts[:_SHOWN], 1)]
        if len(parts) > _SHOWN:
            lines.append(f"... {_format.plural(len(parts) - _SHOWN, 'process')} more")
        if self.torn_lines:
            lines.append(f"left out: {_format.plural(self.torn_lines, 'torn line')}")
        return "\n".join(lines)

    def _summary(self, name: str) -> str:
        rows, found = self.array, self.pauses_ns
        shown = _format.digits
        parts = [f"P{q} {shown(np.percentile(found, q) / 1e3)}" for q in QUANTILES]
        return (
            f"{name}: {_format.plural(len(rows), 'cycle')} in {shown(rows['at_s'].max(), 6)} s,"
            f" {rows['gc_percent'][-1]} % of the processor time\n"
            f"  starts and ends: {', '.join(parts)}, longest {shown(found.max() / 1e3)} µs,"
            f" {shown(found.sum() / 1e6)} ms in all\n"
            f"  marking: {shown(rows['mark_ns'].sum() / 1e6)} ms elapsed, processor time of all"
            f" parts {shown(rows['cpu_ns'].sum() / 1e6)} ms\n"
            f"  heap: at most {shown(rows['peak_mb'].max(), 6)} MB, after the last cycle"
            f" {shown(rows['after_mb'][-1], 6)} MB"
        )


def _row(text: str) -> dict[str, Any] | None:
    """Return the cycle of a text that begins as a gctrace line; None if the line is torn."""
    match = _LINE.match(text)
    if match is None or _END.fullmatch(text, match.end()) is None:
        return None
    clock = [round(float(one) * 1e6) for one in match["clock"].split("+")]
    cpu = [float(one) for one in re.split(r"[+/]", match["cpu"])]
    if len(cpu) != len(clock) + 2:
        return None
    return {
        "process": 0,
        "number": int(match["number"]),
        "at_s": float(match["at_s"]),
        "gc_percent": int(match["percent"]),
        "start_ns": clock[0],
        "mark_ns": sum(clock[1:-1]),
        "end_ns": clock[-1],
        "cpu_ns": round(sum(cpu) * 1e6),
        **{f"{name}_mb": float(match[name]) for name in ("before", "peak", "after", "goal")},
        "processors": None if match["processors"] is None else float(match["processors"]),
        "arena_mb": None if match["arena"] is None else float(match["arena"]),
    }


class _Processes:
    """Assigns cycles to processes, by log label, cycle number and time.

    A cycle belongs to the process with the preceding number (or a lower one, if lines were lost)
    and no later time; the nearest time breaks ties. If there is none, the cycle begins a new
    process. Each label keeps its last _OPEN_MAX processes.
    """

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[str, deque[dict[str, Any]]] = {}

    def of(self, label: str, row: dict[str, Any]) -> int:
        """Return the process of a cycle, counted from 1."""
        last = self._open.setdefault(label, deque(maxlen=_OPEN_MAX))
        number, at_s = row["number"], row["at_s"]
        fits = [one for one in last if one["number"] < number and one["at_s"] <= at_s]
        before = max(fits, key=lambda one: (one["number"] == number - 1, one["at_s"]), default=None)
        if before is None:
            self._count += 1
            last.append({**row, "process": self._count})
            return self._count
        before.update(number=number, at_s=at_s)
        return int(before["process"])


def parse_gctrace(lines: Iterable[str], source: str = "gctrace") -> GcTrace:
    """Parse gctrace lines, which may begin anywhere in a line of text; skip everything else.

    Args:
        lines: stderr of one or several programs, or a log of it.
        source: name of the input, for messages.
    """
    found: list[dict[str, Any]] = []
    torn, processes = 0, _Processes()
    for line in lines:
        starts = [match.start() for match in _BEGIN.finditer(line)]
        label = _LABEL.match(line[: starts[0]]) if starts else None
        for start, end in pairwise([*starts, len(line)]):
            row = _row(line[start:end].rstrip())
            if row is None:
                torn += 1
                continue
            row["process"] = processes.of(label[1] if label else "", row)
            found.append(row)
    return GcTrace(source, rows_of(found, _COLUMNS), torn)


def read_gctrace(path: str | os.PathLike[str], progress: Progress = None) -> GcTrace:
    """Parse the gctrace lines of a file, such as the stderr of a program.

    `progress` is as in `Recording.ledger()`; the steps are lines.

    Raises:
        OSError: the file cannot be read.
    """
    name = os.fspath(path)
    with (
        reading(name),
        Path(path).open(encoding="utf-8", errors="replace") as file,
        progress_bar(progress, None, f"read {name}", "lines") as step,
    ):
        return parse_gctrace(_counted(file, step), name)


def _counted(lines: Iterable[str], step: Step) -> Iterator[str]:
    for line in lines:
        yield line
        step(1)
