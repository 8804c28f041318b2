# SPDX-License-Identifier: Apache-2.0
"""Resident bytes: the bytes of a heap in written pages, and their peak."""

from __future__ import annotations

import json
import math
import mmap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.ledger.parts import PARTS
from spanwise.recordings import sources

from tests.python.helpers import ALLOC, FREE, make_ops, random_ops, spanwise

pytestmark = pytest.mark.skipif(mmap.PAGESIZE != 4096, reason="counted by hand for pages of 4 KiB")


def grown_twice() -> sw.Recording:
    """800 objects of 1,000 B; 7 of 8 die, and none of their pages is free; then 300 of 2,000 B."""
    first = [(ALLOC, i, 1000) for i in range(800)]
    freed = [(FREE, i, 0) for i in range(800) if i % 8 != 0]
    second = [(ALLOC, 800 + i, 2000) for i in range(300)]
    return sw.Recording.from_ops(make_ops(*first, *freed, *second), name="twice")


def test_one_object_by_hand() -> None:
    """5,000 bytes in a slot of 5,376 touch two pages, in which the next slot begins."""
    recording = sw.Recording.from_ops(make_ops((ALLOC, 0, 5000)))
    ledger = recording.ledger("go")
    assert ledger.resident is not None
    assert ledger.resident.requested_bytes == 5000
    assert ledger.resident.roundup_bytes == 376
    assert ledger.resident.cached_bytes == 8192 - 5376
    assert ledger.resident_bytes == 8192 + ledger.resident.metadata_bytes
    unwritten = ledger.metadata_bytes - ledger.resident.metadata_bytes
    # Of the pool's second chunk of 32 KiB, and 12 or 13 pages for hints, which do not exist.
    assert 12 * 4096 < unwritten < 32768 + 13 * 4096 and unwritten % 4096 == 0
    assert ledger.cached_bytes == 2 * 5376
    assert "resident" in str(ledger) and "resident" in ledger._repr_html_()
    printed = json.loads(ledger.to_json())
    assert printed["resident_bytes"] == ledger.resident_bytes
    assert printed["resident"]["roundup_bytes"] == 376
    assert ledger.array["resident_bytes"].tolist() == [ledger.resident_bytes]


def test_the_peak_of_resident_bytes() -> None:
    """Pages that one object keeps stay resident, so the second growth comes on top of the first."""
    recording = grown_twice()
    peak, most = recording.ledger(at="peak"), recording.ledger()
    assert peak.events == 800 and peak.requested_bytes == 800_000
    assert most.at == "peak-resident" and "at peak-resident" in most.title
    assert 0.9 * 700_000 < most.requested_bytes <= 700_000
    assert peak.resident_bytes is not None and most.resident_bytes is not None
    assert most.resident_bytes > 1.5 * peak.resident_bytes
    # Checked one by one: within 1 % of the peak, and none of these has more requested bytes.
    rows = recording.timeline(samples=2048, detail="parts")
    peak_bytes = rows["resident_bytes"].max()
    assert peak_bytes == most.peak_resident_bytes
    near = rows[rows["resident_bytes"] >= 0.99 * peak_bytes]
    assert most.requested_bytes == near["requested_bytes"].max()
    assert most.events in near["op"][near["requested_bytes"] == most.requested_bytes]
    with pytest.raises(sw.InvalidError, match="give peak, peak-resident, end"):
        recording.ledger(at="peak-held")


@pytest.mark.parametrize("stored", [False, True])
def test_a_time_line_of_parts(stored: bool, tmp_path: Path) -> None:
    """Each row is the ledger of the operations until then, taken by a run of its own."""
    ops = random_ops(5, 3000, threads=2)
    recording = sw.Recording.from_ops(ops, tmp_path / "a.swt" if stored else None)
    rows = recording.timeline("go", samples=7, detail="parts")
    assert rows["op"].tolist() == [3000 * (i + 1) // 7 for i in range(7)]
    for row in rows:
        alone = sw.Recording.from_ops(ops[: row["op"]]).ledger("go", at="end")
        assert row["time_ns"] == ops["time_ns"][row["op"] - 1]
        assert [row[name] for name in PARTS] == [getattr(alone, name) for name in PARTS]
        assert alone.resident is not None
        resident = [getattr(alone.resident, name) for name in PARTS]
        assert [row[f"resident_{name}"] for name in PARTS] == resident
        assert row["resident_bytes"] == sum(resident) == alone.resident_bytes
        assert row["held_bytes"] == sum(row[name] for name in PARTS)


# Seconds of ten operations: two at once, a pause of several steps, one exactly at a multiple.
TIMES = (0.0, 0.1, 0.1, 0.25, 0.5, 1.4, 1.45, 1.5, 1.5, 1.7)
# By hand, in steps of half a second: five until 0.5, as many until 1.0, nine until 1.5, then ten.
MOMENTS = (5, 9, 10)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 4, 1 << 16])
def test_a_time_line_in_steps_of_time(
    batch: int, stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is the ledger of the operations until then, wherever a batch ends."""
    monkeypatch.setattr(sources, "ARRAY_BATCH", batch)
    ops = random_ops(5, len(TIMES))
    ops["time_ns"] = np.rint(np.array(TIMES) * 1e9).astype(np.uint64)
    recording = sw.Recording.from_ops(ops, tmp_path / "a.swt" if stored else None)
    rows = recording.timeline("go", step_s=0.5, detail="parts")
    assert tuple(rows["op"]) == MOMENTS
    assert rows["time_ns"].tolist() == [500_000_000, 1_500_000_000, 1_700_000_000]
    for row in rows:
        alone = sw.Recording.from_ops(ops[: row["op"]]).ledger("go", at="end")
        assert [row[name] for name in PARTS] == [getattr(alone, name) for name in PARTS]
        assert row["resident_bytes"] == alone.resident_bytes
    classes = recording.timeline("go", step_s=0.5, detail="classes")
    assert sorted(set(classes["op"].tolist())) == [op for op in MOMENTS if op in classes["op"]]
    both = sw.RecordingSet([recording, recording]).timeline("go", step_s=0.5, detail="parts")
    assert both["held_bytes"].tolist() == [2 * held for held in rows["held_bytes"].tolist()]
    assert len(sw.Recording.from_ops(ops[:0]).timeline(step_s=1, detail="parts")) == 0
    # One longer than the recording: its end alone. As many as there may be: each time has one row.
    assert recording.timeline(step_s=9, detail="parts")["op"].tolist() == [10]
    fine = recording.timeline(step_s=1.7 / 2047, detail="parts")["op"].tolist()
    assert fine == [1, 3, 4, 5, 6, 7, 9, 10]


def test_steps_of_time_that_are_none() -> None:
    recording = sw.Recording.from_ops(random_ops(6, 400))
    for bad in (0, -1, float("nan"), float("inf"), 1e-10, 1e300):
        with pytest.raises(sw.InvalidError, match="give seconds, at least 1e-9"):
            recording.timeline(step_s=bad, detail="parts")
    for no_number in ("1s", True, [1]):
        with pytest.raises(TypeError, match="step_s must be a number"):
            recording.timeline(step_s=no_number, detail="parts")  # type: ignore[arg-type]
    with pytest.raises(sw.InvalidError, match="step_s goes with detail parts or classes"):
        recording.timeline(step_s=1)
    ops = random_ops(6, 400)
    ops["time_ns"] = np.arange(400, dtype=np.uint64) * 10_000_000
    with pytest.raises(sw.InvalidError, match="more than 2048 moments; give a longer step_s"):
        sw.Recording.from_ops(ops).timeline(step_s=3.99 / 2048, detail="parts")


def test_what_no_time_line_shows() -> None:
    recording = sw.Recording.from_ops(random_ops(6, 400))
    both = sw.RecordingSet([recording, recording])
    with pytest.raises(sw.InvalidError, match="detail 'all': use one of sums, parts, classes"):
        recording.timeline(detail="all")
    with pytest.raises(sw.InvalidError, match="detail 'all'"):
        both.timeline(detail="all")
    with pytest.raises(sw.InvalidError, match="that of one recording"):
        both.timeline(detail="classes")
    assert both.timeline(samples=3, detail="parts")["held_bytes"][-1] == 2 * int(
        recording.timeline(samples=3, detail="parts")["held_bytes"][-1]
    )


def test_the_verdict_is_about_resident_bytes() -> None:
    """The table with less resident memory wins, whatever its held bytes."""
    ledger = sw.Recording.from_ops(make_ops((ALLOC, 0, 5000))).ledger("go", "peak")

    def verdict(held: int, more: int) -> str:
        assert ledger.stats is not None and ledger.stats.peak_resident_bytes is not None
        peak = ledger.stats.peak_resident_bytes + more
        stats = replace(ledger.stats, peak_resident_bytes=peak)
        other = replace(ledger, table="x", held_bytes=ledger.held_bytes + held, stats=stats)
        return sw.Comparison([other, ledger]).verdict()

    said = verdict(4096, 1024)
    assert said.startswith("go has a peak resident of ") and ", the least: 1.0 KiB (" in said
    assert said.endswith(" less than x; it holds 4.0 KiB less at peak.")
    said = verdict(4096, -2048)
    assert said.startswith("x has a peak resident of ") and ", the least: 2.0 KiB (" in said
    assert said.endswith(" less than go; it holds 4.0 KiB more at peak.")
    assert verdict(4096, 0).endswith(", and go as much.")
    assert sw.Comparison([ledger]).verdict().startswith("go has a peak resident of ")


def test_a_share_of_large_objects(tmp_path: Path) -> None:
    """Of 1,000,000 bytes 25 % are in 62 pages of 4 KiB; objects in slots are written whole."""
    path = tmp_path / "a.swt"
    recording = sw.Recording.from_ops(make_ops((ALLOC, 0, 1_000_000), (ALLOC, 1, 5000)), path)
    quarter = sw.HeapOptions(large_touched_percent=25)
    ledger = recording.ledger("go", options=quarter)
    assert ledger.resident is not None
    assert ledger.resident.requested_bytes == 62 * 4096 + 5000
    assert ledger.held_bytes == recording.ledger("go").held_bytes
    swept = sw.sweep(recording, "go", options=quarter)
    assert swept[0]["resident_bytes"] == ledger.resident_bytes
    words = ("ledger", "a.swt", "--table", "go", "--large-touched", "25", "--json")
    done = spanwise(*words, cwd=tmp_path)
    assert json.loads(done.stdout)["resident_bytes"] == ledger.resident_bytes
    words = (*words[:5], "6.5537", "--json")  # 65,537 bytes: 17 pages
    done = spanwise(*words, cwd=tmp_path)
    finer = recording.ledger("go", options=sw.HeapOptions(large_touched_percent=6.5537)).resident
    assert finer is not None and finer.requested_bytes == 17 * 4096 + 5000
    assert json.loads(done.stdout)["resident_bytes"] == finer.held_bytes
    for percent in (0, 101, 100.00001, -1, 0.00001, math.nan, math.inf):
        with pytest.raises(sw.InvalidError, match="large_touched_percent"):
            sw.HeapOptions(large_touched_percent=percent)
    with pytest.raises(TypeError, match="large_touched_percent must be a number, not str"):
        sw.HeapOptions(large_touched_percent="5")  # type: ignore[arg-type]
    kept = [sw.HeapOptions(large_touched_percent=np.float64(v)).to_dict() for v in (7.0, 0.00006)]
    assert [repr(one["large_touched_percent"]) for one in kept] == ["7", "0.0001"]
    with pytest.raises(sw.InvalidError, match="is for simulations"):
        sw.Heap(options=quarter)
    with pytest.raises(sw.InvalidError, match="is for simulations"):
        sw.run(["true"], options=quarter)


def test_a_live_heap_asks_the_system() -> None:
    with sw.Heap() as heap:
        blocks = [heap.alloc(3_000_000) for _ in range(3)]
        before = heap.ledger(resident=True)
        blocks[0].view()[:] = 1
        after = heap.ledger(resident=True)
        assert before.resident is not None and after.resident is not None
        grown = after.resident.requested_bytes - before.resident.requested_bytes
        assert 2_900_000 < grown <= 3_000_000
        assert before.resident.requested_bytes < 100_000
        for block in blocks:
            block.free()
    with sw.Heap(dry=True) as dry:
        assert dry.ledger().resident is None and "resident" not in dry.ledger().text_head
        with pytest.raises(sw.StateError, match="touch_map"):
            dry.ledger(resident=True)


def test_the_command(tmp_path: Path) -> None:
    sw.Recording.from_ops(make_ops((ALLOC, 0, 5000)), tmp_path / "a.swt")
    done = spanwise("ledger", "a.swt", "--table", "go", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "at peak-resident" in lines[0]
    assert lines[1].split() == ["resident", "held", "bytes", "held", "of", "held"]
