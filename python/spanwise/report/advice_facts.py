# SPDX-License-Identifier: Apache-2.0
"""One piece of advice, and what the rules read to find it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from spanwise import _format
from spanwise.heap.options import HeapOptions
from spanwise.ledger.ledger import Ledger
from spanwise.recordings.live_sites import LiveObjects
from spanwise.recordings.process_memory import ProcessMemory
from spanwise.recordings.recording import Recording
from spanwise.results.jobs import Progress
from spanwise.results.rows import Result
from spanwise.tables.table import SizeClassTable

CERTAINTIES = ("measured", "simulated", "estimated")
"""How the saved bytes are known: from real runs, from the simulated heap, or by arithmetic that
assumes full spans."""
PEAK = "peak-resident"
_NOISE_SHARE = 0.01
"""Advice that saves a smaller share of the resident bytes is not given,"""
_NOISE_BYTES = 1 << 18
"""nor advice that saves fewer bytes: program starts differ by as much."""


@dataclass(frozen=True)
class Advice(Result):
    """One change and what it would save.

    Attributes:
        kind: "allocator", "size", "pinning", "trim", "retained", "caches" or "table".
        saves_bytes: resident bytes that it would save.
        at: the moment of the saving: "peak-resident" or "end".
        certainty: one of CERTAINTIES.
        finding: what costs the memory, one sentence.
        change: what to do about it, one sentence.
    """

    kind: str
    saves_bytes: int
    at: str
    certainty: str
    finding: str
    change: str

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as a dict for JSON."""
        return asdict(self)

    @property
    def title(self) -> str:
        """The saving in a few words: "saves 1.5 MiB at the end (simulated)"."""
        when = "at the peak" if self.at != "end" else "at the end"
        return f"saves {_format.size(self.saves_bytes)} {when} ({self.certainty})"

    def __str__(self) -> str:
        return f"{self.title}: {self.finding} {self.change}"

    __repr__ = __str__


class AdviceFacts:
    """What the rules read, each computed once."""

    def __init__(
        self,
        recording: Recording,
        table: SizeClassTable,
        options: HeapOptions,
        step: Progress,
    ) -> None:
        self.recording = recording
        self.table = table
        self.options = options
        self.step = step
        self.program = Path(recording.program).name or recording.name

    @property
    def memory(self) -> ProcessMemory | None:
        """The memory of the process, if it was read near its peak."""
        memory = self.recording.memory
        return memory if memory is not None and memory.covers_peak else None

    @cached_property
    def peak(self) -> Ledger:
        """The simulated ledger at the peak resident."""
        return self.recording.ledger(self.table, PEAK, options=self.options, progress=self.step)

    @cached_property
    def end(self) -> Ledger:
        """The simulated ledger at the end."""
        return self.recording.ledger(self.table, "end", options=self.options, progress=self.step)

    @cached_property
    def objects(self) -> LiveObjects:
        """The live objects at the peak resident."""
        return self.recording.live_objects(
            self.table, PEAK, options=self.options, progress=self.step
        )

    @property
    def resident_bytes(self) -> int:
        """The simulated peak of resident bytes."""
        return self.peak.peak_resident_bytes or 0

    @property
    def is_own_allocator(self) -> bool:
        """Whether the recorded malloc is another one than ours, and the one that users run."""
        own = self.recording
        return own.allocator != "spanwise" and not own.without_pymalloc

    @property
    def own_wasted(self) -> int:
        """Resident bytes of the program's malloc beyond the peak of requested bytes.

        Negative if part of the requested bytes was never written; 0 if not measured.
        """
        memory = self.memory
        if memory is None:
            return 0
        return memory.malloc_bytes - self.recording.summary.peak_requested_bytes

    @property
    def noise_bytes(self) -> int:
        """Smaller savings are not worth a change."""
        return max(int(_NOISE_SHARE * self.resident_bytes), _NOISE_BYTES)

    def verdict(self) -> str:
        """Say what was wasted: by the program's own allocator if that is known, and simulated."""
        memory, resident = self.memory, _format.size(self.resident_bytes)
        requested = _format.size(self.recording.summary.peak_requested_bytes)
        model = (
            f"By simulation, spanwise with the table {self.table.name} would have a peak of"
            f" {resident} resident."
        )
        if memory is None:
            return f"{self.program} requested up to {requested}. {model}"
        own = memory.malloc_bytes
        said = (
            f"At its peak RSS of {_format.size(memory.peak_rss_bytes)}, {self.program} had"
            f" {_format.size(own)} resident in {self.recording.allocator}'s malloc for up to"
            f" {requested} requested"
        )
        if self.recording.without_pymalloc:
            model = (
                "It ran with PYTHONMALLOC=malloc; as its users run it, CPython has pymalloc, which"
                f" 'spanwise bench' measures. {model}"
            )
        if self.own_wasted < 0:
            return f"{said}, some of it never written. {model}"
        wasted, share = _format.size(self.own_wasted), _format.share(self.own_wasted, own)
        return f"{said}: {wasted} ({share}) was waste. {model}"

    def names(self, sites: Iterable[int]) -> dict[int, str]:
        """Return a label for each call site: its innermost callers."""
        return self.recording.site_labels(sites)
