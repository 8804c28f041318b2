# SPDX-License-Identifier: Apache-2.0
"""Moments of a recording, time lines, and heap maps over time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise.heap.heap_map import PLACED_DTYPE, HeapMap, place_objects
from spanwise.ledger.ledger import LEDGER_CLASS_DTYPE
from spanwise.ledger.parts import MOMENTS, PARTS
from spanwise.recordings.ops import Latest
from spanwise.recordings.simulate import Moment, Simulation, visit, visit_moment, visit_times
from spanwise.recordings.sources import Source
from spanwise.results.jobs import Step
from spanwise.results.rows import Rows, as_rows

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
    """Return whether a moment is after the last operation, or over a nanosecond after the end.

    Rounding to whole nanoseconds may add that one nanosecond.
    """
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
        ops: number of operations.
        samples: number of moments, evenly spread over the operations.
        step_ns: if not None, a moment at each multiple of this many nanoseconds instead.
    """

    ops: int
    samples: int
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


def timeline_of(
    source: Source,
    simulation: Simulation,
    spread: Spread,
    detail: str,
    progress: Step | None = None,
) -> Rows:
    """Runs all operations in one pass; returns the rows of `Recording.timeline`.

    The simulation must record resident bytes unless `detail` is "sums".
    """
    if detail == "sums":
        simulation.sample_every(max(1, spread.ops // spread.samples))
        visit(source, simulation, (), lambda: None, progress)
        return as_rows(simulation.samples())
    rows_of = _class_rows if detail == "classes" else _heap_row
    taken = [np.zeros(0, CLASSES_DTYPE if detail == "classes" else PARTS_DTYPE)]

    def take() -> None:
        taken.append(rows_of(simulation))

    if spread.step_ns is not None:
        visit_times(source, simulation, spread.step_ns, take, progress)
    else:
        visit(source, simulation, spread.stops(), take, progress)
    return as_rows(np.concatenate(taken))


def _heap_row(simulation: Simulation) -> NDArray[np.void]:
    ledger = simulation.ledger("now", "")
    row = np.zeros(1, PARTS_DTYPE)
    row["op"], row["time_ns"] = simulation.done, simulation.time_ns
    for name in _HEAP:
        row[name] = getattr(ledger, name)
    for name in (*PARTS, "held_bytes"):
        row[_resident(name)] = getattr(ledger.resident, name)
    return row


def _class_rows(simulation: Simulation) -> NDArray[np.void]:
    ledger = simulation.ledger("now", "")
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


def map_at(
    source: Source,
    simulation: Simulation,
    moment: Moment,
    name: str,
    progress: Step | None = None,
) -> HeapMap:
    """Run a recording and return the map of one moment, with slots and live objects.

    The arguments are those of `live_sites.live_at`.
    """

    def read() -> HeapMap:
        latest = Latest.until(source.blocks(1 << 20), simulation.done)
        ids = np.flatnonzero(latest.live).astype(np.uint32)
        found = simulation.addresses(ids)
        rows = np.zeros(len(ids), PLACED_DTYPE)
        rows["requested_bytes"], rows["site"] = latest.size[ids], latest.site[ids]
        rows["born_ns"] = latest.time_ns[ids]
        made = simulation.heap_map(moment.at, name, slots=True)
        return replace(made, placed=place_objects(made.array, found, rows))

    made = visit_moment(source, simulation, moment, read, progress)
    return replace(made, ledger=replace(made.ledger, stats=simulation.final_stats()))


def maps_through(
    source: Source,
    simulation: Simulation,
    name: str,
    spread: Spread,
    peak_op: int,
    *,
    progress: Step | None = None,
) -> list[HeapMap]:
    """Runs a recording; returns maps without slots at evenly spread operations and at the peak.

    The peak of resident bytes is after `peak_op` operations; 0: there is none.
    """
    stops = {*spread.stops(), peak_op} - {0}
    found: list[HeapMap] = []

    def take() -> None:
        at = "peak-resident" if simulation.done == peak_op else _format.seconds(simulation.time_ns)
        found.append(simulation.heap_map(at, name, slots=False))

    visit(source, simulation, sorted(stops), take, progress)
    return found
