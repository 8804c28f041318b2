# SPDX-License-Identifier: Apache-2.0
"""One piece of advice, and what the rules read to find it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from spanwise import _format
from spanwise.heap.options import HeapOptions
from spanwise.ledger.ledger import Ledger
from spanwise.recordings.live_sites import LiveObjects
from spanwise.recordings.process_memory import ProcessMemory, RetainedMemory, glibc_overhead
from spanwise.recordings.recording import Recording
from spanwise.recordings.span_pinning import SpanPinning
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
_COMMAND_MAX = 60
_KEPT_SHARE = 0.8
"""What malloc keeps is taken from the RSS if it has this share of the private memory."""
_KEPT_MORE = 1.1
"""The verdict names what malloc keeps later if that is so many times the waste at the peak."""
_NEARLY = 0.95
_MODEL_SHARE = 0.5
"""If malloc has a smaller share, its peak is elsewhere than the process's: they do not compare."""
_HOLDERS = 3
"""The verdict names at most so many call sites,"""
_HOLDER_SHARE = 0.1
"""each with at least this share of the requested bytes."""
_ALL_BELOW = 0.9
"""If malloc has a smaller share of the private memory, the verdict says who has the rest."""


@dataclass(frozen=True)
class Advice(Result):
    """One change and what it would save.

    Attributes:
        kind: "allocator", "size", "pinning", "trim", "retained", "caches" or "table".
        saves_bytes: resident bytes that it would save. Where `under` is set they come on top of
            what that allocator saves by itself, or are what is left after what it costs.
        at: the moment of the saving: "peak-resident", "end", or seconds since the start.
        certainty: one of CERTAINTIES.
        under: the allocator under which the change saves that, if the program runs another today;
            else "".
        finding: what costs the memory, one sentence.
        change: what to do about it, one sentence.
    """

    kind: str
    saves_bytes: int
    at: str
    certainty: str
    finding: str
    change: str
    under: str = ""

    @property
    def title(self) -> str:
        """The saving: "saves 1.5 MiB at the end, under spanwise only (simulated)"."""
        when = {PEAK: "at the peak", "end": "at the end"}.get(self.at, f"at {self.at} s")
        under = f", under {self.under} only" if self.under else ""
        return f"saves {_format.size(self.saves_bytes)} {when}{under} ({self.certainty})"

    def __str__(self) -> str:
        return f"{self.title}: {self.finding} {self.change}"

    __repr__ = __str__


class AdviceFacts:
    """What the rules read, each computed once."""

    def __init__(
        self, recording: Recording, table: SizeClassTable, options: HeapOptions, step: Progress
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
    def objects(self) -> LiveObjects:
        """The live objects at the peak resident; sites with equal names are one."""
        found = self.recording.live_objects(
            self.table, PEAK, options=self.options, progress=self.step
        )
        return self._merged(found)

    @property
    def untouched_bytes(self) -> int:
        """Requested bytes that the program never wrote: neither heap has them resident.

        0 if they are less than the noise, unless malloc has less resident than was requested.
        """
        memory = self.memory
        if memory is None:
            return 0
        requested = self.recording.summary.peak_requested_bytes
        least = max(int(_NOISE_SHARE * memory.malloc_bytes), _NOISE_BYTES)
        is_noise = memory.untouched_bytes < least and memory.malloc_bytes >= requested
        return 0 if is_noise else memory.untouched_bytes

    @property
    def resident_bytes(self) -> int:
        """The simulated peak of resident bytes, less what the program never wrote."""
        return max((self.peak.peak_resident_bytes or 0) - self.untouched_bytes, 0)

    @property
    def is_own_allocator(self) -> bool:
        """Whether the recorded malloc is another one than ours, and the one that users run."""
        own = self.recording
        return own.allocator != "spanwise" and not own.switched_off[0]

    @property
    def own_wasted(self) -> int:
        """Resident bytes of the program's malloc beyond the peak of requested bytes.

        Negative if more of the requested bytes was never written than is known; 0 if not measured.
        """
        memory = self.memory
        if memory is None:
            return 0
        requested = self.recording.summary.peak_requested_bytes
        return memory.malloc_bytes + self.untouched_bytes - requested

    @cached_property
    def own_overhead_bytes(self) -> int:
        """The part of `own_wasted` that is headers and rounding of glibc's live objects.

        At the peak of requested bytes; 0 if the program's malloc is another, or was not measured.
        """
        if self.recording.allocator != "glibc" or self.own_wasted <= 0:
            return 0
        live = self.recording.live_histogram("peak")
        overhead = glibc_overhead(live["size_bytes"])
        return min(int(np.dot(overhead, live["count"].astype(np.int64))), self.own_wasted)

    @property
    def own_memory(self) -> ProcessMemory | None:
        """The memory of the process, if its malloc can be compared with the simulated heap.

        It cannot if part of what was requested was never written, which the simulation assumes.
        """
        return self.memory if self.is_own_allocator and self.own_wasted >= 0 else None

    @property
    def is_mostly_malloc(self) -> bool:
        """Whether most of the private memory is malloc's, so that its peak is the process's."""
        return self.memory is not None and self.memory.recorded_share >= _KEPT_SHARE

    @property
    def under(self) -> str:
        """The allocator that the simulation is of, if the program runs another."""
        return "" if self.recording.allocator == "spanwise" else "spanwise"

    @property
    def retained(self) -> RetainedMemory | None:
        """What the program's malloc keeps without need, if that is known.

        It is not where much private memory is not malloc's: the RSS then says little about malloc.
        """
        memory = self.memory
        if memory is None or self.recording.allocator == "spanwise":
            return None
        return memory.retained if memory.recorded_share >= _KEPT_SHARE else None

    @property
    def keeps(self) -> RetainedMemory | None:
        """The same; also if it was recorded under a switch that users do not set."""
        return self.retained if self.recording.allocator != "spanwise" else None

    @property
    def as_recorded(self) -> str:
        """The switch under which the program's malloc was measured, if users do not set it."""
        return self.recording.switched_off[1]

    @cached_property
    def later(self) -> tuple[str, str]:
        """A moment after the peak, as in `Advice.at`, and as a ledger takes it.

        When malloc keeps most without need; the end if that is not known.
        """
        kept = self.retained
        if kept is None:
            return "end", "end"
        return f"{kept.time_ns / 1e9:.3f}", f"#{min(kept.op, len(self.recording))}"

    @cached_property
    def later_ledger(self) -> Ledger:
        """The simulated ledger at that moment."""
        return self.recording.ledger(
            self.table, self.later[1], options=self.options, progress=self.step
        )

    @property
    def later_resident_bytes(self) -> int:
        """The simulated resident bytes at that moment, less what the program never wrote."""
        return max((self.later_ledger.resident_bytes or 0) - self.untouched_bytes, 0)

    @cached_property
    def later_objects(self) -> LiveObjects:
        """The live objects at that moment; sites with equal names are one."""
        found = self.recording.live_objects(
            self.table, self.later[1], options=self.options, progress=self.step
        )
        return self._merged(found)

    def _merged(self, objects: LiveObjects) -> LiveObjects:
        seen, place = np.unique(objects.site, return_inverse=True)
        same = self.same(seen.tolist())
        return replace(
            objects, site=np.array([same[one] for one in seen.tolist()], np.int64)[place]
        )

    def same(self, sites: Iterable[int]) -> dict[int, int]:
        """Map call sites to one of those with equal names, always the same."""
        keys = self.recording.site_keys(sites)
        return {site: self._first.setdefault(key, site) for site, key in keys.items()}

    @cached_property
    def _first(self) -> dict[tuple[str, ...] | int, int]:
        return {}

    def pinning(self, moment: str | float) -> SpanPinning:
        """Who pins spans at a moment; sites with equal names are one."""
        return self.recording.span_pinning(
            "site", self.table, moment, options=self.options, progress=self.step
        ).merged()

    def pool_saves(self, site: int, moment: str, *, lasting: bool) -> int:
        """Resident bytes that a pool of a site's objects would save, by simulation.

        After the peak, free pages do not count, because the heap returns them in time.

        Args:
            site: the call site.
            moment: "peak-resident", or that of `later`.
            lasting: only objects that are live at the moment come from the pool.
        """
        objects = self.objects if moment == PEAK else self.later_objects
        pooled = self.recording.pooled([site], live_after=objects.op if lasting else None)
        found = pooled.ledger(self.table, moment, options=self.options, progress=self.step)
        if moment == PEAK:
            return (self.peak.peak_resident_bytes or 0) - (found.peak_resident_bytes or 0)
        return _without_free_pages(self.later_ledger) - _without_free_pages(found)

    @property
    def is_redis(self) -> bool:
        """Whether it is a Redis server, which has commands of its own for its memory."""
        return self.program.startswith("redis")

    @property
    def manages(self) -> bool:
        """Whether an interpreter allocates, so the program's owner cannot choose a pool."""
        return bool(self.recording.switched_off[0] or self.recording.runtimes)

    def cost(self, at: str) -> int:
        """What our heap costs, compared with the program's own; 0 if it saves, or is not known."""
        memory = self.own_memory
        if memory is None:
            return 0
        if at == PEAK:
            own, ours = memory.malloc_bytes, self.resident_bytes
        else:
            kept = self.retained
            own = memory.end_malloc_bytes if kept is None else kept.malloc_bytes
            ours = self.later_resident_bytes
        return max(ours - own, 0)

    def saving(self, at: str, saved: int) -> tuple[int, str]:
        """What a change saves that needs our heap, without what our heap costs; and what that is.

        Args:
            at: "peak-resident", or that of `later`.
            saved: bytes that it saves in the simulated heap.
        """
        cost = self.cost(at)
        own = self.recording.allocator
        less = f" The {_format.size(cost)} by which spanwise exceeds {own} is already subtracted."
        less = less if cost else ""
        return saved - cost, less

    @property
    def noise_bytes(self) -> int:
        """Smaller savings are not worth a change."""
        return max(int(_NOISE_SHARE * self.resident_bytes), _NOISE_BYTES)

    def command(self) -> str:
        """The recorded command; only its first word if it is long."""
        words = self.recording.arguments or [self.program]
        whole = shlex.join(words)
        return whole if len(whole) <= _COMMAND_MAX else f"{shlex.quote(words[0])} ..."

    def compare(self) -> str:
        """The command that compares real runs."""
        command = self.command()
        if command.endswith(" ..."):
            return f"spanwise advise --bench {shlex.quote(self.recording.name)}"
        return f"spanwise bench -- {command}"

    def verdict(self) -> str:
        """Say what was wasted: by the program's own allocator if that is known, and simulated."""
        memory, resident = self.memory, _format.size(self.resident_bytes)
        requested = f"{_format.size(self.recording.summary.peak_requested_bytes)} requested"
        model = (
            f"By simulation, spanwise's malloc with its size classes {self.table.name} would have a"
            f" peak of {resident}"
            + (" (pages that it never writes do not count)." if self.untouched_bytes else ".")
        )
        if memory is not None and memory.recorded_share < _MODEL_SHARE:
            model = ""
        if memory is None:
            return f"{self.program} had {requested} at most. {model}"
        runtime, switch = self.recording.switched_off
        under = (
            f"It was recorded with {switch}, unlike its normal runs, which may need less:"
            f" {self.compare()} compares with those."
            if runtime
            else ""
        )
        own = memory.malloc_bytes
        said = (
            f"At its peak RSS of {_format.size(memory.peak_rss_bytes)}, {self.program} had"
            f" {_format.size(own)} resident in {self.recording.allocator}'s malloc"
            f" ({self._share()})"
        )
        if self.own_wasted < 0:
            return (
                f"{said}. Of {requested} some was never written, so its waste is not known. {model}"
            ).rstrip()
        if self.untouched_bytes:
            requested += f", {_format.size(self.untouched_bytes)} of it never written"
        wasted, share = _format.size(self.own_wasted), _format.share(self.own_wasted, own)
        said = f"{said} for {requested}: {wasted} ({share}) was waste{self._cause()}."
        parts = (said, self._kept(), model, self._holders(), under, self._interpreter())
        return " ".join(filter(None, parts))

    def nothing(self) -> str:
        """Say why there may be no advice; "" if nothing is special about the recording."""
        memory = self.memory
        if memory is not None and memory.recorded_share < _MODEL_SHARE:
            share = _format.share(memory.recorded_share, 1)
            return f"Nothing to change in malloc, which has {share} of the private memory."
        if self.as_recorded:
            return f"No change that was simulated saves more than 1 % under {self.as_recorded}."
        return ""

    def _holders(self) -> str:
        """Say which call sites requested most of the live bytes at the peak; "" if unknown."""
        memory = self.memory
        if memory is not None and memory.recorded_share < _MODEL_SHARE:
            return ""  # it says little about the process
        requested = self.objects.counts[1]
        sites, place = np.unique(self.objects.site, return_inverse=True)
        of_site = np.bincount(place, requested, len(sites))
        order = np.argsort(-of_site, kind="stable")[:_HOLDERS]
        least = _HOLDER_SHARE * requested.sum()
        known = self.recording.site_frames
        top = [i for i in order if of_site[i] >= least and known.get(int(sites[i]))]
        names = self.names(int(sites[i]) for i in top)
        counts = np.bincount(place, minlength=len(sites))
        each = [
            f"{names[int(sites[i])]} ({_format.size(of_site[i])} in"
            f" {_format.plural(int(counts[i]), 'object')})"
            for i in top
        ]
        return f"Requested at the peak by: {', '.join(each)}." if each else ""

    def _cause(self) -> str:
        """Say what part of glibc's waste is headers and rounding, after a comma."""
        rounding = self.own_overhead_bytes
        if rounding == 0:
            return ""
        part = "nearly all" if rounding >= _NEARLY * self.own_wasted else _format.size(rounding)
        return f", {part} of it headers and rounding"

    def _share(self) -> str:
        """Malloc's share of the private memory, and whose most of the rest is, if that is known."""
        memory = self.memory
        if memory is None:
            return ""
        share = memory.recorded_share
        text = f"{_format.share(share, 1)} of its private memory"
        runtimes = self.recording.runtimes
        if share < _ALL_BELOW and runtimes and not self.recording.switched_off[0]:
            rest = _format.size(memory.private_bytes - memory.malloc_bytes)
            text += f"; most of the other {rest} is {runtimes[0]}'s own heap"
        return text

    def _interpreter(self) -> str:
        """Say how to see lines of Python instead of functions of the interpreter."""
        recording = self.recording
        if recording.switched_off[0] != "CPython" or recording.has_python_lines:
            return ""
        if not any(recording.site_frames.values()):
            return ""
        return (
            "Its call sites are functions of the interpreter: record it with --python-sites to see"
            " lines of Python."
        )

    def _kept(self) -> str:
        """Say what the program's malloc keeps later, if that is more waste than at the peak."""
        kept = self.keeps
        if kept is None:
            return ""
        if kept.malloc_bytes - kept.requested_bytes <= _KEPT_MORE * self.own_wasted:
            return ""
        return (
            f"Its waste was largest at {kept.time_ns / 1e9:.3f} s:"
            f" {_format.size(kept.malloc_bytes)} resident for"
            f" {_format.size(kept.requested_bytes)} requested."
        )

    def names(self, sites: Iterable[int]) -> dict[int, str]:
        """Return a label for each call site: its innermost callers."""
        return self.recording.site_labels(sites)


def _without_free_pages(ledger: Ledger) -> int:
    free = 0 if ledger.resident is None else ledger.resident.free_page_bytes
    return (ledger.resident_bytes or 0) - free
