# SPDX-License-Identifier: Apache-2.0
"""Ledgers at many moments of one pass, as rows: parts over time, of the heap or of each class."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib, errors
from spanwise.ledger.ledger import LEDGER_CLASS_DTYPE
from spanwise.ledger.parts import PARTS
from spanwise.recordings.simulate import Simulation, visit, visit_times
from spanwise.recordings.sources import Source
from spanwise.results.progress import Step
from spanwise.results.rows import Rows, as_rows

DETAILS = ("sums", "parts", "classes")
"""What a time line may show of each moment."""

MOMENTS_MAX = 2048
"""Most moments of a time line."""

_MOMENT = [("op", "<u8"), ("time_ns", "<u8")]
_HEAP = ("live_objects", "spans", *PARTS, "held_bytes")
_CLASS_PARTS = tuple(name for name in LEDGER_CLASS_DTYPE.names or () if name in PARTS)
_CLASS = ("spans", "span_bytes", "slots", "live_objects", *_CLASS_PARTS)


def _resident(name: str) -> str:
    """The column of the resident bytes of a part: resident_cached_bytes; of all, resident_bytes."""
    return "resident_bytes" if name in ("held_bytes", "span_bytes") else f"resident_{name}"


PARTS_DTYPE = np.dtype(
    [
        *_MOMENT,
        *((name, "<u8") for name in _HEAP),
        *((_resident(name), "<u8") for name in (*PARTS, "held_bytes")),
    ]
)
"""A moment of the heap: the parts of its ledger, and of each the resident bytes."""

CLASSES_DTYPE = np.dtype(
    [
        *_MOMENT,
        *(("cls", "<u4"), ("size_bytes", "<u4")),
        *((name, "<u8") for name in _CLASS),
        *((_resident(name), "<u8") for name in (*_CLASS_PARTS, "span_bytes")),
    ]
)
"""A class at a moment, as a row of `Ledger.classes`, and of each part the resident bytes."""


@dataclass(frozen=True)
class Spread:
    """Where the moments of a time line are.

    Attributes:
        ops: how many operations there are.
        samples: over so many moments they are spread.
        step_ns: instead a moment is at each multiple of so many nanoseconds; None: it is not.
    """

    ops: int
    samples: int
    step_ns: int | None


def step_of(step_s: float | None, detail: str) -> int | None:
    """A step of time in nanoseconds.

    Raises:
        TypeError: it is no number.
        InvalidError: it is not above 0, or `detail` is "sums".
    """
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
    """Refuses what no time line shows.

    Raises:
        InvalidError: it is none of `DETAILS`.
    """
    if detail not in DETAILS:
        raise errors.InvalidError(f"detail {detail!r}: use one of {', '.join(DETAILS)}")


def take_timeline(
    source: Source,
    simulation: Simulation,
    spread: Spread,
    detail: str,
    progress: Step | None = None,
) -> Rows:
    """Runs all operations in one pass; the rows as `Recording.timeline` says.

    Args:
        source: the operations.
        simulation: a fresh one, which knows what is resident unless `detail` is "sums".
        spread: where the moments are.
        detail: one of `DETAILS`.
        progress: called after each batch.
    """
    ops, samples = spread.ops, spread.samples
    if detail == "sums":
        simulation.sample_every(max(1, ops // samples))
        visit(source, simulation, (), lambda: None, progress)
        return as_rows(simulation.samples())
    rows_of = _class_rows if detail == "classes" else _heap_row
    taken = [np.zeros(0, CLASSES_DTYPE if detail == "classes" else PARTS_DTYPE)]

    def take() -> None:
        taken.append(rows_of(simulation))

    if spread.step_ns is not None:
        visit_times(source, simulation, spread.step_ns, take, progress)
    else:
        count = min(samples, ops)
        stops = [ops * (i + 1) // count for i in range(count)]
        visit(source, simulation, stops, take, progress)
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
