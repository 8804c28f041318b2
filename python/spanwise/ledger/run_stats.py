# SPDX-License-Identifier: Apache-2.0
"""The counts of the C runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spanwise import _format
from spanwise._lib import ffi, lib
from spanwise.results.rows import Result

C_NAMES = {
    "held_at_peak_bytes": "held_at_peak",
    "requested_at_peak_held_bytes": "requested_at_peak_held",
}
"""Fields with other names in sw_replay_stats and the preloaded malloc."""

_ASKED_APART = (
    "mean_held_over_requested",
    "steady_held_over_requested",
    "peak_resident_bytes",
)
"""Fields that sw_replay_stats does not have."""


@dataclass(frozen=True)
class RunStats(Result):
    """The counts of a runner so far. Sizes are in bytes.

    Attributes:
        ops: operations executed; allocs, frees, reallocs of them.
        failed: allocations that the heap refused (its limit, the system's memory).
        skipped: operations on objects that were not live, or on ids in use, and ends of
            threads that have no cache.
        requested_bytes: requested sizes of the live_objects that are live now.
        allocated_bytes: requested sizes of all allocations.
        peak_requested_bytes: peak of live requested bytes, first reached after peak_op operations.
        peak_live_objects: peak of live objects.
        held_bytes: held by the heap now; its peak is peak_held_bytes.
        held_at_peak_bytes: held when requested bytes were at their peak.
        requested_at_peak_held_bytes: requested when held bytes were at their peak.
        peak_resident_bytes: peak of resident bytes, which ranks tables; None: the heap does not
            record which pages are written.
        mean_held_over_requested: mean over all operations after which anything was live.
        steady_held_over_requested: the same mean without the start of the run: it begins at the
            first operation after which half of the peak is live; None: the peak was not known
            before the run.
        shared_frees: of a heap with tiny=True: frees and resizes of objects that share a block,
            which stays with the heap.
        thread_ends: caches that closed because their thread ended; 0 for a run.
    """

    ops: int
    allocs: int
    frees: int
    reallocs: int
    failed: int
    skipped: int
    requested_bytes: int
    live_objects: int
    allocated_bytes: int
    peak_requested_bytes: int
    peak_op: int
    peak_live_objects: int
    held_bytes: int
    peak_held_bytes: int
    held_at_peak_bytes: int
    requested_at_peak_held_bytes: int
    mean_held_over_requested: float | None
    shared_frees: int = 0
    thread_ends: int = 0
    steady_held_over_requested: float | None = None
    peak_resident_bytes: int | None = None

    @property
    def events(self) -> int:
        """Operations without the ends of threads."""
        return self.ops - self.thread_ends

    @classmethod
    def read(cls, runner: Any) -> RunStats:
        """Return the counts of a C runner."""
        out = ffi.new("sw_replay_stats *")
        lib.sw_runner_stats(runner, out)
        count = out.held_over_requested_count
        mean = out.held_over_requested_sum / count if count else None
        names = [n for n in cls.__dataclass_fields__ if n not in _ASKED_APART]
        counts = {n: getattr(out, C_NAMES.get(n, n)) for n in names}
        return cls(
            **counts,
            mean_held_over_requested=mean,
            steady_held_over_requested=lib.sw_runner_steady_mean(runner) or None,
            peak_resident_bytes=int(lib.sw_runner_resident_peak(runner, ffi.NULL)) or None,
        )

    def __str__(self) -> str:
        rows = [
            ("operations", _format.number(self.events)),
            ("allocations", _format.number(self.allocs)),
            ("frees", _format.number(self.frees)),
            ("reallocations", _format.number(self.reallocs)),
            ("refused", _format.number(self.failed)),
            ("skipped", _format.number(self.skipped)),
            ("live objects", _format.number(self.live_objects)),
            ("requested", _format.size(self.requested_bytes)),
            ("requested, peak", _format.size(self.peak_requested_bytes)),
            ("held", _format.size(self.held_bytes)),
            ("held, peak", _format.size(self.peak_held_bytes)),
        ]
        if self.shared_frees:
            rows.append(("left in shared blocks", _format.number(self.shared_frees)))
        return _format.table(rows)
