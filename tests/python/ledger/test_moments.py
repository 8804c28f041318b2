# SPDX-License-Identifier: Apache-2.0
"""Moments: resident bytes and their peak, time lines, waste after the peak, by hand."""

from __future__ import annotations

import json
import math
import mmap
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
    with pytest.raises(sw.InvalidError, match="is for one recording"):
        both.timeline(detail="classes")
    assert both.timeline(samples=3, detail="parts")["held_bytes"][-1] == 2 * int(
        recording.timeline(samples=3, detail="parts")["held_bytes"][-1]
    )


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


# --- after the peak -------------------------------------------------------------------------------


MIB = 1 << 20


def emptied(path: Path | None = None) -> sw.Recording:
    """64 objects of 1 MiB, 48 of them freed, then 16 new ones in their pages: 64, 16, 32 MiB.

    Operations are a microsecond apart, so that no page goes back within the recording.
    """
    rows = [(ALLOC, i, MIB) for i in range(64)]
    rows += [(FREE, i, 0) for i in range(48)]
    rows += [(ALLOC, 64 + i, MIB) for i in range(16)]
    return sw.Recording.from_ops(make_ops(*rows), path, name="emptied")


@pytest.mark.parametrize("stored", [False, True])
def test_after_the_peak_by_hand(stored: bool, tmp_path: Path) -> None:
    recording = emptied(tmp_path / "a.swt" if stored else None)
    found = recording.after_peak("go")
    other = recording.ledger("go", "end").metadata_bytes  # all pages are held at each moment
    assert (found.peak_op, found.worst_op, found.worst_time_ns) == (64, 112, 111_000)
    assert found.requested_at_peak_bytes == 64 * MIB
    assert found.worst_requested_bytes == 16 * MIB and found.end_requested_bytes == 32 * MIB
    assert found.worst_held_bytes == found.end_held_bytes == 64 * MIB + other
    assert found.worst_waste_bytes == 48 * MIB + other
    assert found.end_waste_bytes == 32 * MIB + other
    assert found.end_resident_bytes == recording.ledger("go", "end").resident_bytes
    assert found.peak_resident_bytes == recording.ledger("go").resident_bytes
    worst, end = found.sentences
    assert worst.startswith(
        "After the peak, the simulated heap wastes up to 48.2 MiB (at 111.000 us): 64.2 MiB held"
    )
    assert worst.endswith(" for 16.0 MiB requested.")
    assert end == (
        "At the end the simulated heap still holds 64.2 MiB (64.1 MiB resident) for 32.0 MiB"
        " requested, of 64.0 MiB at most before."
    )
    assert found.peak_requested_bytes == 64 * MIB
    assert json.loads(found.to_json())["sentences"] == [worst, end] == str(found).splitlines()


def test_what_goes_back_has_no_sentence() -> None:
    """Pages go back with the second free after theirs, so at most two objects are kept."""
    found = emptied().after_peak("go", options=sw.HeapOptions(decay_ms=0))
    assert 2 * MIB < found.worst_waste_bytes < 3 * MIB
    assert found.end_held_bytes < 33 * MIB and found.end == ""


def test_a_program_that_frees_everything_has_no_sentence() -> None:
    """Its last 16 objects are freed within a decay, so 64 MiB is held for nothing."""
    rows = [(ALLOC, i, MIB) for i in range(64)] + [(FREE, i, 0) for i in range(48)]
    alive = sw.Recording.from_ops(make_ops(*rows)).after_peak("go")
    rows += [(FREE, i, 0) for i in range(48, 64)]
    found = sw.Recording.from_ops(make_ops(*rows)).after_peak("go")
    assert found.end_held_bytes > 64 * MIB and found.end_requested_bytes == 0
    assert found.end == "" and found.worst_requested_bytes == MIB and found.worst_op == 127
    assert alive.end != ""


def test_what_is_freed_after_a_last_pause_does_not_count() -> None:
    """Half of 64 MiB is kept for a second, and then freed until 2 MiB are left."""
    rows = [(ALLOC, i, MIB) for i in range(64)] + [(FREE, i, 0) for i in range(62)]
    ops = make_ops(*rows)
    ops["time_ns"][64 + 32 :] += 1_000_000_000
    found = sw.Recording.from_ops(ops).after_peak("go")
    assert found.worst_requested_bytes == 32 * MIB and found.worst_op == 64 + 32
    ops["time_ns"][64 + 32 :] -= 1_000_000_000
    assert sw.Recording.from_ops(ops).after_peak("go").worst_requested_bytes == 2 * MIB


def test_no_moment_has_more_waste() -> None:
    """The ledgers of all moments after the peak, one by one."""
    recording = sw.Recording.from_ops(random_ops(7, 300))
    found = recording.after_peak("go")
    assert found.peak_op is not None
    ledgers = [recording.ledger("go", f"#{op}") for op in range(found.peak_op + 1, 301)]
    assert found.worst_waste_bytes == max(one.waste_bytes for one in ledgers)


def test_a_set_adds_up() -> None:
    one, two = emptied(), emptied()
    both, alone = sw.RecordingSet([one, two]).after_peak("go"), one.after_peak("go")
    assert both.worst_held_bytes == 2 * alone.worst_held_bytes
    assert (both.peak_op, both.worst_op, both.worst_time_ns) == (None, None, None)
    assert " (each process at its own moment): 128." in both.worst


def test_the_commands_print_what_is_after_the_peak(tmp_path: Path) -> None:
    recording = emptied(tmp_path / "a.swt")
    said = recording.after_peak("go")
    done = spanwise("ledger", "a.swt", "--table", "go", cwd=tmp_path)
    assert done.stdout.endswith("\n\n" + "\n".join(said.sentences) + "\n"), done.stderr
    printed = json.loads(
        spanwise("ledger", "a.swt", "--table", "go", "--json", cwd=tmp_path).stdout
    )
    assert printed["after_peak"] == json.loads(said.to_json())
    at_end = ("ledger", "a.swt", "--at", "end")
    assert "After the peak" not in spanwise(*at_end, cwd=tmp_path).stdout
    assert json.loads(spanwise(*at_end, "--json", cwd=tmp_path).stdout)["after_peak"] is None


# --- one moment -----------------------------------------------------------------------------------


def test_compared_columns_are_of_one_moment() -> None:
    """Slots of 1 KiB and of 2 KiB peak later than those that both sizes share."""
    recording = grown_twice()
    shared = sw.SizeClassTable.custom([(2048, 4), (32768, 4)], name="shared")
    alone = {one: recording.ledger(one) for one in ("go", shared)}
    assert alone["go"].requested_bytes != alone[shared].requested_bytes
    for tables in (("go", shared), (shared, "go")):
        found = recording.compare(tables)
        first, second = found.ledgers
        assert first == alone[tables[0]] and second.requested_bytes == first.requested_bytes
        op = recording.after_peak(tables[0]).peak_op
        assert second.held_bytes == recording.ledger(tables[1], f"#{op}").held_bytes
        under = f"peak-resident under {first.table}"
        assert (first.at, second.at) == ("peak-resident", under)
        assert str(found).startswith(f"twice at {under}, bytes\n")
        own = [alone[one].resident_bytes for one in tables]
        assert [one.peak_resident_bytes for one in found.ledgers] == own
        assert found.text_rows()[-1] == ("peak resident, own moment", *(f"{n:,}" for n in own))
    both = sw.RecordingSet([recording, grown_twice()]).compare(("go", shared))
    assert [one.requested_bytes for one in both.ledgers] == [2 * alone["go"].requested_bytes] * 2
    said = str(sw.Comparison(list(alone.values())))
    assert said.startswith("twice each at its own peak-resident, bytes\n")
