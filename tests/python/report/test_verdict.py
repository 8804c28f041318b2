# SPDX-License-Identifier: Apache-2.0
"""The verdict: what a program has in memory and wastes, in its first sentences."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.measure.bench_result import ROW_FIELDS, VALUE_FIELDS, BenchResult
from spanwise.recordings import sources
from spanwise.recordings.names import FUNCTION_BASE
from spanwise.recordings.process_memory import read_memory

from tests.python.helpers import spanwise
from tests.python.report.programs import MIB, PARTS, allocations, in_process, said


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
    assert later.advice().verdict.startswith(
        f"{when[0].upper()}{when[1:]} (figures at 0.010 s), app had 16.0"
    )


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


def test_the_command(measured: sw.Recording, tmp_path: Path) -> None:
    done = spanwise("advise", tmp_path / "a.swt")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{measured.advice()}\n"
    value = json.loads(spanwise("advise", tmp_path / "a.swt", "--json").stdout)
    assert value == measured.advice().to_dict()
    assert [one["saves_bytes"] for one in value["advice"]] == sorted(
        (one["saves_bytes"] for one in value["advice"]), reverse=True
    )
