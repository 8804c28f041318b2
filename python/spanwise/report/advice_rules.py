# SPDX-License-Identifier: Apache-2.0
"""The rules of advice: each looks for one way in which memory is wasted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.optimizer.result import OptimizeResult
from spanwise.recordings.live_sites import LiveObjects
from spanwise.report.advice_facts import PEAK, Advice, AdviceFacts

if TYPE_CHECKING:
    from spanwise.measure.bench_result import BenchResult
    from spanwise.measure.peers import PeerComparison

_SITES_MAX = 3
_CLASSES_MAX = 3
_MALLOC_ALIGN = 16
_LIVE_AT_END = 0.1

# --- another allocator ----------------------------------------------------------------------------


def _allocator(facts: AdviceFacts) -> Iterator[Advice]:
    """Another allocator: the simulated peak of ours against the measured one of the program's."""
    memory = facts.memory
    if memory is None or not facts.is_own_allocator:
        return
    simulated = facts.resident_bytes
    if facts.own_wasted < 0:
        return  # part of the requested bytes was never written, which the simulation assumes
    own = facts.recording.allocator
    yield Advice(
        "allocator",
        memory.malloc_bytes - simulated,
        PEAK,
        "simulated",
        f"{own} has {_format.size(memory.malloc_bytes)} resident where spanwise with the table"
        f" {facts.table.name} would have {_format.size(simulated)}.",
        f"Compare real runs: spanwise bench -- {' '.join(facts.recording.arguments[:1])} ...",
    )


def measured(peers: PeerComparison, own: str) -> Iterator[Advice]:
    """The allocator with the lowest peak RSS, if the program's own was replayed too."""
    rss = {row.name: row.peak_rss_bytes for row in peers.peers if row.peak_rss_bytes is not None}
    if own in rss:
        best = min(rss, key=lambda name: rss[name])
        yield Advice(
            "allocator",
            rss[own] - rss[best],
            PEAK,
            "measured",
            f"Replayed with real memory, {own} has a peak RSS of {_format.size(rss[own])} and"
            f" {best} {_format.size(rss[best])}.",
            f"Preload {best}, and compare real runs: spanwise bench -- PROGRAM.",
        )


def benched(runs: BenchResult) -> Iterator[Advice]:
    """The allocator under which real runs need least, if the whole interval is a saving."""
    (program, input_) = runs.cases[0]
    names = dict.fromkeys(row["allocator"] for row in runs)
    savings = {
        name: runs.saving(program, input_, allocator=name, stock="plain")
        for name in names
        if name != "plain"
    }
    known = {name: one for name, one in savings.items() if one is not None and one.low > 0}
    if known:
        best = max(known, key=lambda name: known[name].median)
        peaks = {
            name: median(runs.values(program, input_, name, "rss_bytes").values())
            for name in ("plain", best)
        }
        low, high = known[best].low, known[best].high
        yield Advice(
            "allocator",
            int(peaks["plain"] - peaks[best]),
            PEAK,
            "measured",
            f"In real runs the peak RSS is {_format.size(peaks['plain'])} as the program is today,"
            f" and {_format.size(peaks[best])} under {best}: {known[best].median:.1f} % less"
            f" ({low:.1f} to {high:.1f}).",
            f"Preload {best}.",
        )


# --- sizes ----------------------------------------------------------------------------------------


def _sizes(facts: AdviceFacts) -> Iterator[Advice]:
    """Requests just above a class: what slots of a size between would save, if spans are full."""
    objects = facts.objects
    slot, requested = objects.slot_bytes, objects.counts[1]
    found = []
    for size in np.unique(slot[slot > 0]).tolist():
        here = slot == size
        best = _best_slot(requested[here], size)
        if best is not None:
            found.append((best[1], size, best[0], np.flatnonzero(here)))
    found.sort(key=lambda one: (-one[0], one[1]))
    for saved, size, better, rows in found[:_CLASSES_MAX]:
        if saved >= facts.noise_bytes:
            yield _size_advice(facts, saved, size, better, rows)


def _best_slot(requested: Any, slot: int) -> tuple[int, int] | None:
    """The slot size below `slot`, a multiple of 8, that would save most, and the bytes it saves."""
    sizes, counts = np.unique(requested, return_counts=True)
    needed = -(-np.maximum(sizes, 1) // 8) * 8
    best: tuple[int, int] | None = None
    for candidate in np.unique(needed[needed < slot]).tolist():
        saved = int(counts[needed <= candidate].sum()) * (slot - candidate)
        if best is None or saved > best[1]:
            best = (candidate, saved)
    return best


def _size_advice(facts: AdviceFacts, saved: int, size: int, better: int, rows: Any) -> Advice:
    objects = facts.objects
    fits = rows[objects.counts[1][rows] <= better]
    sizes, counts = np.unique(objects.counts[1][fits], return_counts=True)
    common = sizes[np.argsort(-counts, kind="stable")[:2]]
    sites, site_counts = np.unique(objects.site[fits], return_counts=True)
    top = int(sites[site_counts.argmax()])
    place = facts.names([top])[top]
    waste = int((objects.counts[2] + objects.counts[3])[rows].sum())
    named = " and ".join(f"{one:,}" for one in sorted(common.tolist()))
    finding = (
        f"The {size:,}-byte class of {facts.table.name} has"
        f" {_format.share(waste, facts.peak.waste_bytes)} of its waste:"
        f" {_format.plural(len(fits), 'object')}, mostly of {named} bytes, mainly from {place}."
    )
    change = f"Add slots of {better:,} bytes"
    if better % _MALLOC_ALIGN:
        change += (
            f" to a pool or heap of their own (malloc aligns to {_MALLOC_ALIGN}), or shrink the"
            f" objects to {better // _MALLOC_ALIGN * _MALLOC_ALIGN:,} bytes"
        )
    else:
        change += " to the table: spanwise optimize finds all such classes"
    return Advice("size", saved, PEAK, "estimated", finding, f"{change}.")


# --- spans that few objects keep ------------------------------------------------------------------


def _pinning(facts: AdviceFacts) -> Iterator[Advice]:
    """Sites whose objects alone keep partial spans, at the peak and at the end."""
    for at in (PEAK, "end"):
        pinned = facts.recording.span_pinning(
            "site", facts.table, at, options=facts.options, progress=facts.step
        )
        rows = [
            row
            for row in pinned.array[:_SITES_MAX]
            if int(row["released_bytes"]) - int(row["requested_bytes"]) >= facts.noise_bytes
        ]
        labels = facts.names(int(row["group"]) for row in rows)
        for row in rows:
            site = int(row["group"])
            yield _pinning_advice(row, labels[site], at, _fills_its_class(facts.objects, site))


def _fills_its_class(objects: LiveObjects, site: int) -> bool:
    """Whether a site has most objects of its most common slot size at the peak."""
    mine = objects.site == site
    slots, counts = np.unique(objects.slot_bytes[mine], return_counts=True)
    if len(slots) == 0:
        return False
    here = objects.slot_bytes == slots[counts.argmax()]
    return bool(2 * (mine & here).sum() > here.sum())


def _pinning_advice(row: Any, place: str, at: str, alone: bool) -> Advice:
    """Advice for one group; `alone`: the freed neighbours came from the same site."""
    live, requested = int(row["live_objects"]), int(row["requested_bytes"])
    released = int(row["released_bytes"])
    change = (
        "Their freed neighbours came from the same place, so a pool does not help: free them"
        " together, group them by lifetime, or move them (defragmentation)."
        if alone
        else "Allocate them from a pool or an arena of their own, so that their spans are full."
    )
    return Advice(
        "pinning",
        released - requested,
        at,
        "estimated" if alone else "simulated",
        f"{_format.plural(live, 'object')} of {_format.size(requested)} from {place} keep"
        f" {_format.plural(int(row['sole_spans']), 'span')} alone, {_format.size(released)}.",
        change,
    )


# --- after the peak -------------------------------------------------------------------------------


def _retained(facts: AdviceFacts) -> Iterator[Advice]:
    """What the program's malloc keeps after the peak, and a trim or our heap would not.

    A program that has freed nearly everything at its end is only about to exit.
    """
    memory, end, own = facts.memory, facts.end, facts.recording.allocator
    least = _LIVE_AT_END * facts.recording.summary.peak_requested_bytes
    if memory is None or not facts.is_own_allocator or end.requested_bytes < least:
        return
    resident, pages = memory.end_malloc_bytes, memory.end_pages_bytes
    kept = (
        f"{own} keeps {_format.size(resident)} resident at the end for"
        f" {_format.size(end.requested_bytes)} requested"
    )
    if own == "glibc" and pages is not None:
        yield Advice(
            "trim",
            resident - pages,
            "end",
            "simulated",
            f"{kept}; live objects are in {_format.size(pages)} of pages.",
            "Call malloc_trim(0) when work pauses: it returns the pages without live objects.",
        )
    if facts.own_wasted >= 0:
        yield Advice(
            "retained",
            resident - (end.resident_bytes or 0),
            "end",
            "simulated",
            f"{kept}; spanwise would keep {_format.size(end.resident_bytes or 0)}.",
            f"Run it with spanwise's malloc (spanwise run -- PROGRAM){_RETURN.get(own, '')}.",
        )


_RETURN = {
    "jemalloc": ", or set MALLOC_CONF=dirty_decay_ms:0,background_thread:true",
    "tcmalloc": ", or call MallocExtension::ReleaseFreeMemory when work pauses",
}


def _caches(facts: AdviceFacts) -> Iterator[Advice]:
    """Free slots and spans in the simulated heap's thread caches at the peak.

    Who runs another allocator has none of them.
    """
    if facts.memory is not None and facts.is_own_allocator:
        return
    threads = facts.recording.summary.threads
    cached = 0 if facts.peak.resident is None else facts.peak.resident.cached_bytes
    if threads > 1:
        yield Advice(
            "caches",
            cached,
            PEAK,
            "simulated",
            f"The caches of {_format.plural(threads, 'thread')} have {_format.size(cached)}"
            " resident.",
            "Use fewer threads, or flush the caches of idle ones (sw_cache_trim).",
        )


def fitted_table(fitted: OptimizeResult) -> Iterator[Advice]:
    """A fitted table, if it holds on the recordings that judge it."""
    if fitted.holds:
        judged = "held-out recordings" if fitted.held_out else "the recording that it was fitted to"
        yield Advice(
            "table",
            fitted.saved_bytes,
            PEAK,
            "simulated",
            f"The table {fitted.table.name} saves {_format.share(fitted.saved_share, 1)} of the"
            f" resident bytes under {fitted.stock}, on {judged}.",
            "Build it: spanwise optimize FILE.swt -o TABLE.json, then spanwise build TABLE.json.",
        )


RULES: tuple[Callable[[AdviceFacts], Iterable[Advice]], ...] = (
    _allocator,
    _sizes,
    _pinning,
    _retained,
    _caches,
)
"""The rules that need nothing but the recording."""
