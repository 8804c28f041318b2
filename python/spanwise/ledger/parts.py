# SPDX-License-Identifier: Apache-2.0
"""Names of a ledger's parts, counts of a run, and measures of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from spanwise import _format
from spanwise._lib import ffi, lib
from spanwise.results.rows import Result

if TYPE_CHECKING:
    from spanwise.ledger.ledger import Ledger


PARTS: dict[str, str] = {
    "requested_bytes": "requested",
    "roundup_bytes": "round-up",
    "tail_bytes": "tail",
    "free_slot_bytes": "free slots",
    "cached_bytes": "cached",
    "metadata_bytes": "metadata",
    "large_rounding_bytes": "large rounding",
    "free_page_bytes": "free pages",
}
"""The parts whose exact sum is held_bytes, and their names in output."""

PEAK_RESIDENT = "peak-resident"
"""The default moment: after the first operation that brings resident bytes to their maximum."""

MOMENTS = ("peak", PEAK_RESIDENT, "end")
"""Named moments of a recording: after the first operation that brings requested bytes, or resident
bytes, to their maximum; and the end."""


def peak_resident_under(table: str) -> str:
    """The name of the moment at which the most bytes are resident under another table."""
    return f"{PEAK_RESIDENT} under {table}"


def at_moment(at: str) -> str:
    """A moment in a title: "at peak", "(1.5 s)"."""
    named = at in MOMENTS or at.startswith(peak_resident_under(""))
    return f"at {at}" if named else f"({at})"


def common_moment(moments: Sequence[str]) -> str:
    """Return the moment that ledgers have in common, for titles: "at peak-resident under go".

    Of a comparison the first ledger is at its own peak, and the others are at that of the first.
    """
    others = list(dict.fromkeys(at for at in moments if at != PEAK_RESIDENT))
    if len(others) > 1:
        return "at different moments"
    if others:
        return at_moment(others[0])
    own = len(moments) > 1
    return f"each at its own {PEAK_RESIDENT}" if own else f"at {PEAK_RESIDENT}"


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


C_NAMES = {
    "held_at_peak_bytes": "held_at_peak",
    "requested_at_peak_held_bytes": "requested_at_peak_held",
}
"""Fields with other names in sw_replay_stats and the preloaded malloc."""

_ASKED_APART = ("mean_held_over_requested", "steady_held_over_requested", "peak_resident_bytes")
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


# --- measures -------------------------------------------------------------------------------------


class Measure(float):
    """A number with its definition; `nan` if it is unknown.

    Attributes:
        definition: how it is computed.
    """

    __slots__ = ("definition",)

    definition: str

    def __new__(cls, value: float, definition: str) -> Measure:
        """Make a number with a definition."""
        self = super().__new__(cls, value)
        self.definition = definition
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Measure, (float(self), self.definition)


class Measures(dict[str, Measure]):
    """Measures by name, which are printed as a table; an unknown name is a KeyError."""

    def __missing__(self, name: object) -> NoReturn:
        raise KeyError(f"no measure {name!r}; there are {', '.join(self)}")

    def _rows(self) -> list[tuple[str, str, str]]:
        return [(name, _text(name, one), one.definition) for name, one in self.items()]

    def __repr__(self) -> str:
        return _format.table(self._rows(), _HEAD, names_last=True)

    def _repr_html_(self) -> str:
        return _format.html_table(self._rows(), _HEAD, left=3)


_HEAD = ("measure", "value", "definition")

_WHOLE = ("largest_hole_bytes", "free_runs")
"""The measures that are whole numbers."""

OCCUPANCY = "spans whose live/slots is in [k/10, (k+1)/10), k = 0..9, and full ones"
"""The definition of `Ledger.occupancy`."""

DEFINITIONS: dict[str, str] = {
    "internal_waste": "(round-up + tail + large rounding) / requested",
    "unused_share": "(free slots + cached + free pages) / held",
    "held_over_requested": "held / requested, at this moment",
    "mean_occupancy": "live slots / slots, over all spans",
    "largest_hole_bytes": "longest run of free held pages",
    "free_runs": "number of runs of free held pages",
    "jw_mean": "Johnstone-Wilson 1: held / requested, mean over all operations of the run",
    "jw_mean_steady": "Johnstone-Wilson 1, once half of the peak of requested bytes has been live",
    "jw_at_peak_requested": "Johnstone-Wilson 2: held / requested when requested is at its peak",
    "jw_at_peak_held": "Johnstone-Wilson 3: held / requested when held is at its peak",
    "jw_of_peaks": "Johnstone-Wilson 4: peak of held / peak of requested; Hoard calls it"
    " fragmentation",
}
"""The definition of each measure, by name."""


def _text(name: str, one: float) -> str:
    if math.isnan(one):
        return "unknown"
    return _format.number(int(one)) if name in _WHOLE else f"{one:.3f}"


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def measures_of(ledger: Ledger) -> Measures:
    """Return the standard measures of a ledger, by name."""
    inside = ledger.roundup_bytes + ledger.tail_bytes + ledger.large_rounding_bytes
    unused = ledger.free_slot_bytes + ledger.cached_bytes + ledger.free_page_bytes
    small = ledger.classes[ledger.classes["cls"] > 0]
    found = {
        "internal_waste": _ratio(inside, ledger.requested_bytes),
        "unused_share": _ratio(unused, ledger.held_bytes),
        "held_over_requested": _ratio(ledger.held_bytes, ledger.requested_bytes),
        "mean_occupancy": _ratio(int(small["live_objects"].sum()), int(small["slots"].sum())),
        "largest_hole_bytes": ledger.largest_hole_bytes,
        "free_runs": ledger.free_runs,
        **_johnstone_wilson(ledger.stats),
    }
    known = {name: math.nan if value is None else value for name, value in found.items()}
    return Measures({name: Measure(known[name], said) for name, said in DEFINITIONS.items()})


def measures_json(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Return the measures and the occupancy of a ledger for JSON; null if unknown."""
    found: dict[str, dict[str, Any]] = {}
    for name, one in measures_of(ledger).items():
        value = None if math.isnan(one) else int(one) if name in _WHOLE else float(one)
        found[name] = {"value": value, "definition": one.definition}
    found["occupancy"] = {"value": ledger.occupancy, "definition": OCCUPANCY}
    return found


def _johnstone_wilson(stats: RunStats | None) -> dict[str, float | None]:
    """Return the four ratios of held to requested bytes of Johnstone and Wilson."""
    s = stats
    if s is None:
        return dict.fromkeys(name for name in DEFINITIONS if name.startswith("jw_"))
    return {
        "jw_mean": s.mean_held_over_requested,
        "jw_mean_steady": s.steady_held_over_requested,
        "jw_at_peak_requested": _ratio(s.held_at_peak_bytes, s.peak_requested_bytes),
        "jw_at_peak_held": _ratio(s.peak_held_bytes, s.requested_at_peak_held_bytes),
        "jw_of_peaks": _ratio(s.peak_held_bytes, s.peak_requested_bytes),
    }
