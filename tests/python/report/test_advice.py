# SPDX-License-Identifier: Apache-2.0
"""Advice: what a program wastes and what to change."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise._lib import OPS_DTYPE, lib
from spanwise.heap.options import HeapOptions
from spanwise.measure.bench_result import ROW_FIELDS, VALUE_FIELDS, BenchResult
from spanwise.recordings import sources
from spanwise.recordings.names import FUNCTION_BASE
from spanwise.recordings.process_memory import read_memory
from spanwise.report.advice import NOTHING, AdviceList
from spanwise.report.advice_facts import Advice, AdviceFacts
from spanwise.report.verdict import verdict

from tests.python.helpers import needs_recorder, spanwise

MIB = 1 << 20


def allocations(sizes: list[int], sites: list[int] | None = None) -> np.ndarray:
    """Allocate one object of each size, a microsecond apart."""
    ops = np.zeros(len(sizes), OPS_DTYPE)
    ops["kind"] = lib.SW_OP_ALLOC
    ops["object"] = np.arange(len(sizes))
    ops["size"] = sizes
    ops["site"] = sites if sites is not None else 1
    ops["time_ns"] = np.arange(len(sizes)) * 1000
    return ops


def frees(objects: np.ndarray, after_ns: int) -> np.ndarray:
    """Free these objects, a microsecond apart."""
    ops = np.zeros(len(objects), OPS_DTYPE)
    ops["kind"] = lib.SW_OP_FREE
    ops["object"] = objects
    ops["time_ns"] = after_ns + np.arange(len(objects)) * 1000
    return ops


def said(found: AdviceList, name: str) -> str:
    """The texts of the findings with a name."""
    return "; ".join(text for each, text in found.findings if each == name)


def kinds(found: AdviceList) -> list[tuple[str, int]]:
    return [(one.kind, one.saves_bytes) for one in found]


def test_requests_just_above_a_class() -> None:
    """100,000 objects of 40 bytes have slots of 48; slots of 40 save 8 bytes each."""
    found = sw.Recording.from_ops(allocations([40] * 100_000)).advice()
    assert kinds(found) == [("size", 800_000)]
    (advice,) = found
    assert advice.certainty == "estimated"
    assert advice.finding.startswith("Under spanwise, 100,000 objects, mostly of 40 bytes and main")
    assert "take slots of 48 bytes: that class of c16 has" in advice.finding
    assert advice.change == (
        "Allocate them from a pool with slots of 40 bytes; malloc cannot have such slots, because"
        " it aligns to 16. If they can shrink to 32 bytes, that saves 1.5 MiB."
    )
    assert advice.title == "saves 781.2 KiB at the peak, under spanwise only (estimated)"


@needs_recorder()
@pytest.mark.parametrize("lines", [False, True])
def test_how_to_see_lines_of_python(tmp_path: Path, lines: bool) -> None:
    """Only where call sites are functions of the interpreter."""
    words = [sys.executable, "-c", "x = [str(i) for i in range(50_000)]"]
    found = sw.record(words, tmp_path / "a.swt", stacks=4, python_sites=lines).advice()
    notes = [text for name, text in found.findings if name == "note"]
    assert len(notes) == 2 - lines and notes[0].startswith("recorded with PYTHONMALLOC=malloc")
    assert lines or notes[1].startswith("its call sites are functions of the interpreter")
    for said in (found.verdict, *(text for _, text in found.findings)):
        assert " ".join(said.split()) in " ".join(repr(found).split())


@pytest.mark.parametrize(("size", "slot"), [(1040, 1040), (7217, 7232)])
def test_a_size_that_malloc_can_serve(size: int, slot: int) -> None:
    """A class of the next multiple of 16 saves the round-up of 20,000 objects.

    One of 7,224 bytes would save a little more, but malloc has none.
    """
    table = sw.SizeClassTable.named("c16")
    before = min(one for one in table.classes["size_bytes"].tolist() if one >= size)
    found = sw.Recording.from_ops(allocations([size] * 20_000)).advice()
    (advice,) = (one for one in found if one.kind == "size")
    assert advice.saves_bytes == 20_000 * (before - slot)
    assert advice.change.startswith(f"Add slots of {slot:,} bytes to the table")


def survivors(spans: int) -> tuple[np.ndarray, np.ndarray]:
    """Fill spans of 48-byte slots and free all but one object of each; those are of site 2.

    Returns the operations, and the rows of the objects that stay.
    """
    table = sw.SizeClassTable.named("c16")
    slots = next(int(row["slots"]) for row in table.classes if row["size_bytes"] == 48)
    count = slots * spans
    stays = np.arange(count) % slots == slots // 2
    ops = allocations([48] * count, np.where(stays, 2, 1).tolist())
    gone = frees(np.flatnonzero(~stays), count * 1000)
    return np.concatenate([ops, gone]), np.flatnonzero(stays)


def test_few_objects_that_keep_spans() -> None:
    ops, _ = survivors(400)
    found = sw.Recording.from_ops(ops).advice()
    advice = next(one for one in found if one.kind == "pinning" and one.at == "end")
    table = sw.SizeClassTable.named("c16")
    span_bytes = next(int(row["span_bytes"]) for row in table.classes if row["size_bytes"] == 48)
    # A span or two may still be a thread's current one, or be kept empty.
    assert abs(advice.saves_bytes - 400 * (span_bytes - 48)) <= 2 * span_bytes
    assert advice.finding.startswith(("400 objects", "399 objects", "398 objects"))
    assert "are all that is left in" in advice.finding and "pool or an arena" in advice.change
    assert advice.title.endswith("at the end, under spanwise only (simulated)")
    assert found[0] is advice


def test_a_pool_that_lowers_the_peak() -> None:
    """400 objects pin 3 MiB when 1 MiB more is allocated; the heap had as much resident before.

    With a pool, the spans of the others are empty by then, and the peak is the earlier one.
    """
    ops, _ = survivors(400)
    large = allocations([MIB])
    large["object"], large["time_ns"] = ops["object"].max() + 1, ops["time_ns"].max() + 1000
    recording = sw.Recording.from_ops(np.concatenate([ops, large]))
    before = recording.ledger(at="peak").resident_bytes
    peak = recording.ledger().peak_resident_bytes
    pinned = recording.span_pinning("site", at="peak-resident").array[0]
    assert before is not None and peak is not None
    assert int(pinned["released_bytes"]) > 3 * MIB and peak - before < 2 * MIB
    (found,) = (one for one in recording.advice() if one.kind == "pinning" and "peak" in one.at)
    assert abs(found.saves_bytes - (peak - before)) <= 32 * 1024  # spans of the pool


def one(kind: str, at: str = "end", under: str = "") -> Advice:
    return Advice(kind, MIB, at, "simulated", "", "", under)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([one("trim"), one("pinning", "peak-resident")], ""),
        ([one("trim"), one("pinning")], "Savings 1 and 2 add up."),
        ([one("size", under="s"), one("size", under="s"), one("allocator")],
         "Savings 1, 2 and 3 add up."),
        ([one("retained"), one("trim")],
         "Savings 1 and 2 may overlap: carry one out, then record again."),
        ([one("trim"), one("pinning"), one("retained")],
         "Savings 1 and 2 add up. Savings 1 and 3, 2 and 3 may overlap: carry one out, then record"
         " again."),
    ],
)  # fmt: skip
def test_which_savings_add_up(items: list[Advice], said: str) -> None:
    assert AdviceList("", tuple(items), "").overlap == said


@pytest.mark.parametrize("ends_clean", [False, True])
@pytest.mark.parametrize("pages", [8, 40])
def test_objects_spread_over_pages(tmp_path: Path, ends_clean: bool, pages: int) -> None:
    """400 objects are in 8 MiB of the pages that malloc keeps; no more than its 16 MiB count.

    If the program frees them before it ends, they are found when malloc keeps most.
    """
    ops, stay = survivors(400)
    kept = {"rss_kept_op": len(ops), "rss_kept_requested": 400 * 48, "rss_kept_pages": pages * MIB}
    last = frees(stay, 3 * len(ops) * 1000) if ends_clean else ops[:0]
    found = in_process(np.concatenate([ops, last]), tmp_path / "a.swt", **kept).advice()
    (advice,) = (one for one in found if one.kind == "pinning" and one.at == "0.010")
    held = min(pages, 16)
    assert advice.saves_bytes == held * MIB - 400 * 48
    assert advice.title == f"saves at most {held - 0.02:.1f} MiB at 0.010 s (estimated)"
    assert advice.finding.startswith(
        f"400 objects (18.8 KiB requested) are spread over {held}.0 MiB of pages; of these, by"
        " simulation, those of "
    )
    assert advice.finding.endswith(" keep 100.0 %.")
    assert advice.change == (
        "Allocate them from a pool or an arena of their own, and call malloc_trim(0) when work"
        " pauses (the peak may rise, because a pool does not share its free memory). Call sites at"
        " that moment: spanwise ledger a.swt --sites --at 0.010"
    )


def test_objects_that_are_not_spread(tmp_path: Path) -> None:
    """Nor if they fill two thirds of their pages."""
    ops, _ = survivors(400)
    kept = {"rss_kept_op": len(ops), "rss_kept_requested": 8 * MIB, "rss_kept_pages": 12 * MIB}
    found = in_process(ops, tmp_path / "a.swt", **kept).advice()
    assert [one.saves_bytes for one in found if one.at == "0.010" and one.kind == "pinning"] == [
        4 * MIB
    ]
    kept["rss_kept_pages"] -= 1
    found = in_process(ops, tmp_path / "b.swt", **kept).advice()
    assert not [one for one in found if one.at == "0.010" and one.kind == "pinning"]


def test_objects_whose_neighbours_came_from_the_same_site() -> None:
    """A pool would have had the same holes."""
    count = 100_000
    ops = allocations([48] * count)
    gone = frees(np.flatnonzero(np.arange(count) % 100 != 0), count * 1000)
    found = sw.Recording.from_ops(np.concatenate([ops, gone])).advice()
    (advice,) = (one for one in found if one.kind == "pinning" and one.at == "end")
    assert advice.change.startswith("A pool for this call site would not help")


def test_nothing_to_change() -> None:
    found = sw.Recording.from_ops(allocations([64] * 1000)).advice()
    assert len(found) == 0
    assert str(found).endswith(f"\n{NOTHING}")
    empty = sw.Recording.from_ops(np.zeros(0, OPS_DTYPE)).advice()
    assert "allocated nothing" in empty.verdict


PARTS = {
    "rss_peak": 30 * MIB,
    "rss_ns": 1000,
    "rss_malloc": 20 * MIB,
    "rss_mapped": 2 * MIB,
    "rss_data": MIB,
    "rss_file": 4 * MIB,
    "rss_recorder": 3 * MIB,
    "rss_end_malloc": 15 * MIB,
    "rss_kept_ns": 10_239_000,
    "rss_kept_op": 10_240,
    "rss_kept_malloc": 16 * MIB,
    "rss_kept_requested": 10 * MIB,
    "rss_kept_pages": 12 * MIB,
}
"""A process whose malloc had 20 MiB resident, and then 16 with objects in 12."""


def in_process(
    ops: np.ndarray,
    path: Path,
    sites: Sequence[tuple[int, ...]] = (),
    program: str = "app",
    /,
    **parts: int | str,
) -> sw.Recording:
    values = {"program": f"/opt/{program}", **PARTS, **parts}
    meta = [(name, str(value)) for name, value in values.items()]
    sources.write_ops(path, iter([ops]), meta, sites)
    return sw.Recording.open(path)


def test_thread_caches_are_those_of_our_malloc(tmp_path: Path) -> None:
    """Each of 50 threads holds spans of 20 classes for one object each."""
    ops = allocations([16 * (1 + i % 20) for i in range(1000)])
    ops["thread"] = np.arange(1000) // 20
    recording = sw.Recording.from_ops(ops)
    (advice,) = (one for one in recording.advice() if one.kind == "caches")
    resident = recording.ledger("c16").resident
    assert resident is not None and advice.saves_bytes == resident.cached_bytes > MIB
    assert "The caches of 50 threads" in advice.finding
    found = {one.kind: one for one in in_process(ops, tmp_path / "a.swt").advice()}
    assert "caches" not in found
    assert found["trim"].certainty == "estimated"  # threads have arenas that it does not trim
    assert found["trim"].change.endswith("arenas of threads keep the free part at their end.")


@pytest.mark.parametrize(
    ("program", "change"),
    [("app", 'Call mallctl("arena.4096.purge")'), ("redis-server", "Run redis-cli MEMORY PURGE")],
)
def test_what_returns_the_pages_of_jemalloc(tmp_path: Path, program: str, change: str) -> None:
    """Of 16 MiB 12 have objects."""
    ops = allocations([1024] * 10_240)
    meta = [("program", f"/opt/{program}"), *((name, str(value)) for name, value in PARTS.items())]
    library = sources.Module(1 << 30, 2 << 30, 0, "/usr/lib/libjemalloc.so.2", "")
    sources.write_ops(tmp_path / "a.swt", iter([ops]), meta, modules=[library])
    found = sw.Recording.open(tmp_path / "a.swt").advice()
    (trim,) = (one for one in found if one.kind == "trim")
    assert (trim.saves_bytes, trim.certainty) == (4 * MIB, "estimated")
    assert trim.change.startswith(f"{change} when work pauses")


SPREAD = {"rss_kept_pages": 15 * MIB, "rss_kept_requested": 5 * MIB}
"""5 MiB of objects are spread over 15 of 16 MiB."""


@pytest.mark.parametrize(
    ("program", "kinds_", "change"),
    [
        ("app", ["pinning", "trim"], "allocate those that live long in a function"),
        ("redis-server", ["restart", "trim"], "Redis allocates them: a restart"),
        ("node", ["restart"], "They are still referenced: drop those that are not needed"),
    ],
)
def test_advice_is_what_the_programs_owner_can_do(
    tmp_path: Path, program: str, kinds_: list[str], change: str
) -> None:
    """JavaScript cannot call malloc_trim, and Redis chooses the places of its strings.

    A new process has none of the 11 MiB that 16 have more than 5; a pool none of 10 in pages.
    """
    ops = allocations([1024] * 10_240)
    found = in_process(ops, tmp_path / "a.swt", (), program, **SPREAD).advice()
    later = [one for one in found if one.at == "0.010"]
    assert [one.kind for one in later if one.kind != "retained"] == kinds_
    saved = 10 * MIB if program == "app" else 11 * MIB
    assert (later[0].saves_bytes, later[-1].under) == (saved, "")
    assert ("malloc_trim" in str(found)) == (program != "node")
    assert change in later[0].change or program == "app"


def test_advice_under_a_switch_that_users_do_not_set(tmp_path: Path) -> None:
    """USE_ZEND_ALLOC=0: what glibc keeps later is said to be against such a run."""
    ops = allocations([1024] * 10_240)
    parts = {**SPREAD, "rss_kept_requested": 4 * MIB}
    found = in_process(ops, tmp_path / "b.swt", (), "php", **parts).advice()
    (advice,) = found
    against = "against a run with USE_ZEND_ALLOC=0"
    assert advice.title == f"saves about 12.0 MiB at 0.010 s, {against} (estimated)"
    assert "PHP's own allocator keeps memory for such objects too" in advice.finding
    assert "malloc_trim" not in str(found)  # PHP cannot call it
    assert found.verdict.startswith(
        "At 0.010 s, php had 16.0 MiB resident in glibc's malloc (with USE_ZEND_ALLOC=0) for 4.0"
    )
    assert said(found, "note").startswith(
        "recorded with USE_ZEND_ALLOC=0: all figures are against such a run, and runs without"
    )


def pinned_arenas() -> np.ndarray:
    """Fill four arenas of CPython with blocks of 512 bytes, and free all but the first of each.

    A pool of 16 KiB has 31 of them, an arena 63 pools, so 1,953 blocks. Those that stay are of site
    2. At 100 ms, when nothing has happened for long, the program allocates once more.
    """
    count = 4 * 1953
    stays = np.arange(count) % 1953 == 0
    gone = frees(np.flatnonzero(~stays), count * 1000)
    last = allocations([MIB])
    last["object"], last["time_ns"] = count, 100_000_000
    made = allocations([512] * count, np.where(stays, 2, 1).tolist())
    return np.concatenate([made, gone, last])


ARENA = 63 * 16384
"""Bytes of an arena with pools of 31 blocks, which have 4 pages."""
PYTHON = {"pythonmalloc": 1, "rss_peak_op": 7812, "rss_peak_requested": 7812 * 512}
PYTHON |= {"rss_peak": 15 * MIB, "rss_malloc": 5 * MIB}


def test_arenas_of_cpython(tmp_path: Path) -> None:
    """Four blocks keep four arenas; without them one is left, which CPython keeps.

    The four are in one page then. The peak RSS of plain python3 has arenas in place of chunks of
    528 bytes.
    """
    recording = in_process(pinned_arenas(), tmp_path / "a.swt", (), "python3", **PYTHON)
    found = recording.advice()
    heap = found.python_heap
    assert heap is not None and heap.sites[0][:3] == (2, 4, 2048)
    assert (heap.arena_bytes, heap.resident_bytes) == (4 * MIB, 4 * ARENA)
    assert (heap.blocks, heap.requested_bytes, heap.op) == (4, 2048, 7812 + 7808)
    assert (heap.time_ns, heap.until_ns) == (15_619_000, 100_000_000)
    assert heap.saved_bytes == 4 * ARENA - ARENA - 4096
    assert heap.peak_resident_bytes == 4 * ARENA and heap.peak_requested_bytes == 7812 * 512
    assert heap.peak_rss_bytes == 12 * MIB - 7812 * 528 + 4 * ARENA
    assert found.verdict.startswith(
        "CPython's own allocator, as in plain python3, keeps 3.9 MiB in arenas for 2.0 KiB in"
        " blocks at 0.016 s, for 84.4 ms (by simulation); 4 blocks from "
    )
    facts = AdviceFacts(recording, sw.SizeClassTable.c16(), HeapOptions(), None)
    assert verdict(facts, is_later=False).startswith("By simulation, plain python3 has a peak RSS")
    (advice,) = (one for one in found if one.kind == "arenas")
    assert advice.title == "saves 2.9 MiB at 0.016 s, against plain python3 (simulated)"
    assert "without them 1012.0 KiB would be left of 3.9 MiB" in advice.finding
    assert not {one.kind for one in found} & {"trim", "pinning", "restart", "retained"}
    assert "recorded with PYTHONMALLOC=malloc: peak RSS 12.0 MiB." in said(found, "note")
    assert found.to_dict()["python_heap"]["saved_bytes"] == heap.saved_bytes


def test_arenas_that_are_full(tmp_path: Path) -> None:
    """7,812 blocks of 512 bytes in four arenas: what pools have besides is little."""
    ops = pinned_arenas()
    recording = in_process(ops[[*range(7812), -1]], tmp_path / "a.swt", (), "python3", **PYTHON)
    found = recording.advice()
    assert found.python_heap is not None and found.python_heap.sites == ()
    assert found.verdict == (
        "By simulation, plain python3 has a peak RSS of about 12.0 MiB, at most 3.9 MiB in arenas"
        " for 3.8 MiB in blocks: 126.0 KiB (3.1 %) is waste."
    )
    assert "arenas" not in {one.kind for one in found}


def test_slots_of_spanwise_only_where_spanwise_saves(tmp_path: Path) -> None:
    """Slots of 40 bytes would save 0.8 MB under spanwise, which needs more than glibc or less."""
    ops = allocations([40] * 100_000)
    words = {"rss_kept_malloc": 4 * MIB, "rss_kept_requested": 4 * MIB, "rss_kept_op": 100_000}
    for malloc, expected in ((4 * MIB, set()), (8 * MIB, {"allocator", "size"})):
        parts = {"rss_malloc": malloc, "rss_peak": malloc + 6 * MIB, "rss_mapped": 0}
        found = in_process(ops, tmp_path / f"{malloc}.swt", **words, **parts).advice()
        assert {one.kind for one in found} == expected


def test_why_there_is_no_advice(tmp_path: Path) -> None:
    ops = allocations([1024] * 1024)
    few = {"rss_malloc": MIB, "rss_mapped": 18 * MIB, "rss_peak": 25 * MIB, "rss_kept_malloc": 0}
    found = in_process(ops, tmp_path / "a.swt", **few).advice()
    nothing = "There is nothing to change in malloc, which has 5.0 % of the private memory."
    assert str(found).endswith(f"\n{nothing}")
    assert not said(found, "held by") and not said(found, "simulated")
    assert found.verdict == (
        "At its peak RSS of 22.0 MiB, at 0.000 s, app had 18.0 MiB in memory that it mapped itself,"
        " and 1.0 MiB resident in glibc's malloc (5.0 % of its private memory), which alone is"
        " recorded."
    )
    php = in_process(ops, tmp_path / "php.swt", (), "php", arg="/opt/php", **few).advice()
    assert "18.0 MiB in memory that it mapped itself, most of it PHP's own heap" in php.verdict
    assert php.nothing == (
        f"{nothing} To see what fills PHP's own heap, record it in malloc: USE_ZEND_ALLOC=0"
        " spanwise record -o php-malloc.swt -- /opt/php"
    )
    same = {"rss_malloc": MIB, "rss_mapped": 0, "rss_data": 0, "rss_peak": 5 * MIB}
    same |= {"rss_kept_malloc": 0, "pythonmalloc": 1}
    own = in_process(ops, tmp_path / "b.swt", (), "python3", **same)
    assert own.advice().nothing.startswith("No change was found that helps plain python3.")


def test_no_saving_at_the_peak_of_what_malloc_does_not_have(tmp_path: Path) -> None:
    """Of 30 MiB private memory a third is not malloc's: its peak is not the process's."""
    ops = allocations([1024] * 10_240)
    found = in_process(ops, tmp_path / "a.swt", rss_mapped=10 * MIB).advice()
    assert "under spanwise's malloc" in said(found, "simulated")
    assert said(found, "recorded") == "64.5 % of the private memory"
    assert "allocator" not in {one.kind for one in found}


@pytest.fixture
def measured(tmp_path: Path) -> sw.Recording:
    """10 MiB requested in a process."""
    return in_process(allocations([1024] * 10_240), tmp_path / "a.swt")


def test_the_verdict_names_the_programs_own_allocator(measured: sw.Recording) -> None:
    found = measured.advice()
    resident = measured.ledger("c16").peak_resident_bytes
    assert resident is not None
    assert found.verdict.startswith(
        "At its peak RSS of 27.0 MiB, app had 20.0 MiB resident in glibc's malloc for 10.0 MiB"
        " requested: 10.0 MiB (50.0 %) was waste, 160.0 KiB of it headers"  # chunks of 1,040 bytes
    )
    assert said(found, "recorded") == "87.0 % of the private memory"
    by_kind = {one.kind: one for one in found}
    assert by_kind["allocator"].saves_bytes == 20 * MIB - resident
    assert "retained" not in by_kind  # the same change saves more at the peak
    assert by_kind["trim"].saves_bytes == 4 * MIB
    assert "ARENA" not in by_kind["trim"].change  # one thread
    assert by_kind["trim"].title == "saves 4.0 MiB at 0.010 s (simulated)"
    assert "malloc_trim" in by_kind["trim"].change
    assert not found.overlap  # each is of another moment


def test_the_verdict_names_who_requested_most(tmp_path: Path) -> None:
    """Of 10 MiB one site has 6, another 3; those of less than a tenth are not named."""
    ops = allocations([1024] * 10_240, [1] * 6_144 + [2] * 3_072 + [3] * 1_000 + [4] * 24)
    sites = ((0x1111,), (0x2222,), (0x3333,), (0x4444,))
    found = in_process(ops, tmp_path / "a.swt", sites).advice()
    assert said(found, "held by") == (
        "6.0 MiB in 6,144 objects of 1.0 KiB: 0x1111; 3.0 MiB in 3,072 objects of 1.0 KiB: 0x2222"
    )
    text = str(found)
    assert "\n  held by   6.0 MiB in 6,144 objects of 1.0 KiB: 0x1111\n            3.0 " in text


def test_buffers_of_node_are_kept_by_their_slices(tmp_path: Path) -> None:
    """Of 10 MiB, 400 objects are of the 16 KiB of which zlib's results are slices."""
    name = "node::NodeArrayBufferAllocator::AllocateUninitialized"
    function = sources.Module(FUNCTION_BASE, FUNCTION_BASE + 1, 0, name, "")
    meta = [("program", "/opt/node"), *((key, str(value)) for key, value in PARTS.items())]
    ops, sites = iter([allocations([16_384] * 400 + [1024] * 3_840)]), ((FUNCTION_BASE,),)
    sources.write_ops(tmp_path / "a.swt", ops, meta, sites, modules=[function])
    found = sw.Recording.open(tmp_path / "a.swt").advice()
    assert said(found, "held by") == f"10.0 MiB in 4,240 objects of 2.4 KiB: {name}"
    (buffers,) = (one for one in found if one.kind == "buffers")
    assert buffers.saves_bytes == 400 * 16_384
    assert buffers.title == "saves at most 6.2 MiB at the peak (estimated)"
    assert "400 Buffers of 8 or 16 KiB" in buffers.finding and "Buffer.from" in buffers.change
    other = in_process(allocations([16_384] * 640), tmp_path / "b.swt").advice()
    assert "buffers" not in {one.kind for one in other}


def test_the_verdict_is_of_one_moment(tmp_path: Path) -> None:
    """Of 10 MiB at most, 2,048 objects, 2 MiB, are live when the RSS is at its peak of 20 MiB."""
    ops = allocations([1024] * 10_240, [1] * 2_048 + [2] * 8_192)
    parts = {"rss_peak_requested": 2 * MIB, "rss_peak_op": 2_048}
    found = in_process(ops, tmp_path / "a.swt", ((0x1111,), (0x2222,)), **parts).advice()
    assert (
        "for 2.0 MiB requested: 18.0 MiB (90.0 %) was waste, 32.0 KiB of it headers"
        in found.verdict
    )
    assert said(found, "held by") == "2.0 MiB in 2,048 objects of 1.0 KiB: 0x1111"


@pytest.mark.parametrize(
    ("until_ms", "when"),
    [(9, "for 4.0 ms from 0.005 s on"), (11, "in the last 5.2 ms")],
)
def test_how_long_most_is_wasted(tmp_path: Path, until_ms: int, when: str) -> None:
    parts = {"rss_kept_from": 5_000_000, "rss_kept_until": until_ms * 1_000_000}
    parts["rss_kept_requested"] = 3 * MIB
    found = in_process(allocations([1024] * 10_240), tmp_path / "a.swt", **parts).advice()
    assert said(found, "most waste") == (
        f"13.0 MiB at 0.010 s: 16.0 MiB resident for 3.0 MiB requested; about as much {when}"
    )
    later = in_process(
        allocations([1024] * 10_240), tmp_path / "b.swt", rss_kept_pages=15 * MIB, **parts
    )
    assert later.advice().verdict.startswith(f"At 0.010 s (about as much {when}), app had 16.0")


def test_the_verdict_says_what_is_kept_later(tmp_path: Path) -> None:
    """3 MiB of objects and 13 of waste come after 10 of both.

    The first sentence is of the moment at which most is saved: 12 MiB later, with 15 in pages.
    """
    words = {"rss_kept_requested": 3 * MIB, "rss_kept_pages": 15 * MIB}
    found = in_process(allocations([1024] * 10_240), tmp_path / "a.swt", **words).advice()
    assert found.verdict == (
        "At 0.010 s, app had 16.0 MiB resident in glibc's malloc for 3.0 MiB requested: 13.0 MiB"
        " (81.2 %) was waste."
    )
    assert said(found, "at peak").startswith(
        "At its peak RSS of 27.0 MiB, app had 20.0 MiB resident in glibc's malloc for 10.0 MiB"
    )
    assert not said(found, "most waste")
    (trim,) = (one for one in found if one.kind == "trim")
    assert trim.saves_bytes == MIB
    later = in_process(allocations([1024] * 10_240), tmp_path / "c.swt", rss_kept_malloc=24 * MIB)
    (retained,) = (one for one in later.advice() if one.kind == "retained")
    assert str(later.advice()).endswith("may overlap: carry one out, then record again.")
    ours = later.ledger("c16", "end").resident_bytes or 0
    assert retained.saves_bytes == 24 * MIB - ours
    assert retained.finding.endswith(f" At the peak it saves {(20 * MIB - ours) / MIB:.1f} MiB.")
    assert "allocator" not in {one.kind for one in later.advice()}
    mostly_mapped = in_process(
        allocations([1024] * 10_240), tmp_path / "b.swt", rss_mapped=30 * MIB, **words
    ).advice()
    assert not said(mostly_mapped, "most waste")
    assert not {one.kind for one in mostly_mapped} & {"trim", "retained"}


def test_what_was_never_written_is_no_waste_and_no_saving(tmp_path: Path) -> None:
    """Of 10 MiB requested 4 are not resident, in either heap; the program's has 20."""
    ops = allocations([1024] * 10_240)
    found = in_process(ops, tmp_path / "a.swt", rss_untouched=4 * MIB).advice()
    assert (
        "malloc for 10.0 MiB requested, 4.0 MiB of it never written: 14.0 MiB (70.0 %) was waste,"
        " 160.0 KiB of it headers" in found.verdict
    )
    resident = in_process(ops, tmp_path / "b.swt").ledger("c16").peak_resident_bytes
    assert resident is not None
    (advice,) = (one for one in found if one.kind == "allocator")
    assert advice.saves_bytes == 20 * MIB - (resident - 4 * MIB)


def test_the_page_has_the_memory_of_the_process(measured: sw.Recording, tmp_path: Path) -> None:
    measured.to_html(tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    row = r">27\.0 MiB</td><td[^>]*>peak RSS of the process<"
    assert re.search(row, text)
    assert re.search(r">20\.0 MiB</td><td[^>]*>private memory from malloc, recorded<", text)


def test_the_page_draws_the_programs_own_allocator(tmp_path: Path) -> None:
    """10 MiB are requested in 10.239 ms; 10 MiB of the RSS, 2, 1, 4 and 3, are others'."""
    series = " ".join(f"{ms}000000:{size * MIB}" for ms, size in ((0, 10), (5, 20), (10, 30)))
    parts = {**PARTS, "rss_series": series}
    meta = [("program", "/opt/app"), *((name, str(value)) for name, value in parts.items())]
    sources.write_ops(tmp_path / "a.swt", iter([allocations([1024] * 10_240)]), meta)
    recording = sw.Recording.open(tmp_path / "a.swt")
    assert recording.memory is not None
    assert recording.memory.series == ((0, 0), (5_000_000, 10 * MIB), (10_000_000, 20 * MIB))
    recording.to_html(tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    points, _ = re.findall(r'<polyline[^>]*points="([^"]*)"[^>]*class="own"', text)
    assert len(points.split()[::2]) == 3
    assert "The solid line is glibc&#x27;s malloc, measured as the program ran." in text
    assert read_memory([*meta, ("rss_series", "5:x")]).series == ()  # type: ignore[union-attr]


def test_memory_that_was_not_recorded_is_said_first(tmp_path: Path) -> None:
    values = {"peak": 100, "ns": 0, "malloc": 2, "mapped": 90, "data": 0, "file": 8}
    values |= {"recorder": 0, "end_malloc": 2}
    meta = [("program", "/opt/php8.2")]
    meta += [(f"rss_{name}", str(value * MIB)) for name, value in values.items()]
    sources.write_ops(tmp_path / "a.swt", iter([allocations([1024] * 1024)]), meta)
    found = sw.Recording.open(tmp_path / "a.swt").advice()
    assert found.remark.startswith("only 2.0 MiB of the 92.0 MiB private memory of php8.2 came")
    assert "Only 2.0 MiB of the 92.0 MiB private" in str(found)


def runs_of(**peaks: list[int]) -> BenchResult:
    """Runs of one program, a round per peak in MiB."""
    empty = dict.fromkeys((*VALUE_FIELDS, *ROW_FIELDS))
    return BenchResult(
        {
            **empty,
            "program": "app",
            "input": "",
            "allocator": name,
            "round": i,
            "rss_bytes": size * MIB,
        }
        for name, sizes in peaks.items()
        for i, size in enumerate(sizes)
    )


def test_real_runs_replace_the_simulated_comparison(measured: sw.Recording) -> None:
    """Of 100 MiB in each round mimalloc saves 10 to 12 %; jemalloc saves in some rounds only."""
    runs = runs_of(plain=[100] * 5, mimalloc=[90, 89, 88, 89, 90], jemalloc=[80, 101, 80, 102, 80])
    advice = measured.advice(runs=runs)
    found = [one for one in advice if one.kind == "allocator"]
    assert [(one.certainty, one.saves_bytes) for one in found] == [("measured", 11 * MIB)]
    assert "11.0 % less (10.0 to 12.0) under mimalloc than" in found[0].finding
    assert said(advice, "runs") == (
        "In real runs its peak RSS is 100.0 MiB as it is today, 80.0 MiB under jemalloc, 89.0 MiB"
        " under mimalloc."
    )
    one = measured.advice(runs=runs_of(**{"plain": [100] * 5, "one-arena": [70] * 5}))
    (arena,) = (each for each in one if each.kind == "allocator")
    assert arena.change == "Run it so: MALLOC_ARENA_MAX=1 app"
    failed = measured.advice(runs=runs_of(plain=[100] * 5))  # no other run ended well
    assert [one.certainty for one in failed if one.kind == "allocator"] == ["simulated"]
    # Of what is saved at the peak, savings within the range of the plain runs are noise.
    noisy = measured.advice(runs=runs_of(plain=[90, 130, 100, 100, 100], mimalloc=[80] * 5))
    assert [one.at for one in noisy if one.at == "peak-resident"] == []
    lost = measured.advice(runs=runs_of(plain=[100] * 5, mimalloc=[101] * 5))
    assert [one for one in lost if one.kind == "allocator"] == []
    assert said(lost, "runs").endswith("100.0 MiB as it is today, 101.0 MiB under mimalloc.")


def test_a_fitted_table() -> None:
    recording = sw.Recording.from_ops(allocations([1040] * 20_000))
    fitted = sw.optimize(recording, folds=0)
    assert fitted.holds
    found = recording.advice(fitted=fitted)
    assert ("table", fitted.saved_bytes) in kinds(found)


def test_the_command(measured: sw.Recording, tmp_path: Path) -> None:
    done = spanwise("advise", tmp_path / "a.swt")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{measured.advice()}\n"
    value = json.loads(spanwise("advise", tmp_path / "a.swt", "--json").stdout)
    assert value == measured.advice().to_dict()
    assert [one["saves_bytes"] for one in value["advice"]] == sorted(
        (one["saves_bytes"] for one in value["advice"]), reverse=True
    )
