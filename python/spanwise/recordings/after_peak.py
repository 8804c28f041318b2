# SPDX-License-Identifier: Apache-2.0
"""Waste after the peak: the most over time, and what a heap still holds at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from spanwise import _format
from spanwise.ledger.run_stats import RunStats
from spanwise.recordings.simulate import Simulation, visit
from spanwise.recordings.sources import Source
from spanwise.results.jobs import Step
from spanwise.results.rows import Result

SAMPLES = 1000
"""About so many moments of a run are searched for the most waste."""

_MOMENT = ("held_bytes", "requested_bytes", "op", "time_ns")

LEAST_SHARE = 0.01
"""Changes below this share of the peak resident bytes have no sentence. A program that requests a
smaller share of its peak has freed everything, as before its end: such moments do not count."""


@dataclass(frozen=True, repr=False)
class AfterPeak(Result):
    """What a run holds after its peak of resident bytes, in bytes.

    About 1,000 moments that are spread evenly over the operations, and the end, are searched, but
    for those at which less than 1 % of the peak is requested: the program is at its end. Of a set
    of recordings each number is a sum, each process at its own moment.

    Attributes:
        table: name of the size-class table.
        peak_resident_bytes: most that was resident at once.
        peak_requested_bytes: most that was requested at once, at another moment perhaps.
        held_at_peak_bytes: held at the last of the moments until then.
        requested_at_peak_bytes: requested at the same moment.
        worst_held_bytes: held at the moment after the peak with the most waste.
        worst_requested_bytes: requested at that moment.
        end_held_bytes: held after the last operation.
        end_resident_bytes: of it resident.
        end_requested_bytes: requested after the last operation.
        peak_op: the peak is after so many operations; None: a sum.
        worst_op: likewise, the moment with the most waste; None: a sum.
        worst_time_ns: its time; None: a sum.
    """

    table: str
    peak_resident_bytes: int
    peak_requested_bytes: int
    held_at_peak_bytes: int
    requested_at_peak_bytes: int
    worst_held_bytes: int
    worst_requested_bytes: int
    end_held_bytes: int
    end_resident_bytes: int
    end_requested_bytes: int
    peak_op: int | None
    worst_op: int | None
    worst_time_ns: int | None

    @property
    def worst_waste_bytes(self) -> int:
        """The most that was held after the peak, but not requested."""
        return self.worst_held_bytes - self.worst_requested_bytes

    @property
    def end_waste_bytes(self) -> int:
        """Held at the end, but not requested."""
        return self.end_held_bytes - self.end_requested_bytes

    @property
    def worst(self) -> str:
        """A sentence on the most waste; "" if it is not above that of the peak, or that of the end.

        Differences count from 1 % of the peak resident bytes on.
        """
        before = self.held_at_peak_bytes - self.requested_at_peak_bytes
        if self.end:
            before = max(before, self.end_waste_bytes)
        if self._is_little(self.worst_waste_bytes - before):
            return ""
        when = "each process at its own moment"
        if self.worst_time_ns is not None:
            when = f"at {_format.seconds(self.worst_time_ns)}"
        return (
            "After the peak, the simulated heap wastes up to"
            f" {_format.size(self.worst_waste_bytes)} ({when}):"
            f" {_format.size(self.worst_held_bytes)} held for"
            f" {_format.size(self.worst_requested_bytes)} requested."
        )

    @property
    def end(self) -> str:
        """A sentence on what is held at the end; "" if little is wasted, or no less is requested.

        Waste, and what is requested less than once before, count from 1 % of the peak resident
        bytes on. Of a program that has freed everything nothing is said.
        """
        freed = self.peak_requested_bytes - self.end_requested_bytes
        if self._is_little(self.end_waste_bytes) or self._is_little(freed):
            return ""
        if has_freed_all(self.end_requested_bytes, self.peak_requested_bytes):
            return ""
        return (
            f"At the end the simulated heap still holds {_format.size(self.end_held_bytes)}"
            f" ({_format.size(self.end_resident_bytes)} resident) for"
            f" {_format.size(self.end_requested_bytes)} requested, of"
            f" {_format.size(self.peak_requested_bytes)} at most before."
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """`worst` and `end`, without empty ones."""
        return tuple(filter(None, (self.worst, self.end)))

    def _is_little(self, size: int) -> bool:
        return size <= 0 or size < LEAST_SHARE * self.peak_resident_bytes

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = (*self.__dataclass_fields__, "worst_waste_bytes", "end_waste_bytes")
        found = {name: getattr(self, name) for name in names}
        return {**found, "sentences": list(self.sentences)}

    def __str__(self) -> str:
        return "\n".join(self.sentences) or "Waste does not grow after the peak."

    def __repr__(self) -> str:
        return _format.clipped(str(self))


def has_freed_all(requested: int, peak_requested: int) -> bool:
    """Whether so little is requested that the program is at its end."""
    return requested < LEAST_SHARE * peak_requested


def _before_exit(rows: list[Any], duration_ns: int) -> list[Any]:
    """Return the moments of _MOMENT up to a last pause, after which the program only frees.

    A pause is a 32nd of the run; without one, all are returned.
    """
    for i in range(len(rows) - 1, 0, -1):
        (_, before, _, before_ns), (_, requested, _, time_ns) = rows[i - 1], rows[i]
        if requested > before:
            break
        if time_ns - before_ns >= max(duration_ns // 32, 1):
            return rows[:i]
    return rows


class WholeRun(NamedTuple):
    """What one pass over all operations says of a table.

    Attributes:
        stats: at the end.
        after_peak: with the operation of the peak.
    """

    stats: RunStats
    after_peak: AfterPeak

    @property
    def peak_op(self) -> int:
        """The operation after which most bytes are resident."""
        return self.after_peak.peak_op or 0


def run_whole(
    source: Source, simulation: Simulation, ops: int, duration_ns: int, progress: Step | None
) -> WholeRun:
    """Run all of `ops` operations, and look for the most waste after the peak.

    The simulation knows what is resident.
    """
    simulation.sample_every(max(1, ops // SAMPLES))
    visit(source, simulation, (), lambda: None, progress)
    simulation.time_ns = duration_ns
    ledger = simulation.ledger("end", "")
    peak_bytes, peak_op = simulation.resident_peak()
    rows = simulation.samples()[list(_MOMENT)].tolist()
    rows.append((ledger.held_bytes, ledger.requested_bytes, simulation.done, duration_ns))
    later = [row for row in rows if row[2] > peak_op] or rows[-1:]
    at_peak = rows[max(0, len(rows) - len(later) - 1)]
    stats = simulation.stats()
    running = [
        row
        for row in _before_exit(later, duration_ns)
        if not has_freed_all(row[1], stats.peak_requested_bytes)
    ]
    held, requested, op, time_ns = max(running or [at_peak], key=lambda row: row[0] - row[1])
    found = AfterPeak(
        ledger.table,
        peak_bytes,
        stats.peak_requested_bytes,
        at_peak[0],
        at_peak[1],
        held,
        requested,
        ledger.held_bytes,
        ledger.resident_bytes or 0,
        ledger.requested_bytes,
        peak_op,
        op,
        time_ns,
    )
    return WholeRun(stats, found)


def add_after_peak(found: Sequence[AfterPeak]) -> AfterPeak:
    """The sum of several recordings under one table, each process at its own moment."""
    names = [name for name in AfterPeak.__dataclass_fields__ if name.endswith("_bytes")]
    sums: dict[str, Any] = {name: sum(getattr(one, name) for one in found) for name in names}
    return AfterPeak(
        found[0].table,
        **sums,
        peak_op=None,
        worst_op=None,
        worst_time_ns=None,
    )
