# SPDX-License-Identifier: Apache-2.0
"""The rules of advice: each detects one cause of waste."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.optimizer.result import OptimizeResult
from spanwise.recordings.live_sites import LiveObjects, distinct
from spanwise.recordings.programs import is_python_file
from spanwise.report.advice_facts import PEAK, Advice, AdviceFacts
from spanwise.report.python_heap import PLAIN
from spanwise.report.runtime_rules import arenas, buffers

if TYPE_CHECKING:
    from spanwise.measure.bench_result import BenchResult

_GROWS = re.compile(r"realloc|grow|reserve|append|push|extend|MakeRoom", re.IGNORECASE)
_SITES_MAX = 3
_CLASSES_MAX = 3
_MALLOC_ALIGN = 16
_SPREAD_LEAST = 1.5
"""Objects are spread if their pages are so many times their bytes."""
_SPREAD_SITES, _SPREAD_SHARE = 3, 0.1
"""The call sites that are named then: so many, with at least this share of the memory."""
_BUILD_APART = (
    "They are still referenced: drop those that are not needed any more, and make what lives long"
    " before what is temporary, or in a process of its own."
)
_REDIS_DEFRAGMENTS = (
    "Redis allocates them: a restart (after SAVE) packs them; CONFIG SET activedefrag yes is"
    " refused with the system's malloc"
)

# --- another allocator ----------------------------------------------------------------------------


def _allocator(facts: AdviceFacts) -> Iterator[Advice]:
    """Another allocator: the simulated peak of ours against the measured one of the program's."""
    memory, simulated, own = facts.own_memory, facts.resident_bytes, facts.recording.allocator
    if facts.plain_rss_bytes:
        plain, ours = facts.plain_rss_bytes, facts.spanwise_rss_bytes
        yield Advice(
            "allocator",
            plain - ours,
            PEAK,
            "simulated",
            f"The peak RSS of {PLAIN} is {_format.size(plain)}; with PYTHONMALLOC=malloc and"
            f" spanwise's malloc it would be {_format.size(ours)}.",
            _comparison(facts),
            against=PLAIN,
        )
    if memory is None or not facts.is_mostly_malloc:
        return
    yield Advice(
        "allocator",
        memory.malloc_bytes - simulated,
        PEAK,
        "simulated",
        f"{own} has {_format.size(memory.malloc_bytes)} resident where spanwise's malloc would"
        f" have {_format.size(simulated)}.",
        _comparison(facts),
    )


def _comparison(facts: AdviceFacts) -> str:
    """Say how to compare real runs."""
    run = f"Run it with spanwise's malloc: spanwise run --plain -- {facts.command()}."
    if _SERVERS.match(facts.program):
        return f"{run} Compare the RSS under your load."
    return f"{run} Compare first: {facts.compare()} (--ignore-output if its output varies)"


_SERVERS = re.compile(
    r"(redis|valkey|keydb)-server|memcached|nginx|httpd|apache2|haproxy|envoy|postgres|mysqld"
    r"|mariadbd|mongod|unbound|named|varnishd"
)
"""Programs that do not end by themselves."""


def _peaks(runs: BenchResult) -> dict[str, int]:
    """The median peak RSS of the program's runs under each allocator that ended well."""
    program, input_ = runs.cases[0]
    names = dict.fromkeys(row["allocator"] for row in runs)
    values = {name: runs.values(program, input_, name, "rss_bytes") for name in names}
    return {name: int(median(each.values())) for name, each in values.items() if each}


def has_peaks(runs: BenchResult) -> bool:
    """Whether the program's plain run, and one under another allocator, ended well."""
    peaks = _peaks(runs)
    return "plain" in peaks and len(peaks) > 1


def spread(runs: BenchResult) -> int:
    """The range of the peak RSS in the program's plain runs, bytes; smaller savings are noise."""
    program, input_ = runs.cases[0]
    values = runs.values(program, input_, "plain", "rss_bytes").values()
    return int(max(values) - min(values)) if values else 0


def real_runs(runs: BenchResult) -> str:
    """Say the peak RSS under each allocator, lowest first; "" if the plain program failed."""
    peaks = _peaks(runs)
    plain = peaks.pop("plain", None)
    if plain is None or not peaks:
        return ""
    others = ", ".join(
        f"{_format.size(size)} under {name}"
        for name, size in sorted(peaks.items(), key=lambda pair: pair[1])
    )
    return f"In real runs its peak RSS is {_format.size(plain)} as it is today, {others}."


def benched(facts: AdviceFacts, runs: BenchResult) -> Iterator[Advice]:
    """The allocator under which real runs need least, if the whole interval is a saving."""
    (program, input_), peaks = runs.cases[0], _peaks(runs)
    savings = {
        name: runs.saving(program, input_, allocator=name, stock="plain")
        for name in peaks
        if name != "plain"
    }
    known = {name: one for name, one in savings.items() if one is not None and one.low > 0}
    if known:
        best = max(known, key=lambda name: known[name].median)
        low, high = known[best].low, known[best].high
        yield Advice(
            "allocator",
            peaks["plain"] - peaks[best],
            PEAK,
            "measured",
            f"In real runs the peak RSS is {known[best].median:.1f} % less ({low:.1f} to"
            f" {high:.1f}) under {best} than as the program is today.",
            _preload(best, facts),
        )


def _preload(allocator: str, facts: AdviceFacts) -> str:
    """Say how to run the program under an installed allocator."""
    if allocator == "spanwise":
        return f"Run it so: spanwise run --plain -- {facts.command()}"
    library = _LIBRARIES.get(allocator, f"lib{allocator}.so")
    variable = "MALLOC_ARENA_MAX=1" if allocator == "one-arena" else f"LD_PRELOAD={library}"
    return f"Run it so: {variable} {facts.command()}"


_LIBRARIES = {
    "jemalloc": "libjemalloc.so.2",
    "mimalloc": "libmimalloc.so.2",
    "tcmalloc": "libtcmalloc_minimal.so.4",
}


# --- sizes ----------------------------------------------------------------------------------------


def _sizes(facts: AdviceFacts) -> Iterator[Advice]:
    """Requests just above a class: what slots of a size between would save, if spans are full."""
    if facts.manages:
        return  # the interpreter chooses the sizes
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
    """The slot size below `slot` that would save most, and the bytes it saves."""
    any_, aligned = (_best_multiple(requested, slot, step) for step in (8, _MALLOC_ALIGN))
    return aligned if aligned and any_ and 2 * aligned[1] >= any_[1] else any_


def _best_multiple(requested: Any, slot: int, step: int) -> tuple[int, int] | None:
    sizes, counts = np.unique(requested, return_counts=True)
    needed = -(-np.maximum(sizes, 1) // step) * step
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
        f"Under spanwise, {_format.plural(len(fits), 'object')}, mostly of {named} bytes and mainly"
        f" from {place}, take slots of {size:,} bytes: that class of {facts.table.name} has"
        f" {_format.share(waste, facts.peak.waste_bytes)} of the waste."
    )
    change = (
        f"Add slots of {better:,} bytes to the table: spanwise optimize finds all such classes."
    )
    if better % _MALLOC_ALIGN:
        smaller = better // _MALLOC_ALIGN * _MALLOC_ALIGN
        more, _ = facts.saving(PEAK, len(fits) * (size - smaller))
        change = (
            f"Allocate them from a pool with slots of {better:,} bytes; malloc cannot have such"
            f" slots, because it aligns to {_MALLOC_ALIGN}."
            + (
                f" If they can shrink to {smaller:,} bytes, that saves {_format.size(more)}."
                if smaller
                else ""
            )
        )
    saving, less = facts.saving(PEAK, saved)
    return Advice("size", saving, PEAK, "estimated", finding + less, change, facts.under)


# --- spans that few objects keep ------------------------------------------------------------------


def _pinning(facts: AdviceFacts) -> Iterator[Advice]:
    """Sites whose objects alone keep partial spans, at the peak and after it."""
    if facts.as_recorded:
        return  # users run neither this malloc nor spans
    moments = [(PEAK, PEAK)] if facts.keeps is not None else [(PEAK, PEAK), facts.later]
    for at, moment in moments:
        for row in facts.pinning(at).array[: 1 if facts.manages else _SITES_MAX]:
            if int(row["released_bytes"]) - int(row["requested_bytes"]) < facts.noise_bytes:
                continue
            site = int(row["group"])
            lasting = _fills_its_class(facts.objects, facts.same([site])[site])
            saved = facts.pool_saves(site, moment, lasting=lasting)
            if saved < facts.noise_bytes:
                break  # the next sites release less
            yield _pinning_advice(facts, row, saved, at, lasting)


def _fills_its_class(objects: LiveObjects, site: int) -> bool:
    """Whether a site has most objects of its most common slot size at the peak."""
    mine = objects.site == site
    slots, counts = np.unique(objects.slot_bytes[mine], return_counts=True)
    if len(slots) == 0:
        return False
    here = objects.slot_bytes == slots[counts.argmax()]
    return bool(2 * (mine & here).sum() > here.sum())


def _pinning_advice(facts: AdviceFacts, row: Any, saved: int, at: str, lasting: bool) -> Advice:
    """Advice for one group; `lasting`: only its objects that live on are to have a pool."""
    site = int(row["group"])
    place = facts.names([site])[site]
    live, requested = int(row["live_objects"]), int(row["requested_bytes"])
    released = int(row["released_bytes"])
    change = "Allocate them from a pool or an arena of their own, so that their spans are full."
    if lasting:
        change = (
            "A pool for this call site would not help, because the objects that it freed would be"
            " in the same pool: allocate those that live long in a function and a pool of their"
            " own."
        )
        if _GROWS.search(place):
            change += " If they are buffers that grow, reserve their final size."
    if facts.manages:
        change = _BUILD_APART
    if facts.is_redis:
        change = f"{_REDIS_DEFRAGMENTS}."
    saving, less = facts.saving(at, saved)
    return Advice(
        "pinning",
        saving,
        at,
        "simulated",
        f"{_format.plural(live, 'object')} ({_format.size(requested)}) from {place} are all that"
        f" is left in {_format.plural(int(row['sole_spans']), 'span')} of"
        f" {_format.size(released)}.{less}",
        change,
        facts.under,
    )


# --- pages that few objects keep ------------------------------------------------------------------


def _spread(facts: AdviceFacts) -> Iterator[Advice]:
    """Objects that live on, spread over pages that are otherwise free in the program's malloc."""
    kept = facts.keeps
    if kept is None or facts.python_heap is not None:
        return
    pages = min(kept.pages_bytes, kept.malloc_bytes)  # some pages may never have been written
    if pages < _SPREAD_LEAST * kept.requested_bytes:
        return
    objects = facts.later_objects
    sites, place = distinct(objects.site)
    held = np.bincount(place, objects.counts[4])  # their share of the simulated resident bytes
    order = np.argsort(-held, kind="stable")[:_SPREAD_SITES]
    labels = facts.names(sites[order].tolist())
    shares = [
        f"those of {labels[int(sites[i])]} keep {_format.share(int(held[i]), int(held.sum()))}"
        for i in order
        if held[i] >= _SPREAD_SHARE * held.sum()
    ]
    finding = (
        f"{_format.plural(len(objects.site), 'object')}"
        f" ({_format.size(kept.requested_bytes)} requested) are spread over"
        f" {_format.size(pages)} of pages"
    )
    change = (
        "Allocate those that live long from a pool or an arena of their own"
        if _fills_its_class(facts.objects, int(sites[order[0]]))
        else "Allocate them from a pool or an arena of their own"
    )
    if facts.manages:
        change = _BUILD_APART.removesuffix(".")
    if facts.is_redis:
        change = _REDIS_DEFRAGMENTS
    if facts.recording.allocator == "glibc" and _can_trim(facts):
        change += f", and call {_trim_call(facts)} when work pauses"
    if not (facts.manages or facts.is_redis):
        change += " (the peak may rise, because a pool does not share its free memory)"
    moment = facts.later[0]
    by = f"; of these, by simulation, {', '.join(shares)}." if shares else "."
    if facts.as_recorded:
        by += (
            f" {facts.recording.switched_off[0]}'s own allocator keeps memory for such objects too,"
            " but not the same bytes."
        )
    is_new = facts.manages or facts.is_redis  # a process that has none of the free memory
    yield Advice(
        "restart" if is_new else "pinning",
        (kept.malloc_bytes if is_new else pages) - kept.requested_bytes,
        moment,
        "estimated",
        finding + by,
        f"{change}. Call sites at that moment: spanwise ledger"
        f" {shlex.quote(facts.recording.name)} --sites --at {moment}",
        against=facts.against,
    )


# --- memory that holds no object ------------------------------------------------------------------


def _retained(facts: AdviceFacts) -> Iterator[Advice]:
    """What the program's malloc keeps, and a trim or our heap would not."""
    kept, own = facts.keeps, facts.recording.allocator
    if kept is None or facts.python_heap is not None:
        return
    at, _ = facts.later
    finding = (
        f"{own} keeps {_format.size(kept.malloc_bytes)} resident for"
        f" {_format.size(kept.requested_bytes)} requested"
    )
    trims = f"Call {_trim_call(facts)}" if own == "glibc" else _PURGE.get(own)
    if own == "jemalloc" and facts.is_redis:
        trims = "Run redis-cli MEMORY PURGE"
    if trims is not None and _can_trim(facts):
        simulated = own == "glibc" and facts.recording.summary.threads == 1
        yield Advice(
            "trim",
            kept.malloc_bytes - kept.pages_bytes,
            at,
            "simulated" if simulated else "estimated",
            f"{finding}; its objects are in {_format.size(kept.pages_bytes)} of pages.",
            f"{trims} when work pauses: it returns the pages without objects"
            + ("." if simulated else _ARENAS if own == "glibc" else _METADATA),
            against=facts.against,
        )
    memory = facts.own_memory
    if memory is None:
        return
    ours = facts.later_resident_bytes
    saved = kept.malloc_bytes - ours
    if own != "glibc" or saved > memory.malloc_bytes - facts.resident_bytes + facts.noise_bytes:
        yield Advice(
            "retained",
            saved,
            at,
            "simulated",
            f"{finding}; spanwise would keep {_format.size(ours)}.",
            f"Run it with spanwise's malloc: spanwise run --plain -- {facts.command()}",
        )


_ARENAS = "; arenas of threads keep the free part at their end."
_METADATA = ", but not the allocator's own data and what threads have cached."
_PURGE = {
    "jemalloc": 'Call mallctl("arena.4096.purge")',
    "mimalloc": "Call mi_collect(true)",
    "tcmalloc": "Call MallocExtension::ReleaseFreeMemory",
}
"""What returns the free pages of other allocators."""


def _can_trim(facts: AdviceFacts) -> bool:
    """Whether the program's owner can call functions of C; JavaScript and PHP cannot."""
    return not {"Node.js", "PHP"} & set(facts.recording.runtimes)


def _trim_call(facts: AdviceFacts) -> str:
    if is_python_file(facts.recording.executable):
        return "ctypes.CDLL(None).malloc_trim(0)"
    return "malloc_trim(0)"


def _caches(facts: AdviceFacts) -> Iterator[Advice]:
    """Free slots and spans in the simulated heap's thread caches at the peak."""
    if facts.as_recorded or (facts.memory is not None and facts.is_own_allocator):
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


def fitted_table(facts: AdviceFacts, fitted: OptimizeResult) -> Iterator[Advice]:
    """A fitted table, if it holds on the recordings that judge it."""
    if fitted.holds:
        judged = "held-out recordings" if fitted.held_out else "this recording"
        saving, less = facts.saving(PEAK, fitted.saved_bytes)
        yield Advice(
            "table",
            saving,
            PEAK,
            "simulated",
            f"The table {fitted.table.name} saves {_format.size(fitted.saved_bytes)}"
            f" ({_format.share(fitted.saved_share, 1)}) of the resident bytes under {fitted.stock},"
            f" on {judged}.{less}",
            f"Build it: spanwise optimize {shlex.quote(facts.recording.name)} -o TABLE.json, then"
            " spanwise build --table TABLE.json -o DIR. Real runs may differ by more than it saves:"
            " compare them with spanwise bench --allocator plain --allocator"
            " DIR/lib/libspanwise-malloc.so.",
            facts.under,
        )


RULES: tuple[Callable[[AdviceFacts], Iterable[Advice]], ...] = (
    _allocator,
    _sizes,
    buffers,
    arenas,
    _pinning,
    _spread,
    _retained,
    _caches,
)
"""The rules that need nothing but the recording."""
