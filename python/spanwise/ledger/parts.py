# SPDX-License-Identifier: Apache-2.0
"""The parts of a ledger."""

from __future__ import annotations

PARTS: dict[str, str] = {
    "requested_bytes": "requested",
    "roundup_bytes": "round-up",
    "tail_bytes": "tail",
    "free_slot_bytes": "free slots",
    "cached_bytes": "cached",
    "metadata_bytes": "metadata",
    "large_rounding_bytes": "large rounding",
    "arena_slack_bytes": "arena slack",
    "quarantine_bytes": "quarantine",
    "free_page_bytes": "free pages",
}
"""The parts whose exact sum is held_bytes, and their names in output."""

PEAK_RESIDENT = "peak-resident"
"""The default moment: after the first operation that brings resident bytes to their maximum."""

MOMENTS = ("peak", PEAK_RESIDENT, "end")
"""Named moments of a recording: after the first operation that brings requested bytes, or resident
bytes, to their maximum; and the end."""


def peak_resident_under(table: str) -> str:
    """The name of the moment at which most bytes are resident under another table."""
    return f"{PEAK_RESIDENT} under {table}"


def at_moment(at: str) -> str:
    """A moment in a title: "at peak", "(1.5 s)"."""
    named = at in MOMENTS or at.startswith(peak_resident_under(""))
    return f"at {at}" if named else f"({at})"


OUTSIDE = ("instrument_bytes", "pending_bytes", "unswept_bytes")
"""Numbers that only tracked or collected heaps have."""

SUMS = (
    *PARTS,
    "held_bytes",
    "live_objects",
    "large_objects",
    "spans",
    "largest_hole_bytes",
    "free_runs",
    "returned_bytes",
    *OUTSIDE,
)
"""The numbers of a ledger that describe the whole heap, as sw_ledger of
include/spanwise/stats.h."""
