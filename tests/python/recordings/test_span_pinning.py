# SPDX-License-Identifier: Apache-2.0
"""Objects that pin partial spans: by hand, against a model of a heap map, and planted."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise import plots
from spanwise.__main__ import main
from spanwise.recordings.sites import Site
from spanwise.recordings.span_pinning import GROUPS, NOT_FREED

from tests.python.helpers import ALLOC, FREE, make_ops, needs_recorder, random_ops

CC = shutil.which("cc") or shutil.which("gcc")

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
def test_groups_are_those_of_a_model(by: str, at: str) -> None:
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
@pytest.mark.skipif(CC is None, reason="no C compiler")
def test_a_planted_pinned_ranks_first(tmp_path: Path) -> None:
    """1,000 objects of one function keep the spans of 60,000; another's 8 MB are in full spans."""
    (tmp_path / "planted.c").write_text(PLANTED, encoding="utf-8")
    program = tmp_path / "planted"
    subprocess.run([str(CC), "-g", "-O1", tmp_path / "planted.c", "-o", program], check=True)
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


def test_nothing_and_what_is_refused() -> None:
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
