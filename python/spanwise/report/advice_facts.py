# SPDX-License-Identifier: Apache-2.0
"""One piece of advice, and the facts from which the rules derive it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.heap.options import HeapOptions
from spanwise.ledger.ledger import Ledger
from spanwise.recordings.live_sites import LiveObjects, distinct
from spanwise.recordings.process_memory import ProcessMemory, RetainedMemory, glibc_overhead
from spanwise.recordings.programs import ADVICE, MALLOC_SWITCHES
from spanwise.recordings.recording import Recording
from spanwise.recordings.sites import LABEL
from spanwise.recordings.span_pinning import SpanPinning
from spanwise.report.python_heap import PLAIN, PythonHeap, python_heap_of
from spanwise.results.jobs import Progress, no_step
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
_BOUNDS = ("buffers", "pinning", "trim")
_BUFFERS = "NodeArrayBufferAllocator::"
"""Allocates Buffers of Node.js."""
_BUFFER_BLOCKS = (8 << 10, 16 << 10)
"""The blocks of which slices are parts: Buffer.poolSize, and the chunkSize of zlib."""
_COMMAND_MAX = 60
_KEPT_SHARE = 0.8
"""What malloc keeps is taken from the RSS if it has this share of the private memory."""
MODEL_SHARE = 0.5
"""If malloc has a smaller share, its peak is elsewhere than the process's: they do not compare."""


@dataclass(frozen=True)
class Advice(Result):
    """One change and what it would save.

    Attributes:
        kind: "allocator", "size", "buffers", "pinning", "restart", "arenas", "trim", "retained",
            "caches" or "table".
        saves_bytes: resident bytes that it would save. Where `under` is set they come on top of
            what that allocator saves by itself, or are what is left after what it costs.
        at: the moment of the saving: "peak-resident", "end", or seconds since the start.
        certainty: one of CERTAINTIES.
        under: the allocator under which the change saves that, if the program runs another today;
            else "".
        finding: what costs the memory, one sentence.
        change: what to do about it, one sentence.
        against: the run that it saves from, "plain python3" or "a run with USE_ZEND_ALLOC=0"; "":
            the recorded one is as users run the program.
    """

    kind: str
    saves_bytes: int
    at: str
    certainty: str
    finding: str
    change: str
    under: str = ""
    against: str = ""

    @property
    def when(self) -> str:
        """The moment of the saving, as "at the peak"."""
        return {PEAK: "at the peak", "end": "at the end"}.get(self.at, f"at {self.at} s")

    @property
    def title(self) -> str:
        """The saving: "saves 1.5 MiB at the end, under spanwise only (simulated)".

        An estimate of what is free or spread is a bound: "saves at most 1.5 MiB ...". What a new
        process does not have is none, because it may also have fewer objects: "saves about ...".
        """
        under = f", under {self.under} only" if self.under else ""
        against = f", against {self.against}" if self.against else ""
        is_bound = self.certainty == "estimated" and self.kind in _BOUNDS
        most = "at most " if is_bound else "about " if self.kind == "restart" else ""
        saves = f"saves {most}{_format.size(self.saves_bytes)}"
        return f"{saves} {self.when}{under}{against} ({self.certainty})"

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

    @property
    def requested_bytes(self) -> int:
        """Requested bytes while the RSS was at its peak; their own peak if that is not known."""
        memory = self.memory
        at_peak = 0 if memory is None else memory.peak_requested_bytes
        return at_peak or self.recording.summary.peak_requested_bytes

    @cached_property
    def live(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Call site and requested bytes of each object that was live at that moment."""
        memory = self.memory
        known = memory is not None and memory.peak_requested_bytes
        op = memory.peak_op if memory is not None and known else self.recording.summary.peak_op
        latest = self.recording.latest(op)
        sites = self._one_of_each(latest.site[latest.live].astype(np.int64))
        return sites, latest.size[latest.live].astype(np.int64)

    @property
    def peak(self) -> Ledger:
        """The simulated ledger at the peak resident."""
        return self.objects.placed.ledger

    @cached_property
    def objects(self) -> LiveObjects:
        """The live objects at the peak resident; sites with equal names are one."""
        return self._merged(self._at_peak)

    @cached_property
    def _at_peak(self) -> LiveObjects:
        return self.recording.live_objects(
            self.table, PEAK, options=self.options, progress=self.step
        )

    @property
    def untouched_bytes(self) -> int:
        """Requested bytes that the program never wrote: neither heap has them resident.

        0 if they are less than the noise, unless malloc has less resident than was requested.
        """
        memory = self.memory
        if memory is None:
            return 0
        requested = self.requested_bytes
        least = max(int(_NOISE_SHARE * memory.malloc_bytes), _NOISE_BYTES)
        is_noise = memory.untouched_bytes < least and memory.malloc_bytes >= requested
        return 0 if is_noise else memory.untouched_bytes

    @property
    def resident_bytes(self) -> int:
        """The simulated peak of resident bytes, less what the program never wrote."""
        return max((self.peak.peak_resident_bytes or 0) - self.untouched_bytes, 0)

    @cached_property
    def python_heap(self) -> PythonHeap | None:
        """What plain python3 holds; None if the program is no CPython, or was recorded as it is."""
        step = self.step if callable(self.step) else no_step
        return python_heap_of(self.recording, self._one_of_each, self.noise_bytes, step)

    @property
    def plain_rss_bytes(self) -> int:
        """The simulated peak RSS of plain python3; 0: not known."""
        return 0 if self.python_heap is None else self.python_heap.peak_rss_bytes

    @property
    def spanwise_rss_bytes(self) -> int:
        """The peak RSS with the simulated heap instead of the program's malloc."""
        memory = self.memory
        if memory is None:
            return 0
        return memory.peak_rss_bytes - memory.malloc_bytes + self.resident_bytes

    @cached_property
    def buffers(self) -> tuple[int, int]:
        """Blocks of Node.js of which Buffers may be small parts, at the peak: number and bytes."""
        if "Node.js" not in self.recording.runtimes:
            return 0, 0
        sites, sizes = self.live
        of_block = np.isin(sizes, _BUFFER_BLOCKS)
        found, place = distinct(sites[of_block])
        held = np.bincount(place, sizes[of_block], len(found))
        names = self.names(found[held >= self.noise_bytes].tolist())
        mine = np.isin(sites, [site for site, name in names.items() if _BUFFERS in name]) & of_block
        return int(mine.sum()), int(sizes[mine].sum())

    @property
    def is_own_allocator(self) -> bool:
        """Whether the recorded malloc is another one than ours, and the one that users run."""
        own = self.recording
        return own.allocator != "spanwise" and not own.switched_off[0]

    @property
    def own_wasted(self) -> int:
        """Resident bytes of the program's malloc at its peak RSS that were not requested then.

        Negative if more of the requested bytes was never written than is known; 0 if not measured.
        """
        memory = self.memory
        if memory is None:
            return 0
        return memory.malloc_bytes + self.untouched_bytes - self.requested_bytes

    @cached_property
    def own_overhead_bytes(self) -> int:
        """The part of `own_wasted` that is headers and rounding of glibc's live objects.

        At the peak RSS; 0 if the program's malloc is another, or was not measured.
        """
        if self.recording.allocator != "glibc" or self.own_wasted <= 0:
            return 0
        return min(int(glibc_overhead(self.live[1]).sum()), self.own_wasted)

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
    def against(self) -> str:
        """The run that savings in the program's malloc are from, if users run another one."""
        return f"a run with {self.as_recorded}" if self.as_recorded else ""

    @property
    def normal(self) -> str:
        """The runs of users, if the recorded one has a switch that they do not set."""
        return PLAIN if self.python_heap is not None else f"runs without {self.as_recorded}"

    @property
    def next_command(self) -> str:
        """What shows the heap of a runtime, as a sentence; ""."""
        runtime = next(iter(self.recording.runtimes), "")
        switch = MALLOC_SWITCHES.get(runtime, "")
        if switch and not self.recording.attached:
            to = f"{Path(self.recording.name).stem}-malloc.swt"
            words = f"{switch} spanwise record -o {shlex.quote(to)} -- {self.whole_command()}"
            return f"To see what fills {runtime}'s own heap, record it in malloc: {words}"
        advice = ADVICE.get(runtime, "")
        return f"Of {runtime}'s own heap: {advice}." if advice else ""

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

    @property
    def later_ledger(self) -> Ledger:
        """The simulated ledger at that moment."""
        return self._later.placed.ledger

    @property
    def later_resident_bytes(self) -> int:
        """The simulated resident bytes at that moment, less what the program never wrote."""
        return max((self.later_ledger.resident_bytes or 0) - self.untouched_bytes, 0)

    @cached_property
    def later_objects(self) -> LiveObjects:
        """The live objects at that moment; sites with equal names are one."""
        return self._merged(self._later)

    @cached_property
    def _later(self) -> LiveObjects:
        return self.recording.live_objects(
            self.table, self.later[1], options=self.options, progress=self.step
        )

    def _merged(self, objects: LiveObjects) -> LiveObjects:
        return replace(objects, site=self._one_of_each(objects.site))

    def _one_of_each(self, sites: NDArray[np.int64]) -> NDArray[np.int64]:
        seen, place = distinct(sites)
        same = self.same(seen.tolist())
        return np.array([same[one] for one in seen.tolist()], np.int64)[place]

    def same(self, sites: Iterable[int]) -> dict[int, int]:
        """Map call sites to one of those with equal names, always the same."""
        keys = self.recording.site_keys(sites)
        return {site: self._first.setdefault(key, site) for site, key in keys.items()}

    @cached_property
    def _first(self) -> dict[tuple[str, ...] | int, int]:
        return {}

    def pinning(self, at: str) -> SpanPinning:
        """Who pins spans at the peak resident, or at `later`; sites with equal names are one."""
        objects = self._at_peak if at == PEAK else self._later
        return self.recording.pinning_of(objects).merged()

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
        if self.plain_rss_bytes and at == PEAK:
            return max(self.spanwise_rss_bytes - self.plain_rss_bytes, 0)
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
        own = self.recording.allocator if self.python_heap is None else PLAIN
        less = f" The {_format.size(cost)} by which spanwise exceeds {own} is already subtracted."
        less = less if cost else ""
        return saved - cost, less

    @property
    def noise_bytes(self) -> int:
        """Smaller savings are not worth a change."""
        return max(int(_NOISE_SHARE * self.resident_bytes), _NOISE_BYTES)

    def whole_command(self) -> str:
        """The recorded command."""
        return shlex.join(self.recording.arguments or [self.program])

    def command(self) -> str:
        """The recorded command; only its first word if it is long."""
        words, whole = self.recording.arguments or [self.program], self.whole_command()
        return whole if len(whole) <= _COMMAND_MAX else f"{shlex.quote(words[0])} ..."

    def compare(self) -> str:
        """The command that compares real runs."""
        command = self.command()
        if command.endswith(" ..."):
            return f"spanwise advise --bench {shlex.quote(self.recording.name)}"
        return f"spanwise bench -- {command}"

    def names(self, sites: Iterable[int], most: int = LABEL) -> dict[int, str]:
        """Return a label for each call site: its innermost callers, in so many characters."""
        return self.recording.site_labels(sites, most)


def _without_free_pages(ledger: Ledger) -> int:
    free = 0 if ledger.resident is None else ledger.resident.free_page_bytes
    return (ledger.resident_bytes or 0) - free
