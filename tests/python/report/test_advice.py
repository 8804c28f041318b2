# SPDX-License-Identifier: Apache-2.0
"""Advice: what a program wastes and what to change."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise._lib import OPS_DTYPE
from spanwise.heap.options import HeapOptions
from spanwise.recordings import sources
from spanwise.report.advice import NOTHING, AdviceList
from spanwise.report.advice_facts import Advice, AdviceFacts
from spanwise.report.verdict import verdict

from tests.python.helpers import needs_recorder
from tests.python.report.programs import MIB, PARTS, allocations, frees, in_process, said


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
    for each in (found.verdict, *(text for _, text in found.findings)):
        assert " ".join(each.split()) in " ".join(repr(found).split())


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
    nothing = "Nothing is advised for malloc, which has only 5.0 % of the private memory."
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


def test_a_fitted_table() -> None:
    recording = sw.Recording.from_ops(allocations([1040] * 20_000))
    fitted = sw.optimize(recording, folds=0)
    assert fitted.holds
    found = recording.advice(fitted=fitted)
    assert ("table", fitted.saved_bytes) in kinds(found)
