# SPDX-License-Identifier: Apache-2.0
"""The standard measures of waste, computed from a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from spanwise.ledger.run_stats import RunStats

if TYPE_CHECKING:
    from spanwise.ledger.ledger import Ledger


class Measure(NamedTuple):
    """A number (None: unknown) and its definition."""

    value: Any
    definition: str


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def measures_of(ledger: Ledger) -> dict[str, Measure]:
    """Return the standard measures of a ledger, by name."""
    inside = ledger.roundup_bytes + ledger.tail_bytes + ledger.large_rounding_bytes
    unused = ledger.free_slot_bytes + ledger.cached_bytes + ledger.free_page_bytes
    small = ledger.classes[ledger.classes["cls"] > 0]
    slots, live = int(small["slots"].sum()), int(small["live_objects"].sum())
    found = {
        "internal_waste": Measure(
            _ratio(inside, ledger.requested_bytes),
            "(round-up + tail + large rounding) / requested",
        ),
        "unused_share": Measure(
            _ratio(unused, ledger.held_bytes), "(free slots + cached + free pages) / held"
        ),
        "held_over_requested": Measure(
            _ratio(ledger.held_bytes, ledger.requested_bytes), "held / requested, at this moment"
        ),
        "mean_occupancy": Measure(_ratio(live, slots), "live slots / slots, over all spans"),
        "occupancy": Measure(
            small["occupancy"].sum(axis=0).tolist(),
            "spans whose live/slots is in [k/10, (k+1)/10), k = 0..9, and full ones",
        ),
        "largest_hole_bytes": Measure(ledger.largest_hole_bytes, "longest run of free held pages"),
        "free_runs": Measure(ledger.free_runs, "number of runs of free held pages"),
    }
    found.update(_johnstone_wilson(ledger.stats))
    return found


def _johnstone_wilson(stats: RunStats | None) -> dict[str, Measure]:
    """Return the four ratios of held to requested bytes of Johnstone and Wilson."""
    s = stats
    return {
        "jw_mean": Measure(
            s.mean_held_over_requested if s else None,
            "Johnstone-Wilson 1: held / requested, mean over all operations of the run",
        ),
        "jw_mean_steady": Measure(
            s.steady_held_over_requested if s else None,
            "Johnstone-Wilson 1 without the start: the mean from the first operation on after which"
            " half of the peak of requested bytes is live",
        ),
        "jw_at_peak_requested": Measure(
            _ratio(s.held_at_peak_bytes, s.peak_requested_bytes) if s else None,
            "Johnstone-Wilson 2: held / requested when requested is at its peak",
        ),
        "jw_at_peak_held": Measure(
            _ratio(s.peak_held_bytes, s.requested_at_peak_held_bytes) if s else None,
            "Johnstone-Wilson 3: held / requested when held is at its peak",
        ),
        "jw_of_peaks": Measure(
            _ratio(s.peak_held_bytes, s.peak_requested_bytes) if s else None,
            "Johnstone-Wilson 4: peak of held / peak of requested; Hoard calls it fragmentation",
        ),
    }
