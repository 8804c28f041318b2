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
        name: "most waste", "held by", "recorded", "simulated", "runs" or "note".
        text: without a full stop, unless it is a sentence.
    """

    name: str
    text: str


def verdict(facts: AdviceFacts) -> str:
    """Say how much was wasted at the peak RSS, by the program's own allocator if that is known."""
    memory, program = facts.memory, facts.program
    if memory is None and facts.recording.attached:
        most = _format.size(facts.requested_bytes)
        return f"{program} had at most {most} requested of what it allocated in the recording."
    if memory is None:
        return f"{program} had {_format.size(facts.requested_bytes)} requested at most."
    said = (
        f"At its peak RSS of {_format.size(memory.peak_rss_bytes)}, {program} had"
        f" {_format.size(memory.malloc_bytes)} resident in {facts.recording.allocator}'s malloc"
        f"{_share(facts, memory)}"
    )
    if memory.recorded_share < MODEL_SHARE:
        return f"{said}."  # what its malloc wastes says little about the process
    requested = f"{_format.size(facts.requested_bytes)} requested"
    if facts.own_wasted < 0:
        return f"{said} for {requested}, some of it never written: its waste is not known."
    if facts.untouched_bytes:
        requested += f", {_format.size(facts.untouched_bytes)} of it never written"
    wasted = _format.size(facts.own_wasted)
    share = _format.share(facts.own_wasted, memory.malloc_bytes)
    return f"{said} for {requested}: {wasted} ({share}) was waste{_cause(facts)}."


def findings(facts: AdviceFacts) -> tuple[Finding, ...]:
    """Return what explains the verdict."""
    return tuple(_each(facts))


def nothing(facts: AdviceFacts) -> str:
    """Say why there may be no advice; "" if nothing is special about the recording."""
    memory = facts.memory
    if memory is not None and memory.recorded_share < MODEL_SHARE:
        share = _format.share(memory.recorded_share, 1)
        return f"There is nothing to change in malloc, which has {share} of the private memory."
    if facts.as_recorded:
        return (
            f"In a recording with {facts.as_recorded} no change of malloc was found that helps"
            " normal runs, which use another allocator. To need less, keep fewer or smaller"
            " objects, first those named above."
        )
    if memory is not None and 0 <= facts.own_wasted < _LITTLE * memory.malloc_bytes:
        return (
            "Little is wasted: nearly all of it is memory that the program requested. To need less,"
            " keep fewer or smaller objects, first those named above."
        )
    return ""


def _each(facts: AdviceFacts) -> Iterator[Finding]:
    memory, kept = facts.memory, facts.keeps
    is_recorded = memory is None or memory.recorded_share >= MODEL_SHARE
    holders = _holders(facts) if is_recorded else []
    yield from (Finding("held by", text) for text in holders)
    if memory is not None and facts.own_wasted >= 0:
        least = max(_KEPT_MORE * facts.own_wasted, _KEPT_LEAST * memory.malloc_bytes)
        if kept is not None and _wasted(kept) > least:
            yield Finding("most waste", _kept(kept, facts.recording.summary.duration_ns))
        if not _share(facts, memory):
            share = _format.share(memory.recorded_share, 1)
            yield Finding("recorded", f"{share} of the private memory")
    if is_recorded:
        unwritten = ", without pages that it never writes" if facts.untouched_bytes else ""
        yield Finding(
            "simulated",
            f"a peak of {_format.size(facts.resident_bytes)} under spanwise's malloc with its size"
            f" classes {facts.table.name}{unwritten}",
        )
    if memory is not None:
        yield from (Finding("note", text) for text in _notes(facts))


def _wasted(kept: RetainedMemory) -> int:
    return kept.malloc_bytes - kept.requested_bytes


def _kept(kept: RetainedMemory, duration_ns: int) -> str:
    """Say what the program's malloc keeps later, and how long."""
    text = (
        f"{_format.size(_wasted(kept))} at {kept.time_ns / 1e9:.3f} s:"
        f" {_format.size(kept.malloc_bytes)} resident for"
        f" {_format.size(kept.requested_bytes)} requested"
    )
    if kept.until_ns <= kept.from_ns:
        return text
    lasts = _format.seconds(min(kept.until_ns, duration_ns) - kept.from_ns, 1)
    if kept.until_ns >= duration_ns:
        return f"{text}; about as much in the last {lasts}"
    return f"{text}; about as much for {lasts} from {kept.from_ns / 1e9:.3f} s on"


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
    """Say what else the process has, if a runtime has most of it or malloc has the smaller part."""
    share, runtimes = memory.recorded_share, facts.recording.runtimes
    owned = share < _MOST and runtimes and not facts.recording.switched_off[0]
    if share >= MODEL_SHARE and not owned:
        return ""
    text = f"{_format.share(share, 1)} of its private memory"
    if owned:
        rest = _format.size(memory.private_bytes - memory.malloc_bytes)
        text += f"; most of the other {rest} is {runtimes[0]}'s own heap"
    return f" ({text})"


def _notes(facts: AdviceFacts) -> Iterator[str]:
    """Say how the recorded run differs from normal ones."""
    runtime, switch = facts.recording.switched_off
    if runtime:
        yield (
            f"recorded with {switch}, unlike normal runs, which may need less:"
            f" {facts.compare()} compares with those"
        )
    recording = facts.recording
    has_sites = any(recording.site_frames.values())
    if runtime == "CPython" and has_sites and not recording.has_python_lines:
        yield (
            "its call sites are functions of the interpreter; --python-sites, the default, records"
            " lines of CPython 3.9 to 3.14"
        )
