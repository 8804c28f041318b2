# SPDX-License-Identifier: Apache-2.0
"""The verdict on a program's memory: one sentence and short explanations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from spanwise import _format
from spanwise.recordings.live_sites import distinct
from spanwise.recordings.process_memory import ProcessMemory, RetainedMemory
from spanwise.report.advice_facts import MODEL_SHARE, AdviceFacts
from spanwise.report.python_heap import PLAIN, PythonHeap

_KEPT_MORE = 1.1
"""What malloc keeps later is a finding if that is so many times the waste at the peak,"""
_KEPT_LEAST = 0.1
"""and this share of what it has."""
_NEARLY = 0.95
_HOLDERS = 3
"""So many call sites are named,"""
_HOLDER_SHARE = 0.1
"""each with at least this share of the requested bytes; the first in any case."""
_LABEL = 90
"""Characters of a call site here."""
_MOST = 0.9
"""If malloc has a smaller share of the private memory, the verdict says which runtime has more."""
_LITTLE = 0.05
"""A smaller share of waste is little."""


class Finding(NamedTuple):
    """One short finding.

    Attributes:
        name: "most waste", "at peak", "held by", "held at peak", "recorded", "simulated", "runs" or
            "note".
        text: without a full stop, unless it is a sentence.
    """

    name: str
    text: str


def verdict(facts: AdviceFacts, is_later: bool) -> str:
    """Say how much was wasted, by the program's own allocator if that is known.

    At the peak RSS; if `is_later` at the moment when malloc kept most without need.
    """
    memory, program = facts.memory, facts.program
    if facts.python_heap is not None:
        return _plain_python(facts, facts.python_heap, is_later)
    if memory is None and facts.recording.attached:
        most = _format.size(facts.requested_bytes)
        return f"{program} had at most {most} requested of what it allocated in the recording."
    if memory is None:
        return f"{program} had {_format.size(facts.requested_bytes)} requested at most."
    if memory.recorded_share < MODEL_SHARE:
        return _elsewhere(facts, memory)  # what its malloc wastes says little about the process
    kept = facts.keeps
    if is_later and kept is not None and _is_more(facts, memory, kept):
        return _later(facts, kept)
    return _at_peak(facts, memory)


def _at_peak(facts: AdviceFacts, memory: ProcessMemory) -> str:
    said = (
        f"At its peak RSS of {_format.size(memory.peak_rss_bytes)}, {facts.program} had"
        f" {_format.size(memory.malloc_bytes)} resident in {_malloc(facts)}"
        f"{_share(facts, memory)}"
    )
    requested = f"{_format.size(facts.requested_bytes)} requested"
    if facts.own_wasted < 0:
        return f"{said} for {requested}, some of it never written: its waste is not known."
    if facts.untouched_bytes:
        requested += f", {_format.size(facts.untouched_bytes)} of it never written"
    wasted = _format.size(facts.own_wasted)
    share = _format.share(facts.own_wasted, memory.malloc_bytes)
    count, held = facts.buffers
    if count and held > facts.own_wasted:
        return (
            f"{said} for {requested}. {_format.size(held)} of that is in blocks of 8 or 16 KiB for"
            f" Buffers, which may use only parts of them; malloc itself wasted {wasted} ({share})."
        )
    return f"{said} for {requested}: {wasted} ({share}) was waste{_cause(facts)}."


def _malloc(facts: AdviceFacts) -> str:
    switch = f" (with {facts.as_recorded})" if facts.as_recorded else ""
    return f"{facts.recording.allocator}'s malloc{switch}"


def _later(facts: AdviceFacts, kept: RetainedMemory) -> str:
    """Say what malloc kept without need when it was most."""
    wasted, seconds = _wasted(kept), f"{kept.time_ns / 1e9:.3f} s"
    lasts = _how_long(kept, facts.recording.summary.duration_ns)
    when = f"{lasts[0].upper()}{lasts[1:]} (figures at {seconds})" if lasts else f"At {seconds}"
    return (
        f"{when}, {facts.program} had {_format.size(kept.malloc_bytes)} resident in"
        f" {_malloc(facts)} for {_format.size(kept.requested_bytes)} requested:"
        f" {_format.size(wasted)}"
        f" ({_format.share(wasted, kept.malloc_bytes)}) was waste."
    )


def _elsewhere(facts: AdviceFacts, memory: ProcessMemory) -> str:
    """Say where a process has its memory whose malloc has the smaller part."""
    runtimes = facts.recording.runtimes
    owner = f", most of it {runtimes[0]}'s own heap" if runtimes else ""
    return (
        f"At its peak RSS of {_format.size(memory.peak_rss_bytes)}, at"
        f" {memory.time_ns / 1e9:.3f} s, {facts.program} had {_format.size(memory.mapped_bytes)} in"
        f" memory that it mapped itself{owner}, and"
        f" {_format.size(memory.malloc_bytes)} resident in {_malloc(facts)}"
        f" ({_format.share(memory.recorded_share, 1)} of its private memory), which alone is"
        " recorded."
    )


def _plain_python(facts: AdviceFacts, heap: PythonHeap, is_later: bool) -> str:
    """Say what the arenas of plain python3 keep, and its peak RSS."""
    peak = (
        f"{_format.size(heap.peak_resident_bytes)} in arenas for"
        f" {_format.size(heap.peak_requested_bytes)} in blocks"
    )
    rss = f"a peak RSS of about {_format.size(heap.peak_rss_bytes)}, "
    rss = rss if heap.peak_rss_bytes else ""
    most = f"has {rss}at most {peak}"
    at_peak = heap.peak_resident_bytes - heap.peak_requested_bytes
    if not is_later:
        wasted = f"{_format.size(at_peak)} ({_format.share(at_peak, heap.peak_resident_bytes)})"
        return f"By simulation, {PLAIN} {most}: {wasted} is waste."
    count = sum(one.blocks for one in heap.sites)
    names = facts.names((one.site for one in heap.sites), _LABEL)
    first = names[heap.sites[0].site]
    more = f" and {len(heap.sites) - 1} more" if len(heap.sites) > 1 else ""
    keepers = f"{_format.plural(count, 'block')} from {first}{more}"
    if 2 * heap.saved_bytes < heap.resident_bytes - heap.requested_bytes:
        keepers = "blocks of many call sites"
    lasts = _format.seconds(heap.until_ns - heap.time_ns, 1)
    return (
        f"CPython's own allocator, as in {PLAIN}, keeps {_format.size(heap.resident_bytes)} in"
        f" arenas for {_format.size(heap.requested_bytes)} in blocks at {heap.time_ns / 1e9:.3f} s,"
        f" for {lasts} (by simulation); {keepers} keep them. {PLAIN.capitalize()} {most}."
    )


def findings(facts: AdviceFacts, is_later: bool) -> tuple[Finding, ...]:
    """Return what explains the verdict."""
    return tuple(_each(facts, is_later))


def nothing(facts: AdviceFacts) -> str:
    """Say why there may be no advice; "" if nothing is special about the recording."""
    memory = facts.memory
    if memory is not None and memory.recorded_share < MODEL_SHARE:
        share = _format.share(memory.recorded_share, 1)
        said = f"Nothing is advised for malloc, which has only {share} of the private memory."
        return f"{said} {facts.next_command}".rstrip()
    if facts.as_recorded:
        return (
            f"No change was found that helps {facts.normal}. To need less, keep fewer or smaller"
            " objects, first those named above."
        )
    if memory is not None and 0 <= facts.own_wasted < _LITTLE * memory.malloc_bytes:
        return (
            "Little is wasted: nearly all of it is memory that the program requested. To need less,"
            " keep fewer or smaller objects, first those named above."
        )
    return ""


def _each(facts: AdviceFacts, is_later: bool) -> Iterator[Finding]:
    memory, kept = facts.memory, facts.keeps
    is_recorded = memory is None or memory.recorded_share >= MODEL_SHARE
    holders = _holders(facts) if is_recorded else []
    yield from (Finding("held at peak" if is_later else "held by", text) for text in holders)
    if facts.python_heap is None and memory is not None and facts.own_wasted >= 0:
        if kept is not None and _is_more(facts, memory, kept) and is_recorded:
            yield (
                Finding("at peak", _at_peak(facts, memory).rstrip("."))
                if is_later
                else Finding("most waste", _kept(kept, facts.recording.summary.duration_ns))
            )
        if not _share(facts, memory):
            share = _format.share(memory.recorded_share, 1)
            yield Finding("recorded", f"{share} of the private memory")
    if is_recorded:
        unwritten = ", without pages that it never writes" if facts.untouched_bytes else ""
        yield Finding("simulated", f"{_simulated(facts)}{unwritten}")
    if memory is not None:
        yield from (Finding("note", text) for text in _notes(facts))


def _simulated(facts: AdviceFacts) -> str:
    """Say what the program would have under spanwise's malloc."""
    classes = f"spanwise's malloc with its size classes {facts.table.name}"
    plain = facts.plain_rss_bytes
    if not plain:
        return f"a peak of {_format.size(facts.resident_bytes)} under {classes}"
    ours = facts.spanwise_rss_bytes
    more = "more" if ours > plain else "less"
    return (
        f"a peak RSS of {_format.size(ours)} with {facts.as_recorded} under {classes},"
        f" {_format.size(abs(ours - plain))} {more} than {PLAIN}"
    )


def _is_more(facts: AdviceFacts, memory: ProcessMemory, kept: RetainedMemory) -> bool:
    """Whether what malloc keeps later is a finding besides the waste at the peak."""
    least = max(_KEPT_MORE * facts.own_wasted, _KEPT_LEAST * memory.malloc_bytes)
    return _wasted(kept) > least


def _wasted(kept: RetainedMemory) -> int:
    return kept.malloc_bytes - kept.requested_bytes


def _kept(kept: RetainedMemory, duration_ns: int) -> str:
    """Say what the program's malloc keeps later, and how long."""
    text = (
        f"{_format.size(_wasted(kept))} at {kept.time_ns / 1e9:.3f} s:"
        f" {_format.size(kept.malloc_bytes)} resident for"
        f" {_format.size(kept.requested_bytes)} requested"
    )
    lasts = _how_long(kept, duration_ns)
    return f"{text}; about as much {lasts}" if lasts else text


def _how_long(kept: RetainedMemory, duration_ns: int) -> str:
    if kept.until_ns <= kept.from_ns:
        return ""
    lasts = _format.seconds(min(kept.until_ns, duration_ns) - kept.from_ns, 1)
    if kept.until_ns >= duration_ns:
        return f"in the last {lasts}"
    return f"for {lasts} from {kept.from_ns / 1e9:.3f} s on"


def _holders(facts: AdviceFacts) -> list[str]:
    """Name the call sites that requested most of the live bytes at the peak RSS."""
    live_sites, sizes = facts.live
    known = facts.recording.site_frames
    sites, place = distinct(live_sites)
    requested = np.bincount(place, sizes, len(sites))
    counts = np.bincount(place, minlength=len(sites))
    order = np.argsort(-requested, kind="stable")[:_HOLDERS]
    least = _HOLDER_SHARE * requested.sum()
    named = [i for i in order if known.get(int(sites[i]))]
    top = [i for i in named if requested[i] >= least] or named[:1]
    names = facts.names((int(sites[i]) for i in top), _LABEL)
    return [
        f"{_format.size(requested[i])} in {_objects(int(counts[i]), requested[i])}:"
        f" {names[int(sites[i])]}"
        for i in top
    ]


def _objects(count: int, total: float) -> str:
    """Return "1 object", or "35,279 objects of 15.8 KiB" on average."""
    text = _format.plural(count, "object")
    return text if count == 1 else f"{text} of {_format.size(total / count)}"


def _cause(facts: AdviceFacts) -> str:
    """Say what part of glibc's waste is headers and rounding, after a comma."""
    rounding = facts.own_overhead_bytes
    if rounding == 0:
        return ""
    part = "nearly all" if rounding >= _NEARLY * facts.own_wasted else _format.size(rounding)
    rest = ", the rest free memory that glibc keeps" if 2 * rounding < facts.own_wasted else ""
    return f", {part} of it headers and rounding{rest}"


def _share(facts: AdviceFacts, memory: ProcessMemory) -> str:
    """Say what else the process has, if a runtime has much of it."""
    share, runtimes = memory.recorded_share, facts.recording.runtimes
    if share >= _MOST or not runtimes or facts.as_recorded:
        return ""
    rest = _format.size(memory.private_bytes - memory.malloc_bytes)
    return (
        f" ({_format.share(share, 1)} of its private memory; most of the other {rest} is"
        f" {runtimes[0]}'s own heap)"
    )


def _notes(facts: AdviceFacts) -> Iterator[str]:
    """Say how the recorded run differs from normal ones."""
    runtime, switch = facts.recording.switched_off
    memory = facts.memory
    if memory is not None and facts.python_heap is not None:
        yield (
            f"recorded with {switch}: peak RSS {_format.size(memory.peak_rss_bytes)}. All else is"
            f" against {PLAIN}; {facts.compare()} measures it"
        )
    elif runtime:
        yield (
            f"recorded with {switch}: all figures are against such a run, and {facts.normal}, which"
            f" have another heap, may need less or more: {facts.compare()} compares"
        )
    recording = facts.recording
    has_sites = any(recording.site_frames.values())
    if runtime == "CPython" and has_sites and not recording.has_python_lines:
        yield (
            "its call sites are functions of the interpreter; --python-sites, the default, records"
            " lines of CPython 3.9 to 3.14"
        )
