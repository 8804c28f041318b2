# SPDX-License-Identifier: Apache-2.0
"""Waste after the peak, by hand: what is freed stays held until the decay gives it back."""

from __future__ import annotations

import json
import mmap
from pathlib import Path

import pytest
import spanwise as sw

from tests.python.helpers import ALLOC, FREE, make_ops, random_ops, spanwise

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
def test_by_hand(stored: bool, tmp_path: Path) -> None:
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


def test_the_commands_print_it(tmp_path: Path) -> None:
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


def grown_twice(path: Path | None = None) -> sw.Recording:
    """800 objects of 1,000 B; 7 of 8 die, and none of their pages is free; then 300 of 2,000 B."""
    rows = [(ALLOC, i, 1000) for i in range(800)]
    rows += [(FREE, i, 0) for i in range(800) if i % 8 != 0]
    rows += [(ALLOC, 800 + i, 2000) for i in range(300)]
    return sw.Recording.from_ops(make_ops(*rows), path, name="twice")


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


@pytest.mark.skipif(mmap.PAGESIZE != 4096, reason="pages of 4 KiB")
def test_a_limit_is_for_the_whole_run(tmp_path: Path) -> None:
    """When most was requested, less was resident and held than later."""
    recording = grown_twice(tmp_path / "a.swt")
    early, stats = recording.ledger(at="peak"), recording.ledger(at="end").stats
    assert early.resident_bytes is not None and stats is not None
    assert stats.peak_resident_bytes is not None
    for option, before, most in (
        ("--max-resident", early.resident_bytes, stats.peak_resident_bytes),
        ("--max-held", early.held_bytes, stats.peak_held_bytes),
    ):
        assert before < most
        words = ("check", "a.swt", option)
        done = spanwise(*words, str(before), cwd=tmp_path)
        assert done.returncode == 1 and f"({most:,} bytes)" in done.stdout
        assert done.stdout.endswith("(a.swt, whole run, table c16)\n")
        assert spanwise(*words, str(most), cwd=tmp_path).returncode == 0
        at_peak = spanwise(*words, str(before), "--at", "peak", cwd=tmp_path)
        assert at_peak.returncode == 0 and "(a.swt at peak, table c16)" in at_peak.stdout
