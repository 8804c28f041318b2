# SPDX-License-Identifier: Apache-2.0
"""Moments of a recording: time lines, heap maps over time, and waste after the peak."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise.heap.heap_map import PLACED_DTYPE, HeapMap, place_objects
from spanwise.ledger.ledger import LEDGER_CLASS_DTYPE
from spanwise.ledger.parts import MOMENTS, PARTS, RunStats
from spanwise.recordings.simulate import Moment, Simulation, visit, visit_moment, visit_times
from spanwise.recordings.sources import Latest
from spanwise.results.rows import Result, Rows, as_rows

# --- moments --------------------------------------------------------------------------------------

_GIVE = "give peak, peak-resident, end, an operation such as #1000, or a time such as 1.5s"


def operation_of(at: str | float) -> int | None:
    """Return N of a moment "#N"; None: the moment has another form."""
    if not isinstance(at, str) or not at.strip().startswith("#"):
        return None
    digits = at.strip()[1:]
    if not (digits.isascii() and digits.isdigit()) or int(digits) >= 2**63:
        raise errors.InvalidError(f"moment {at!r}: {_GIVE}")
    return int(digits)


def parse_seconds(value: str | float) -> float:
    """Parse a moment in seconds, 0 or more; text may end in ms or s."""
    number, scale = value, 1.0
    if isinstance(value, str):
        word = value.strip()
        scale = 1e-3 if word.endswith("ms") else 1.0
        number = word.removesuffix("ms").removesuffix("s")
    try:
        seconds = float(number) * scale
    except (TypeError, ValueError):
        seconds = -1.0
    if isinstance(value, bool) or not 0 <= seconds < 2**63 / 1e9:
        raise errors.InvalidError(f"moment {value!r}: {_GIVE}")
    return seconds


def parse_moment(value: str | float) -> str | float:
    """Normalize a moment to a name, "#N", or seconds."""
    if value in MOMENTS:
        return value
    operation = operation_of(value)
    return parse_seconds(value) if operation is None else f"#{operation}"


def is_after(at: str | float, end_op: int, end_ns: int) -> bool:
    """Return whether a moment is after the last operation, or over a nanosecond after the end."""
    operation = operation_of(at)
    if operation is not None:
        return operation > end_op
    return round(parse_seconds(at) * 1e9) > end_ns + 1


# --- time lines -----------------------------------------------------------------------------------

DETAILS = ("sums", "parts", "classes")
"""The possible details of a time line."""

MOMENTS_MAX = 2048
"""Maximum number of moments of a time line."""

_MOMENT = [("op", "<u8"), ("time_ns", "<u8")]
_HEAP = ("live_objects", "spans", *PARTS, "held_bytes")
_CLASS_PARTS = tuple(name for name in LEDGER_CLASS_DTYPE.names or () if name in PARTS)
_CLASS = ("spans", "span_bytes", "slots", "live_objects", *_CLASS_PARTS)


def _resident(name: str) -> str:
    """Return the column of a part's resident bytes: resident_cached_bytes, or resident_bytes."""
    return "resident_bytes" if name in ("held_bytes", "span_bytes") else f"resident_{name}"


PARTS_DTYPE = np.dtype(
    [
        *_MOMENT,
        *((name, "<u8") for name in _HEAP),
        *((_resident(name), "<u8") for name in (*PARTS, "held_bytes")),
    ]
)
"""A moment of the heap: the parts of its ledger, and their resident bytes."""

CLASSES_DTYPE = np.dtype(
    [
        *_MOMENT,
        *(("cls", "<u4"), ("size_bytes", "<u4")),
        *((name, "<u8") for name in _CLASS),
        *((_resident(name), "<u8") for name in (*_CLASS_PARTS, "span_bytes")),
    ]
)
"""A class at a moment, as a row of `Ledger.classes`, with the resident bytes of each part."""


@dataclass(frozen=True)
class Spread:
    """The spacing of the moments of a time line.

    Attributes:
        step_ns: if not None, a moment at each multiple of this many nanoseconds instead.
    """

    ops: int  # number of operations
    samples: int  # number of moments, evenly spread over the operations
    step_ns: int | None = None

    def stops(self) -> list[int]:
        """Return the numbers of operations at evenly spread moments."""
        count = min(self.samples, self.ops)
        return [self.ops * (i + 1) // count for i in range(count)]


def step_of(step_s: float | None, detail: str) -> int | None:
    """Convert a time step to nanoseconds."""
    if step_s is None:
        return None
    if isinstance(step_s, bool) or not isinstance(step_s, int | float):
        raise TypeError(f"step_s must be a number, not {type(step_s).__name__}")
    if not math.isfinite(step_s) or not 1 <= step_s * 1e9 < _lib.SIZE_MAX:
        raise errors.InvalidError(f"step_s {step_s}: give seconds, at least 1e-9")
    if detail == "sums":
        raise errors.InvalidError("step_s goes with detail parts or classes")
    return round(step_s * 1e9)


def check_detail(detail: str) -> None:
    """Check the argument `detail` of a time line."""
    if detail not in DETAILS:
        raise errors.InvalidError(f"detail {detail!r}: use one of {', '.join(DETAILS)}")


def timeline_of(simulation: Simulation, spread: Spread, detail: str) -> Rows:
    """Runs all operations in one pass; returns the rows of `Recording.timeline`."""
    if detail == "sums":
        simulation.sample_every(max(1, spread.ops // spread.samples))
        visit(simulation, (), lambda: None)
        return as_rows(simulation.samples())
    rows_of = _class_rows if detail == "classes" else _heap_row
    taken = [np.zeros(0, CLASSES_DTYPE if detail == "classes" else PARTS_DTYPE)]

    def take() -> None:
        taken.append(rows_of(simulation))

    if spread.step_ns is not None:
        visit_times(simulation, spread.step_ns, take)
    else:
        visit(simulation, spread.stops(), take)
    return as_rows(np.concatenate(taken))


def _heap_row(simulation: Simulation) -> NDArray[np.void]:
    ledger = simulation.ledger("now")
    row = np.zeros(1, PARTS_DTYPE)
    row["op"], row["time_ns"] = simulation.done, simulation.time_ns
    for name in _HEAP:
        row[name] = getattr(ledger, name)
    for name in (*PARTS, "held_bytes"):
        row[_resident(name)] = getattr(ledger.resident, name)
    return row


def _class_rows(simulation: Simulation) -> NDArray[np.void]:
    ledger = simulation.ledger("now")
    assert ledger.resident is not None
    used = np.flatnonzero(ledger.classes["spans"])
    rows = np.zeros(len(used), CLASSES_DTYPE)
    rows["op"], rows["time_ns"] = simulation.done, simulation.time_ns
    for name in ("cls", "size_bytes", *_CLASS):
        rows[name] = ledger.classes[name][used]
    for name in (*_CLASS_PARTS, "span_bytes"):
        rows[_resident(name)] = ledger.resident.classes[name][used]
    return rows


# --- heap maps ------------------------------------------------------------------------------------


def map_at(simulation: Simulation, moment: Moment) -> HeapMap:
    """Run a recording and return the map of one moment, with slots and live objects."""

    def read() -> HeapMap:
        latest = Latest.until(simulation.source.blocks(1 << 20), simulation.done)
        ids = np.flatnonzero(latest.live).astype(np.uint32)
        found = simulation.addresses(ids)
        rows = np.zeros(len(ids), PLACED_DTYPE)
        rows["requested_bytes"], rows["site"] = latest.size[ids], latest.site[ids]
        rows["born_ns"] = latest.time_ns[ids]
        made = simulation.heap_map(moment.at, slots=True)
        return replace(made, placed=place_objects(made.array, found, rows))

    made = visit_moment(simulation, moment, read)
    return replace(made, ledger=replace(made.ledger, stats=simulation.final_stats()))


def maps_through(simulation: Simulation, spread: Spread, peak_op: int) -> list[HeapMap]:
    """Runs a recording; returns maps without slots at evenly spread operations and at the peak."""
    stops = {*spread.stops(), peak_op} - {0}
    found: list[HeapMap] = []

    def take() -> None:
        at = "peak-resident" if simulation.done == peak_op else _format.seconds(simulation.time_ns)
        found.append(simulation.heap_map(at, slots=False))

    visit(simulation, sorted(stops), take)
    return found


# --- after the peak -------------------------------------------------------------------------------

SAMPLES = 1000
"""About so many moments of a run are searched for the most waste."""

_WASTE_MOMENT = ("held_bytes", "requested_bytes", "op", "time_ns")

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
    """Return the moments of _WASTE_MOMENT up to a last pause, after which the program only frees.

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
    """What one pass over all operations says of a table."""

    stats: RunStats  # at the end
    after_peak: AfterPeak  # with the operation of the peak

    @property
    def peak_op(self) -> int:
        """The operation after which most bytes are resident."""
        return self.after_peak.peak_op or 0


def run_whole(simulation: Simulation, ops: int, duration_ns: int) -> WholeRun:
    """Run all of `ops` operations, and look for the most waste after the peak."""
    simulation.sample_every(max(1, ops // SAMPLES))
    visit(simulation, (), lambda: None)
    simulation.time_ns = duration_ns
    ledger = simulation.ledger("end")
    peak_bytes, peak_op = simulation.resident_peak()
    rows = simulation.samples()[list(_WASTE_MOMENT)].tolist()
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
    return AfterPeak(found[0].table, **sums, peak_op=None, worst_op=None, worst_time_ns=None)
