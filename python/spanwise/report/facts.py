# SPDX-License-Identifier: Apache-2.0
"""Collect the data of a report in a few passes, and sum it up in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from spanwise import _format, _lib, errors
from spanwise.heap.heap_map import HeapMap
from spanwise.heap.options import HeapOptions, as_options
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.optimizer.profile import RESIDENT
from spanwise.optimizer.result import OptimizeResult
from spanwise.optimizer.search import optimize, simulated_operations
from spanwise.optimizer.solver import default_candidates
from spanwise.recordings.live_sites import LiveSite, LiveSites
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import RecordingSet
from spanwise.recordings.sites import AnySite, Site
from spanwise.recordings.timeline import AfterPeak
from spanwise.report.advice import ADVICE_PASSES, AdviceList, advise
from spanwise.report.moments import Moment, all_sites, peak_of, through
from spanwise.report.own_heap import OwnHeap, own_heap_of
from spanwise.results.jobs import Progress, Step, progress_bar
from spanwise.results.rows import Rows, as_rows
from spanwise.tables.table import SizeClassTable

MOMENTS = 160
"""Moments of the time line, half of them in steps of time."""
SITES = 15
"""Call sites in the page's table."""
FLAME_SITES = 200
"""Call sites with frames in the page's flame graph."""
NAME_MAX = 120
"""Characters of a frame in the page; the middle of longer names, as in C++ templates, is cut."""
CLASSES = 32
"""Maximum number of classes of the fitted table."""
SEARCH_OPERATIONS = 100_000_000
"""Budget of the search for that table, in simulated operations. It simulates at least SEARCHED_MIN
tables and at most as many as `optimize` does by default: the page of a long recording should not
wait for the last 1 % of a saving."""
SEARCHED_MIN = 8
_PASSES = 5
"""Simulations of the recording before that search: peak, ledger, time line (2), moments."""


@dataclass(frozen=True)
class Facts:
    """All that the page shows.

    Attributes:
        moments: heap maps and live objects over time, including the peak; (): a set.
        advice: the fitted table compared with stock tables; None: nothing to fit to.
        changes: the verdict and ranked advice; None: a set of several recordings.
        own: the program's own heap, as it was measured; None: not known, or a set.
    """

    recording: Recording | RecordingSet  # what it is about; a set has neither maps nor advice
    table: SizeClassTable  # its size classes
    ledger: Ledger  # at the peak of resident bytes
    after_peak: AfterPeak  # waste after that, and what is held at the end
    timeline: Rows  # rows of `Recording.timeline(detail="parts")`
    histogram: Rows  # requests by size
    moments: tuple[Moment, ...]
    sites: LiveSites  # live objects at the peak, by call site
    advice: OptimizeResult | None
    no_advice: str  # why `advice` is None, or ""
    changes: AdviceList | None = None
    allocated: tuple[Site, ...] = ()  # all call sites, with their allocations; (): a set
    own: OwnHeap | None = None

    @property
    def program(self) -> str:
        """The name of the recorded program, or those of several processes."""
        if isinstance(self.recording, Recording):
            return Path(self.recording.program).name or self.recording.name
        names = list(dict.fromkeys(Path(one.program).name or one.name for one in self.recording))
        more = [f"{len(names) - 3} more"] if len(names) > 3 else []
        return f"{len(self.recording)} processes ({', '.join([*names[:3], *more])})"

    @property
    def maps(self) -> tuple[HeapMap, ...]:
        """Heap maps over time, including the peak."""
        return tuple(one.map for one in self.moments)

    @property
    def peak_op(self) -> int:
        """The operation of the time line where most is resident."""
        if self.after_peak.peak_op is not None:
            return self.after_peak.peak_op
        return int(self.timeline["op"][np.argmax(self.timeline["resident_bytes"])])

    @property
    def has_sites(self) -> bool:
        """Whether any live object has a known call site."""
        return any(site.id for site in self.sites)

    @property
    def has_stacks(self) -> bool:
        """Whether a site has more than one frame, so that a flame graph shows more than a list."""
        return any(len(site.frames) > 1 for site in self.sites)

    def worst_part(self) -> str:
        """Return the part with the most waste."""
        return max(
            (name for name in PARTS if name != "requested_bytes"),
            key=lambda name: int(getattr(self.ledger, name)),
        )

    def answer(self) -> str:
        """Return the verdict: how much was wasted, by the program's own allocator if known."""
        return self.changes.verdict if self.changes is not None else self.simulated()

    def simulated(self, lead: str = "In spanwise's heap, by simulation, ") -> str:
        """Return what the simulated heap wasted and where, after the words that name the heap."""
        ledger = self.ledger
        if ledger.held_bytes == 0 or not self.recording.events:
            return f"{self.program} allocated nothing, so nothing was wasted."
        worst = self.worst_part()
        share = _format.share(ledger.waste_bytes, ledger.held_bytes)
        most = _format.size(getattr(ledger, worst))
        is_one = isinstance(self.recording, Recording)
        when = "when resident bytes peak," if is_one else "each then,"
        said = (
            f"{lead}{when} {self.program} has requested"
            f" {_format.size(ledger.requested_bytes)}, and the table {ledger.table} holds"
            f" {_format.size(ledger.held_bytes)} for it: {share} is waste, most of it"
            f" {PARTS[worst]} ({most})"
        )
        if ledger.resident_bytes is not None:
            said += f"; {_format.size(ledger.resident_bytes)} is resident"
        return f"{said[0].upper()}{said[1:]}."

    def advised(self) -> str:
        """Return the verdict about the fitted table, or "" if none was fitted."""
        if self.advice is None:
            return ""
        return f"Of the tables that were tried, {self.advice.verdict()}"

    def to_dict(self) -> dict[str, Any]:
        """Return the facts for the JSON in the page, without the rows of the charts."""
        return {
            "program": self.program,
            "arguments": self.recording.arguments,
            "answer": self.answer(),
            "findings": [] if self.changes is None else [list(f) for f in self.changes.findings],
            "own_heap": None if self.own is None else self.own.to_dict(),
            "python_heap": None if self.changes is None else self.changes.to_dict()["python_heap"],
            "simulated": self.simulated(),
            "changes": None if self.changes is None else self.changes.to_dict()["advice"],
            "summary": self.recording.summary.to_dict(),
            "ledger": self.ledger.to_dict(),
            "after_peak": self.after_peak.to_dict(),
            "sites": [site.to_dict() for site in self.sites.sites[:SITES]],
            "advice": None if self.advice is None else self.advice.resident_bytes,
            "spanwise": _lib.version(),
        }


def gather(
    recording: Recording,
    table: SizeClassTable,
    holdout: Sequence[Recording] = (),
    options: HeapOptions | None = None,
    *,
    hide_frames: Iterable[str] = (),
    progress: Progress = None,
    advice: OptimizeResult | None = None,
) -> Facts:
    """Simulates the recording and collects the facts."""
    total = (_PASSES + ADVICE_PASSES) * len(recording)
    if advice is None:
        total += _searched_operations(recording, holdout)
    with progress_bar(progress, total, "report", "operations") as step:
        after = recording.after_peak(table, options=options, progress=step)
        ledger = recording.ledger(table, options=options, progress=step)
        timeline = _timeline(recording, table, options, step)
        moments = through(recording, table, as_options(options), after.peak_op, step)
        every = all_sites(recording, moments).named(hide_frames=hide_frames)
        allocated = {site.id: short_name_of(site) for site in every}
        peak = peak_of(moments)
        live = peak.live if peak is not None else None
        if live is None:
            live = recording.live_sites(table, options=options)
        live = replace(live, sites=named_as(live.sites, allocated), ledger=ledger)
        sites = replace(live, imported=recording.imported).merged()
        histogram = recording.histogram()
        why = ""
        if advice is None:
            advice, why = _advise(recording, table, holdout, step)
        changes = advise(recording, table, fitted=advice, options=options, progress=step)
    shown = tuple(moments) if peak is not None else ()
    seen = (recording, table, ledger, after, timeline, histogram, shown, sites)
    own = own_heap_of(recording, table)
    return Facts(*seen, advice, why, changes, tuple(allocated.values()), own)


def _timeline(
    found: Recording | RecordingSet, table: SizeClassTable, options: HeapOptions | None, step: Step
) -> Rows:
    """Return moments in equal steps of operations, and in equal steps of time."""
    made = partial(found.timeline, table, detail="parts", options=options, progress=step)
    rows = made(samples=MOMENTS // 2)
    if rows["time_ns"].max(initial=0) < MOMENTS:
        return rows
    timed = made(step_s=int(rows["time_ns"][-1]) / (MOMENTS // 2) / 1e9)
    both = np.concatenate([np.asarray(rows), np.asarray(timed)])
    return as_rows(both[np.unique(both[["op", "time_ns"]], return_index=True)[1]])


def named_as(sites: Iterable[LiveSite], names: Mapping[int, Site]) -> tuple[LiveSite, ...]:
    """Return the sites with names that are known by id."""
    known = [(one, names[one.id]) for one in sites]
    return tuple(
        replace(a, names=b.names, full_names=b.full_names, through=b.through) for a, b in known
    )


def short_names(live: LiveSites) -> LiveSites:
    """Return the sites with names of at most NAME_MAX characters."""
    return replace(live, sites=tuple(short_name_of(site) for site in live.sites))


def short_name_of(site: AnySite) -> AnySite:
    """Return a site with names of at most NAME_MAX characters."""

    def short(names: Iterable[str]) -> tuple[str, ...]:
        end = NAME_MAX // 3
        return tuple(
            name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - end - 1]}…{name[-end:]}"
            for name in names
        )

    made = replace(cast(Any, site), names=short(site.names), full_names=short(site.full_names))
    return cast(AnySite, made)


def gather_set(
    recordings: RecordingSet,
    table: SizeClassTable,
    options: HeapOptions | None,
    *,
    hide_frames: Iterable[str] = (),
    progress: Progress = None,
) -> Facts:
    """Gather sums of several processes; `ledger.parts` has the ledger of each."""
    total = _PASSES * sum(map(len, recordings))
    with progress_bar(progress, total, "report", "operations") as step:
        after = recordings.after_peak(table, options=options, progress=step)
        ledger = recordings.ledger(table, options=options, progress=step)
        timeline = _timeline(recordings, table, options, step)
        live = recordings.live_sites(table, options=options, progress=step)
        sites = short_names(live.named(hide_frames=hide_frames).merged())
    seen = (recordings, table, ledger, after, timeline, recordings.histogram(), (), sites)
    return Facts(*seen, None, "spanwise optimize fits one to several recordings")


def searched_tables(recording: Recording) -> int:
    """Return the maximum number of tables that the search simulates."""
    fewer = max(SEARCHED_MIN, SEARCH_OPERATIONS // max(len(recording), 1))
    return min(fewer, default_candidates([recording]))


def _searched_operations(recording: Recording, holdout: Sequence[Recording]) -> int:
    """Return the maximum number of operations that the search simulates."""
    return simulated_operations(
        recording,
        CLASSES,
        RESIDENT,
        holdout=holdout,
        tables=1,
        candidates=searched_tables(recording),
    )


def _advise(
    recording: Recording, table: SizeClassTable, holdout: Sequence[Recording], progress: Step
) -> tuple[OptimizeResult | None, str]:
    """Return the fitted table, or None and the reason."""
    if not recording.events:
        return None, "the recording has no operation"
    try:
        found = optimize(
            recording,
            CLASSES,
            tables=(table,),
            holdout=holdout or None,
            candidates=searched_tables(recording),
            moment=table,
            progress=progress,
        )
    except errors.InvalidError as error:
        if holdout:
            raise
        return None, str(error)
    return found, ""
