# SPDX-License-Identifier: Apache-2.0
"""Counts: lifetimes, site groups, sizes, threads, stops of a pass, and objects that pin spans."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from numpy.typing import NDArray
from spanwise import _lib, plots
from spanwise.__main__ import main
from spanwise.recordings.live_sites import slots_of
from spanwise.recordings.names import PYTHON_BASE, FrameNames, short_line
from spanwise.recordings.simulate import ops_until
from spanwise.recordings.sites import Site
from spanwise.recordings.sources import Batch, Module
from spanwise.recordings.span_pinning import GROUPS, NOT_FREED
from spanwise.recordings.summary import count_sites, count_sizes, count_threads

from tests.python.helpers import (
    ALLOC,
    FREE,
    REALLOC,
    compiled,
    make_ops,
    needs_recorder,
    random_ops,
)

EDGE = 1 << 16  # sizes below it are counted in a table, others one by one


def block(*rows: tuple[int, int, int, int]) -> NDArray[np.void]:
    """Operations of (kind, size, thread, site)."""
    ops = np.zeros(len(rows), sw.OPS_DTYPE)
    for i, (kind, size, thread, site) in enumerate(rows):
        ops[i]["kind"], ops[i]["size"], ops[i]["thread"], ops[i]["site"] = kind, size, thread, site
    return ops


def two_blocks() -> Iterator[NDArray[np.void]]:
    yield block(
        (ALLOC, 0, 0, 2),
        (ALLOC, EDGE - 1, 2, 0),
        (ALLOC, EDGE, 2, 5),
        (FREE, 77, 0, 9),
        (REALLOC, EDGE, 0, 2),
        (ALLOC, 100, 0, 2),
    )
    yield block((ALLOC, EDGE, 4, 7), (REALLOC, 100, 4, 7), (FREE, 0, 2, 0), (ALLOC, 9 * EDGE, 4, 5))


def test_sizes() -> None:
    """Of allocations and reallocations; a free asks for nothing."""
    assert count_sizes(two_blocks()).tolist() == [
        (0, 1, 0),
        (100, 2, 200),
        (EDGE - 1, 1, EDGE - 1),
        (EDGE, 3, 3 * EDGE),
        (9 * EDGE, 1, 9 * EDGE),
    ]


def test_threads() -> None:
    """thread, operations, allocations, frees, reallocations, bytes of allocations."""
    assert count_threads(two_blocks()).tolist() == [
        (0, 4, 2, 1, 1, 100),
        (2, 3, 2, 1, 0, 2 * EDGE - 1),
        (4, 3, 2, 0, 1, 10 * EDGE),
    ]


def test_sites() -> None:
    """Of allocations alone."""
    assert count_sites(two_blocks()) == {
        0: (1, EDGE - 1),
        2: (2, 100),
        5: (2, 10 * EDGE),
        7: (1, EDGE),
    }


def test_frames_are_named_by_their_file_and_the_address_in_it() -> None:
    modules = [
        Module(start=0x1000, end=0x2000, bias=0x800, path="/bin/a", build_id=""),
        Module(start=0x2000, end=0x3000, bias=0x2000, path="/lib/b", build_id=""),
    ]
    names = FrameNames(modules)
    assert names.name(0x1000) == "/bin/a+0x800"
    assert names.name(0x1FFF) == "/bin/a+0x17ff"
    assert names.name(0x2000) == "/lib/b+0x0"
    assert names.name(0x3000) == "0x3000"
    assert names.name(0xFFF) == "0xfff"


def test_lines_of_python_are_named_by_function_file_and_line() -> None:
    """Two functions of a million lines each; a file's name may have any character."""
    first, second = PYTHON_BASE + (1 << 20), PYTHON_BASE + (2 << 20)
    paths = "load\n/app/json/a (1).py", "<module>\n<string>"
    names = FrameNames(
        Module(start, start + (1 << 20), start, path, "")
        for start, path in zip((first, second), paths, strict=True)
    )
    frame = names.name(first + 12)
    assert frame == "python: load (/app/json/a (1).py:12)"
    assert short_line(frame) == "load (json/a (1).py:12)"
    assert names.name(second) == "python: <module> (<string>:0)"
    assert short_line(names.name(second + 3)) == "<module> (<string>:3)"
    assert names.name(PYTHON_BASE + (3 << 20)) == f"{PYTHON_BASE + (3 << 20):#x}"
    assert short_line("/usr/bin/python3.11+0x1234") is None


@pytest.mark.parametrize(
    ("stop_ns", "expected"),
    [(0, 0), (19, 0), (20, 1), (29, 1), (30, 4), (39, 4), (40, None), (99, None)],
)
def test_operations_until_a_time(stop_ns: int, expected: int | None) -> None:
    """The last of several operations at the time counts; None: all of the batch."""
    ops = np.zeros(5, sw.OPS_DTYPE)
    ops["time_ns"] = [20, 30, 30, 30, 40]
    batch = Batch(_lib.pointer(ops, "sw_op *"), len(ops))
    assert ops_until(batch, stop_ns) == expected


# --- lifetimes ------------------------------------------------------------------------------------


def pow2(value: int) -> int:
    return 1 << (value.bit_length() - 1) if value else 0


def model(ops: NDArray[np.void], by: str) -> dict[tuple[int, ...], tuple[int, int]]:
    live: dict[int, tuple[int, int, int]] = {}
    count: Counter[tuple[int, ...]] = Counter()
    total: Counter[tuple[int, ...]] = Counter()

    def end(one: tuple[int, int, int], now: int, freed: bool) -> None:
        born, size, site = one
        table = sw.SizeClassTable.c16()
        cls = table.class_of(size) if size <= table.largest_bytes else 0
        slot_bytes = int(table.classes["size_bytes"][cls - 1]) if cls else 0
        group = {
            "site": (0, site, 0),
            "size": (0, 0, pow2(size)),
            "class": (cls, 0, slot_bytes),
        }[by]
        key = (*group, pow2(now - born), int(freed))
        count[key] += 1
        total[key] += size

    now = 0
    for op in ops:
        if op["kind"] == _lib.lib.SW_OP_THREAD_END:
            continue
        now, one = int(op["time_ns"]), int(op["object"])
        if op["kind"] == ALLOC:
            live[one] = now, int(op["size"]), int(op["site"])
        elif op["kind"] == REALLOC:
            live[one] = live[one][0], int(op["size"]), live[one][2]
        else:
            end(live.pop(one), now, True)
    for left in live.values():
        end(left, now, False)
    return {key: (count[key], total[key]) for key in count}


@pytest.mark.parametrize("by", ["class", "site", "size"])
@pytest.mark.parametrize("stored", [False, True])
def test_lifetimes(by: str, stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = random_ops(7, 3000, threads=2)
    ops["site"] = np.arange(len(ops)) % 11
    ops["time_ns"] = np.cumsum(np.arange(len(ops)) ** 2 % 977)
    recording = sw.Recording.from_ops(ops, tmp_path / "a.swt" if stored else None)
    blocks = recording.blocks
    monkeypatch.setattr(recording, "blocks", lambda: blocks(7 if by == "class" else 1000))
    rows = recording.lifetimes(by)
    output = {tuple(int(v) for v in row.tolist()[:5]): row.tolist()[5:] for row in rows}
    assert output == model(ops, by)
    assert len(output) == len(rows) > 10
    both = sw.RecordingSet([recording, recording])
    if by == "site":
        with pytest.raises(sw.InvalidError, match="use one of the set"):
            both.lifetimes(by)
    else:
        assert both.lifetimes(by)["count"].tolist() == (2 * rows["count"]).tolist()


def test_by_hand() -> None:
    """An id is used twice; a resized object lives on; 40,000 bytes are large."""
    ops = make_ops(
        (ALLOC, 0, 100), (FREE, 0, 0), (ALLOC, 0, 40_000), (ALLOC, 1, 10), (REALLOC, 1, 20)
    )
    ops["time_ns"] = [10, 13, 20, 25, 27]
    rows = sw.Recording.from_ops(ops).lifetimes()
    classes = [sw.SizeClassTable.c16().class_of(size) for size in (20, 100)]
    assert rows.tolist() == [
        (0, 0, 0, 4, False, 1, 40_000),
        (classes[0], 0, 32, 2, False, 1, 20),
        (classes[1], 0, 112, 2, True, 1, 100),
    ]
    nothing = sw.Recording.from_ops(make_ops()).lifetimes("size")
    assert len(nothing) == 0
    with pytest.raises(sw.InvalidError, match="by 'age': use one of class, site, size"):
        sw.Recording.from_ops(ops).lifetimes("age")


# --- site groups ----------------------------------------------------------------------------------


def with_sites(seed: int) -> sw.Recording:
    """A history whose operations have one of seven sites."""
    ops = random_ops(seed, 3000)
    ops["site"] = np.random.default_rng(seed).integers(0, 7, len(ops))
    return sw.Recording.from_ops(ops, name="mine")


@pytest.mark.parametrize("at", ["peak", "end", "#1000"])
def test_groups_are_those_of_a_model(at: str) -> None:
    """The last operation of each object counts; a free removes it."""
    one = with_sites(4)
    groups = one.site_groups("go", at)
    assert np.asarray(groups)["allocs"].sum() == one.summary.allocs
    ledger = one.ledger("go", at)
    ops = {"peak": one.summary.peak_op, "end": len(one), "#1000": 1000}[at]
    last: dict[int, tuple[int, int, int]] = {}
    allocs: Counter[tuple[int, int]] = Counter()
    for i, row in enumerate(one.ops):
        if row["kind"] == ALLOC:
            allocs[int(row["site"]), int(row["thread"])] += 1
        if i < ops and row["kind"] == FREE:
            del last[int(row["object"])]
        elif i < ops:
            last[int(row["object"])] = (int(row["site"]), int(row["thread"]), int(row["size"]))
    wanted: Counter[tuple[int, int]] = Counter()
    for site, thread, size in last.values():
        wanted[site, thread] += size
    found: Counter[tuple[int, int]] = Counter()
    counted: Counter[tuple[int, int]] = Counter()
    for row in groups:
        found[int(row["site"]), int(row["thread"])] += int(row["requested_bytes"])
        counted[int(row["site"]), int(row["thread"])] += int(row["allocs"])
    assert +found == +wanted and +counted == +allocs
    assert groups["live_objects"].sum() == len(last) == ledger.live_objects
    slots = set(np.asarray(sw.SizeClassTable.go().classes["size_bytes"]).tolist()) | {0}
    assert set(groups["slot_bytes"].tolist()) <= slots
    keys = [row[:3] for row in np.asarray(groups).tolist()]
    assert keys == sorted(set(keys))


def test_the_class_of_an_aligned_request() -> None:
    """By hand, of Go's table: 48 is no multiple of 32; 64 of 64; 4,097 of 4,096 is 8,192."""
    sizes = np.array([33, 33, 33, 4097, 40_000, 40_000, 8, 0], np.uint64)
    log2 = np.array([0, 5, 6, 12, 0, 4, 14, 0], np.uint8)
    found = slots_of(sizes, log2, sw.SizeClassTable.go())
    assert found.tolist() == [48, 64, 64, 8192, 0, 0, 0, 8]


def test_nothing_and_what_is_refused() -> None:
    one = with_sites(1)
    assert len(sw.Recording.from_ops(one.ops[:0], name="nothing").site_groups()) == 0
    with pytest.raises(sw.InvalidError, match="after its end"):
        one.site_groups(at="#4000")
    two = sw.RecordingSet([one, with_sites(2)])
    with pytest.raises(sw.InvalidError, match="site, class and thread"):
        two.site_groups()


# --- pinned spans ---------------------------------------------------------------------------------


PLANTED = """\
#include <stdlib.h>
__attribute__((noinline)) static void *many(void) { return malloc(100); }
__attribute__((noinline)) static void *one_that_stays(void) { return malloc(100); }
__attribute__((noinline)) static void *large_and_full(void) { return malloc(2048); }
static void *gone[60000], *kept[1000], *full[4000];
int main(void) {
    for (int i = 0; i < 60000; i++) {
        gone[i] = many();
        if (i % 60 == 0) kept[i / 60] = one_that_stays();
    }
    for (int i = 0; i < 60000; i++) free(gone[i]);
    for (int i = 0; i < 4000; i++) full[i] = large_and_full();
    return !kept[0] + !full[0];
}
"""


def two_spans() -> sw.Recording:
    """Of Go's class of 48 B, 170 slots a span of 8,192 B: in one two objects are left, in one one.

    Microsecond 0 to 339: objects 0 to 339 of sites 1, 3 (object 10) and 2 (from 170 on). Then all
    but 0, 10 and 170 are freed, until microsecond 676; object 10 goes at 2,000.
    """
    ops = make_ops(
        *((ALLOC, i, 33) for i in range(340)),
        *((FREE, i, 0) for i in range(340) if i not in (0, 10, 170)),
        (FREE, 10, 0),
    )
    ops["site"][:340] = np.where(np.arange(340) < 170, 1, 2)
    ops["site"][10] = 3
    ops["time_ns"][-1] = 2_000_000
    return sw.Recording.from_ops(ops, name="mine")


def rows_of(found: sw.SpanPinning) -> list[tuple[int, ...]]:
    return [tuple(row) for row in np.asarray(found.array).tolist()]


@pytest.mark.parametrize("at", ["peak", "end", "#2500"])
@pytest.mark.parametrize("by", GROUPS)
def test_pinned_spans_are_those_of_a_model(by: str, at: str) -> None:
    """A heap map has each object's place and time; the operations have the rest."""
    ops = random_ops(5, 4000)
    ops["site"] = np.random.default_rng(5).integers(0, 5, len(ops))
    one = sw.Recording.from_ops(ops, name="mine")
    done = {"peak": one.summary.peak_op, "end": len(one), "#2500": 2500}[at]
    found, heap = one.span_pinning(by, "go", at), one.map("go", at)
    slot_bytes = [0, *np.asarray(sw.SizeClassTable.go().classes["size_bytes"]).tolist()]
    threads, lives = _told_by_operations(ops, done)
    sums: dict[int, list[int]] = defaultdict(lambda: [0] * 5)
    partial = free = 0
    for number, tile in enumerate(heap.array):
        if tile["kind"] != 0 or not 0 < tile["live"] < tile["slots"]:
            continue
        partial += 1
        size = slot_bytes[tile["cls"]]
        rest = int(tile["bytes"]) - int(tile["live"]) * size
        free += rest
        slots = heap.slots(number)
        live = slots[np.asarray(slots["live"])]
        groups = set()
        for rank, row in enumerate(live):
            # Times of allocations differ, so they name an object.
            born = int(row["born_ns"])
            age = heap.ledger.time_ns - born
            key = {
                "site": int(row["site"]),
                "size": size,
                "age": 1 << age.bit_length() >> 1,
                "lifetime": lives[born],
                "thread": threads[born],
            }[by]
            groups.add(key)
            sums[key][0] += 1
            sums[key][1] += int(row["requested_bytes"])
            sums[key][2] += rest // len(live) + (rank < rest % len(live))
        for key in groups:
            sums[key][3] += 1
        if len(groups) == 1:
            sums[groups.pop()][4] += int(tile["bytes"])
    assert (found.spans, found.free_bytes) == (partial, free)
    assert {row[0]: [*row[1:5], row[6]] for row in rows_of(found)} == dict(sums)
    assert partial > 20


def _told_by_operations(ops: np.ndarray, done: int) -> tuple[dict[int, int], dict[int, int]]:
    """By the time of its last allocation or resize: each live object's thread, and its lifetime."""
    born: dict[int, int] = {}
    placed: dict[int, tuple[int, int]] = {}
    for row in ops[:done]:
        time_ns, number = int(row["time_ns"]), int(row["object"])
        if row["kind"] == FREE:
            del placed[number]
        elif row["kind"] != 3:
            if row["kind"] == ALLOC:
                born[number] = time_ns
            placed[number] = time_ns, int(row["thread"])
    ends: dict[int, int] = {}
    for row in ops[done:]:
        if row["kind"] == FREE:
            ends.setdefault(int(row["object"]), int(row["time_ns"]))
    threads = dict(placed.values())
    lives = {}
    for number, (time_ns, _) in placed.items():
        lived = ends.get(number, 0) - born[number]
        lives[time_ns] = (1 << lived.bit_length() >> 1) if number in ends else NOT_FREED
    return threads, lives


@needs_recorder()
def test_a_planted_pinned_ranks_first(tmp_path: Path) -> None:
    """1,000 objects of one function keep the spans of 60,000; another's 8 MB are in full spans."""
    program = compiled(tmp_path, PLANTED, "-g", "-O1")
    one = sw.record([str(program)], tmp_path / "a.swt")
    sites = one.span_pinning("site", at="end").named()
    assert sites.labels()[0].startswith("one_that_stays (")
    first = sites.array[0]
    assert (first["live_objects"], first["requested_bytes"]) == (1000, 100_000)
    assert first["released_bytes"] > 0.9 * 61_000 * 100 and first["sole_spans"] > 0
    assert first["kept_free_bytes"] > 50 * first["requested_bytes"]
    most = max(one.live_sites(at="end").named(), key=lambda site: site.requested_bytes)
    assert most.names[0].startswith("large_and_full (")
    by_size = one.span_pinning("size", at="end")
    assert by_size.array["group"][0] == sw.SizeClassTable.c16().round_up(100)
    lives = one.span_pinning("lifetime", at="end")
    assert lives.labels()[0] == "not freed"


def test_text_picture_and_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = two_spans()
    found = one.span_pinning("site", "go", "end")
    assert "2 partial spans of mine at end, table go, with 16,288 free bytes" in repr(found)
    assert "<table" in found._repr_html_()
    ax = found.plot()
    widths = [1024 * patch.get_width() for patch in ax.patches]  # type: ignore[attr-defined]
    assert ax.get_xlabel() == "bytes of partial spans, KiB"
    assert sorted(widths) == sorted(
        [*found.array["released_bytes"].tolist(), *found.array["kept_free_bytes"].tolist()]
    )
    plots.save(ax, tmp_path / "a.png")
    file = tmp_path / "a.swt"
    sw.Recording.from_ops(np.asarray(one.ops), file)
    words = ["ledger", str(file), "--table", "go", "--at", "end", "--span-pinning", "lifetime"]
    assert main(words) == 0
    assert "not freed" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["span_pinning"]["by"] == "lifetime" and output["span_pinning"]["spans"] == 2
    assert output["span_pinning"]["groups"][0]["released_bytes"] == 16384


def test_sites_with_equal_names_are_one_group() -> None:
    """By hand: sites 1 and 3 are alone in the first span, so both together release it."""
    found = two_spans().span_pinning("site", "go", "#677")
    assert [row[0] for row in rows_of(found)] == [2, 1, 3]
    columns = ("released_bytes", "sole_spans", "spans", "kept_free_bytes", "live_objects")

    def counts(one: sw.SpanPinning) -> list[tuple[int, ...]]:
        return [tuple(int(row[name]) for name in columns) for row in one.array]

    apart = [(8192, 1, 1, 8144, 1), (0, 0, 1, 4048, 1), (0, 0, 1, 4048, 1)]
    assert counts(found) == apart == counts(found.merged())  # without frames, each is another one
    names = (("g (a.c:9)",), ("f (a.c:3)",), ("f (a.c:3)",))
    through = ("", "printf", "puts")
    sites = zip((2, 1, 3), names, through, strict=True)
    named = replace(found, sites=tuple(Site(i, 0, 0, one, one, one, by) for i, one, by in sites))
    merged = named.merged()
    assert counts(merged) == [(8192, 1, 1, 8144, 1), (8192, 1, 1, 8096, 2)]
    assert merged.labels() == ["g (a.c:9)", "f (a.c:3)"]
    assert [one.through for one in merged.sites] == ["", ""]
    assert merged.array["requested_bytes"].tolist() == [33, 66] and merged.spans == 2
    assert repr(named).count("f (a.c:3)") == 1 and counts(named) == apart
    assert len(named.plot().patches) == 4


def test_no_pinned_spans_and_what_is_refused() -> None:
    one = two_spans()
    nothing = one[:0].span_pinning()
    assert len(nothing) == 0 and "0 partial spans" in repr(nothing)
    with pytest.raises(sw.InvalidError, match="no pinned spans to draw"):
        nothing.plot()
    with pytest.raises(sw.InvalidError, match="by 'class': use one of site, size, age"):
        one.span_pinning("class")
    with pytest.raises(sw.InvalidError, match="one recording"):
        sw.RecordingSet([one, one]).span_pinning()
    assert "--stacks 16" in repr(sw.Recording.from_ops(_without_sites(one)).span_pinning(at="end"))


def _without_sites(one: sw.Recording) -> np.ndarray:
    ops: np.ndarray = np.asarray(one.ops).copy()
    ops["site"] = 0
    return ops
