# SPDX-License-Identifier: Apache-2.0
"""Resident bytes: which of a heap's bytes lie in pages that were written to, and when most do."""

from __future__ import annotations

import json
import mmap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.ledger.parts import PARTS

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
    assert 0 < unwritten < 32768 and unwritten % 4096 == 0  # of the pool's second chunk, 32 KiB
    assert ledger.cached_bytes == 2 * 5376
    assert "resident" in str(ledger) and "resident" in ledger._repr_html_()
    told = json.loads(ledger.to_json())
    assert told["resident_bytes"] == ledger.resident_bytes
    assert told["resident"]["roundup_bytes"] == 376
    assert ledger.array["resident_bytes"].tolist() == [ledger.resident_bytes]


def test_the_peak_of_resident_bytes() -> None:
    """Pages that one object keeps stay resident, so the second growth comes on top of the first."""
    recording = grown_twice()
    peak, most = recording.ledger(), recording.ledger(at="peak-resident")
    assert peak.events == 800 and peak.requested_bytes == 800_000
    assert most.at == "peak-resident" and "at peak-resident" in most.title
    assert 0.9 * 700_000 < most.requested_bytes <= 700_000
    assert peak.resident_bytes is not None and most.resident_bytes is not None
    assert most.resident_bytes > 1.5 * peak.resident_bytes
    # No operation has more: looked at one by one.
    rows = recording.timeline(samples=2048, detail="parts")
    assert rows["resident_bytes"].max() == most.resident_bytes
    assert rows["op"][rows["resident_bytes"].argmax()] == most.events
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


def test_a_time_line_of_classes() -> None:
    """Classes add up to the parts of each moment."""
    recording = sw.Recording.from_ops(random_ops(6, 4000))
    heap = recording.timeline(samples=5, detail="parts")
    rows = recording.timeline(samples=5, detail="classes")
    assert set(rows["op"].tolist()) == set(heap["op"].tolist())
    for moment in heap:
        here = rows[rows["op"] == moment["op"]]
        small = here[here["cls"] != 0]
        assert here["live_objects"].sum() == moment["live_objects"]
        for name in ("requested_bytes", "tail_bytes", "free_slot_bytes", "cached_bytes"):
            assert here[name].sum() == moment[name]
            assert here[f"resident_{name}"].sum() == moment[f"resident_{name}"]
        assert small["roundup_bytes"].sum() == moment["roundup_bytes"]
        spans = np.asarray(here["resident_bytes"]).sum() + moment["resident_free_page_bytes"]
        assert spans + moment["resident_metadata_bytes"] == moment["resident_bytes"]


def test_what_no_time_line_shows() -> None:
    recording = sw.Recording.from_ops(random_ops(6, 400))
    both = sw.RecordingSet([recording, recording])
    with pytest.raises(sw.InvalidError, match="detail 'all': use one of sums, parts, classes"):
        recording.timeline(detail="all")
    with pytest.raises(sw.InvalidError, match="detail 'all'"):
        both.timeline(detail="all")
    with pytest.raises(sw.InvalidError, match="those of one recording"):
        both.timeline(detail="classes")
    assert both.timeline(samples=3, detail="parts")["held_bytes"][-1] == 2 * int(
        recording.timeline(samples=3, detail="parts")["held_bytes"][-1]
    )


def test_the_verdict_tells_resident_bytes() -> None:
    """More or less is resident of the one that holds less, whatever held says."""
    ledger = sw.Recording.from_ops(make_ops((ALLOC, 0, 5000))).ledger("go")

    def other(held: int, more: int) -> str:
        assert ledger.resident is not None
        touched = replace(ledger.resident, held_bytes=ledger.resident.held_bytes + more)
        worse = replace(ledger, table="x", held_bytes=ledger.held_bytes + held, resident=touched)
        return sw.Comparison([worse, ledger]).verdict().rpartition("than x")[2]

    assert other(4096, 1024) == ", and 1.0 KiB less is resident."
    assert other(4096, -2048) == ", and 2.0 KiB more is resident."
    assert other(4096, 0) == ", and as much is resident."
    assert sw.Comparison([ledger]).verdict().startswith("go holds ")


def test_ledgers_that_are_added_up() -> None:
    one = sw.Recording.from_ops(random_ops(6, 400))
    ledger, both = one.ledger(), sw.RecordingSet([one, one]).ledger()
    assert ledger.resident_bytes is not None and both.resident_bytes == 2 * ledger.resident_bytes


def test_a_share_of_large_objects(tmp_path: Path) -> None:
    """Of 1,000,000 bytes 25 % lie in 62 pages of 4 KiB; objects in slots are written whole."""
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
    for percent in (0, 101, -1):
        with pytest.raises(sw.InvalidError, match="large_touched_percent"):
            sw.HeapOptions(large_touched_percent=percent)
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
    done = spanwise("ledger", "a.swt", "--table", "go", "--at", "peak-resident", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "at peak-resident" in lines[0]
    assert lines[1].split() == ["resident", "held", "bytes", "held", "of", "held"]
