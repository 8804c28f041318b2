# SPDX-License-Identifier: Apache-2.0
"""The program's own malloc at its peak RSS, as the recorder measured it."""

from __future__ import annotations

from dataclasses import dataclass

from spanwise import _format
from spanwise.heap.options import HeapOptions
from spanwise.recordings.recording import Recording
from spanwise.report.advice_facts import AdviceFacts
from spanwise.results.rows import Result
from spanwise.tables.table import SizeClassTable


@dataclass(frozen=True)
class OwnHeap(Result):
    """The resident bytes of the program's malloc at its peak RSS.

    Attributes:
        allocator: "glibc", "jemalloc", ...
        switch: a switch that users do not set, without which the program has another heap; or "".
        resident_bytes: as `ProcessMemory.malloc_bytes`.
        waste_bytes: the part of them that was not requested, as in the verdict.
        overhead_bytes: headers and rounding of live objects, a part of waste_bytes; 0: unknown.
        untouched_bytes: requested but not resident, because it was never written.
    """

    allocator: str
    switch: str
    resident_bytes: int
    waste_bytes: int
    overhead_bytes: int
    untouched_bytes: int

    @property
    def title(self) -> str:
        """The allocator, and how it is known."""
        when = f"Recorded with {self.switch}" if self.switch else "Today"
        return f"{when}: {self.allocator}'s malloc, measured at the peak RSS"

    @property
    def sentence(self) -> str:
        """What is resident, and the share of waste."""
        wasted = _format.size(self.waste_bytes)
        share = _format.share(self.waste_bytes, self.resident_bytes)
        return f"{_format.size(self.resident_bytes)} resident, {wasted} ({share}) of it waste."

    @property
    def parts(self) -> tuple[tuple[str, str, int], ...]:
        """The parts of the resident bytes: CSS class, name, bytes; they add up."""
        requested = "requested and written" if self.untouched_bytes else "requested"
        first = ("part-requested", requested, self.resident_bytes - self.waste_bytes)
        if not self.overhead_bytes:
            return first, ("part-tail", "waste", self.waste_bytes)
        rest = self.waste_bytes - self.overhead_bytes
        if not rest:
            return first, ("part-roundup", "waste, all headers and rounding", self.waste_bytes)
        return (
            first,
            ("part-roundup", "headers and rounding", self.overhead_bytes),
            ("part-free-page", "free chunks and unreturned pages", rest),
        )

    def __str__(self) -> str:
        return f"{self.title}: {self.sentence}"

    __repr__ = __str__


def own_heap_of(recording: Recording, table: SizeClassTable) -> OwnHeap | None:
    """Return the program's own heap; None if it was not measured, or its waste is not known."""
    facts = AdviceFacts(recording, table, HeapOptions(), None)
    memory = facts.memory
    if memory is None or facts.own_wasted < 0 or not recording.events:
        return None
    return OwnHeap(
        recording.allocator,
        recording.switched_off[1],
        memory.malloc_bytes,
        facts.own_wasted,
        facts.own_overhead_bytes,
        facts.untouched_bytes,
    )
