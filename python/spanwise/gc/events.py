# SPDX-License-Identifier: Apache-2.0
"""Events of a collector: what it did and when, one row per interval of time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise._lib import ffi, lib
from spanwise.gc.pauses import mutator_utilisation
from spanwise.results.rows import Result, Rows, Tabular, Value, as_rows, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EVENT_KINDS = ("cycle", "pause", "mark", "sweep", "assist", "wait", "finalize")
"""In the order of sw_gc_event_kind: a whole cycle; a call that worked on it while nothing else ran;
a piece of marking; a piece of sweeping, by such a call or by an allocation; cycle work before an
allocation; the wait for threads to stop; a finalizer."""

_C_DTYPE = np.dtype([(name, np.uint64) for name in ("start_ns", "ns", "cycle", "thread", "kind")])
EVENT_DTYPE = np.dtype(
    [
        ("kind", "U8"),
        ("cycle", np.uint64),
        ("thread", np.uint64),
        ("start_ns", np.uint64),
        ("ns", np.uint64),
    ]
)
"""An interval: one of EVENT_KINDS, the number of the latest cycle (0: none), the thread id of the
operating system, the start since the heap was created, and the duration."""

SUM_DTYPE = np.dtype([("kind", "U8"), ("events", np.uint64), ("ns", np.uint64)])
_BLOCK = 1 << 12


@dataclass(frozen=True, eq=False)
class CollectorEvents(Value, Result, Tabular):
    """The events of a collected heap, in the order of their starts.

    Attributes:
        source: name of the heap.
        array: `kind` (one of "cycle", "pause", "mark", "sweep", "assist", "wait" and "finalize"),
            `cycle`, `thread`, `start_ns` (since the heap was created) and `ns`. If two events have
            the same start, the longer one comes first, because it contains the other.
        lost: events that newer ones overwrote.
        total_ns: age of the heap when the events were read.
    """

    source: str
    array: Rows
    lost: int
    total_ns: int = field(compare=False)

    def of(self, kind: str) -> Rows:
        """Return the rows of one kind."""
        return as_rows(np.asarray(self.array)[self.array["kind"] == kind])

    def sums(self) -> Rows:
        """Return the number of events of each kind, and their total duration.

        Returns:
            `kind`, `events` and `ns`, one row per kind.
        """
        rows = np.zeros(len(EVENT_KINDS), SUM_DTYPE)
        for row, kind in zip(rows, EVENT_KINDS, strict=True):
            mine = self.of(kind)
            row["kind"], row["events"], row["ns"] = kind, len(mine), mine["ns"].sum()
        return as_rows(rows)

    def mutator(self) -> Rows:
        """Return when the program ran: from the first event to the end, without the pauses.

        Returns:
            `start_ns` and `ns`, one row per interval.
        """
        pauses = self.of("pause")
        starts, ends = pauses["start_ns"].astype(np.int64), pauses["ns"].astype(np.int64)
        ends = np.maximum.accumulate(starts + ends) if len(starts) else starts
        first = int(self.array["start_ns"].min()) if self.lost else 0
        begun, ended = np.r_[first, ends], np.r_[starts, self.total_ns]
        runs = ended > begun
        made = np.zeros(int(runs.sum()), [("start_ns", np.uint64), ("ns", np.uint64)])
        made["start_ns"], made["ns"] = begun[runs], (ended - begun)[runs]
        return as_rows(made)

    def utilisation(self, windows_ns: Iterable[float] | None = None) -> Rows:
        """Return the minimum mutator utilisation; see `spanwise.mutator_utilisation`.

        Args:
            windows_ns: lengths of windows; None: from the shortest pause to the heap's lifetime.

        Raises:
            InvalidError: a window is not positive, or is longer than the heap's lifetime.
        """
        pauses = self.of("pause")
        return mutator_utilisation(pauses["start_ns"], pauses["ns"], self.total_ns, windows_ns)

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write the events as lanes for Perfetto and chrome://tracing, one lane per kind.

        Lanes: mutator, assist, mark, sweep, pause, wait, finalize and cycle.

        Args:
            path: of the file, JSON in the Trace Event Format; it is written whole or not at all.

        Raises:
            OSError: the system refused to write.
        """
        from spanwise.report.perfetto import write_lanes  # noqa: PLC0415

        write_lanes(self, path)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the events over time, one lane per kind."""
        return draw("lanes", self.array, self.mutator(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "source": self.source,
            "total_ns": self.total_ns,
            "lost": self.lost,
            "events": self.array.to_dicts(),
        }

    def __str__(self) -> str:
        sums = [
            f"{row['kind']} {row['events']} ({_format.digits(int(row['ns']) / 1e6)} ms)"
            for row in self.sums()
            if row["events"]
        ]
        lost = f", {self.lost} lost" if self.lost else ""
        count = _format.plural(len(self.array), "event")
        whole = f"{_format.digits(self.total_ns / 1e6)} ms"
        return f"{self.source}: {count} in {whole}{lost}: {', '.join(sums)}"


def take_events(c_gc: Any) -> tuple[NDArray[np.void], int]:
    """Take all finished events, as rows of EVENT_DTYPE; also return the number of lost events."""
    block, lost, lost_now = np.zeros(_BLOCK, _C_DTYPE), 0, ffi.new("uint64_t *")
    found = []
    count = _BLOCK
    while count == _BLOCK:
        buffer = ffi.from_buffer("sw_gc_event[]", block)
        count = int(lib.sw_gc_take_events(c_gc, buffer, _BLOCK, lost_now))
        lost += int(lost_now[0])
        found.append(block[:count].copy())
    taken = np.concatenate(found)
    rows = np.zeros(len(taken), EVENT_DTYPE)
    rows["kind"] = np.array(EVENT_KINDS)[taken["kind"].astype(np.intp)]
    for name in ("cycle", "thread", "start_ns", "ns"):
        rows[name] = taken[name]
    return rows, lost


def as_events(
    source: str, parts: list[NDArray[np.void]], lost: int, total_ns: int
) -> CollectorEvents:
    """Merge batches of events, which are ordered by end, into one list ordered by start."""
    rows = np.concatenate([np.zeros(0, EVENT_DTYPE), *parts])
    rows = rows[np.lexsort((-rows["ns"].astype(np.int64), rows["start_ns"]))]
    ended = int((rows["start_ns"] + rows["ns"]).max(initial=0))
    return CollectorEvents(source, as_rows(rows), lost, max(total_ns, ended))
