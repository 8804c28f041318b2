# SPDX-License-Identifier: Apache-2.0
"""Counts: lifetimes, site groups, sizes, threads and stops of a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from numpy.typing import NDArray
from spanwise import _lib
from spanwise.recordings.live_sites import slots_of
from spanwise.recordings.names import PYTHON_BASE, FrameNames, short_line
from spanwise.recordings.simulate import ops_until
from spanwise.recordings.sources import Batch, Module
from spanwise.recordings.summary import count_sites, count_sizes, count_threads

from tests.python.helpers import ALLOC, FREE, REALLOC, make_ops, random_ops

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
        with pytest.raises(sw.InvalidError, match="ask one"):
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
