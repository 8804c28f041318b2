# SPDX-License-Identifier: Apache-2.0
"""What a cycle did, and how long each call of it took."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from spanwise import _format, _lib
from spanwise._lib import check, ffi, lib
from spanwise.errors import StateError
from spanwise.results.values import Result

PHASES = {lib.SW_GC_IDLE: "idle", lib.SW_GC_MARKING: "marking", lib.SW_GC_SWEEPING: "sweeping"}

ORDERS = {lib.SW_GC_BY_OBJECT: "object", lib.SW_GC_BY_SPAN: "span"}

PAUSE_DTYPE = np.dtype(
    [
        ("cycle", np.uint64),
        ("phase", "U8"),
        ("at_ns", np.uint64),
        ("ns", np.uint64),
        ("held_bytes", np.uint64),
    ]
)
"""A call that worked on a cycle: the cycle's number, the phase in which the call began, its start
since the heap was made, its length, and the bytes that the heap held at its end."""


@dataclass(frozen=True)
class Cycle(Result):
    """One cycle of a collector. While it runs, the figures are those so far.

    Attributes:
        number: 1, 2, ...
        steps: calls that worked on it.
        mark_ns: elapsed time of marking in those calls.
        sweep_ns: and of sweeping.
        longest_ns: of the longest such call.
        marked_objects: objects that a root reached, or that were allocated since the cycle began.
        marked_bytes: their slots.
        freed_objects: objects that no root reached.
        freed_bytes: their slots.
        pending_objects: objects that the program freed during the cycle; the sweep gives them back.
        pending_bytes: their slots.
        overflows: objects for which the mark stack was refused memory.
        given_up: the cycle freed pending objects only.
        due_finalizers: finalizers that it has made due.
        cleared_refs: weak references to objects that no root reached.
        order: "object" or "span": the unit in which the cycle marked.
    """

    number: int
    steps: int
    mark_ns: int
    sweep_ns: int
    longest_ns: int
    marked_objects: int
    marked_bytes: int
    freed_objects: int
    freed_bytes: int
    pending_objects: int
    pending_bytes: int
    overflows: int
    given_up: bool
    due_finalizers: int
    cleared_refs: int
    order: str

    @property
    def marked_objects_per_second(self) -> float:
        """Objects marked in a second of marking; 0.0 when no time passed."""
        return self.marked_objects * 1e9 / self.mark_ns if self.mark_ns else 0.0

    def __str__(self) -> str:
        end = ", given up" if self.given_up else ""
        times = (self.mark_ns, self.sweep_ns, self.longest_ns)
        mark, swept, longest = (f"{_format.digits(ns / 1e6, 3)} ms" for ns in times)
        return (
            f"cycle {self.number}: {_format.size(self.marked_bytes)} live in {self.marked_objects}"
            f" objects, {_format.size(self.freed_bytes)} freed of {self.freed_objects}; marked in"
            f" {mark}, swept in {swept}, longest of"
            f" {self.steps} calls {longest}{end}"
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)


def read_cycle(c_gc: Any) -> Cycle | None:
    """The cycle under way, or the last one; None: there was none."""
    record = ffi.new("sw_gc_cycle *")
    record.struct_bytes = ffi.sizeof("sw_gc_cycle")
    try:
        check(lib.sw_gc_last_cycle(c_gc, record))
    except StateError:
        return None
    fields = _lib.struct_dict(record)
    del fields["struct_bytes"]
    fields["given_up"] = bool(fields["given_up"])
    fields["order"] = ORDERS[fields["order"]]
    return Cycle(**fields)
