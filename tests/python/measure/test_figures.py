# SPDX-License-Identifier: Apache-2.0
"""Figures of replays and benchmarks, by hand from made-up runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.measure.bench_result import ROW_FIELDS, BenchResult, interval_of, measured_on
from spanwise.measure.replay_result import SAMPLES_DTYPE, Replay, Run, describe
from spanwise.measure.replays import _run

TIMELINE = np.dtype([("wall_ns", "<i8"), ("rss_bytes", "<i8")])


def run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        **dict.fromkeys(Run.__dataclass_fields__, 0),
        "cpu_ns": 1000,
        "elapsed_ns": 7777,
        "waited_ns": 90,
        "waits": 2,
        "overhead_ns": 300,
        "failed": 0,
        "minor_faults": 5,
        "own_bytes": 4096,
        "plan_bytes": 1024,
        "startup_rss_bytes": 50_000,
        "peak_rss_bytes": 150_000,
        "rss_at_peak_bytes": 140_000,
        "drained_rss_bytes": 60_000,
        "left_bytes": {0.5: 50_000, 5.0: 40_000},
        "malloc": "/libc.so",
        "addresses": None,
        "samples": np.zeros(1, SAMPLES_DTYPE),
        "timeline": np.zeros(0, TIMELINE),
    }
    return Run(**{**values, **changes})


def replay(*runs: Run, **changes: Any) -> Replay:
    values: dict[str, Any] = {
        **dict.fromkeys(Replay.__dataclass_fields__, 0),
        "source": "mine",
        "allocator": "glibc",
        "ops": 100,
        "threads": 2,
        "crossings": 4,
        "peak_requested_bytes": 100_000,
        "ideal_bytes": 125_000,
        "touch": "pages",
        "above_table": None,
        "runs": runs,
    }
    return Replay(**{**values, **changes})


THREE = (
    run(cpu_ns=1000, overhead_ns=300, peak_rss_bytes=150_000),
    run(cpu_ns=3000, overhead_ns=100, peak_rss_bytes=100_000, failed=7, waits=9),
    run(cpu_ns=1200, overhead_ns=200, peak_rss_bytes=190_000, failed=3),
)


@pytest.mark.parametrize(
    ("name", "changes", "value"),
    [
        ("ns_per_op", {}, 12.0),  # the median
        ("ns_range", {}, (10.0, 30.0)),
        ("overhead_ns_per_op", {}, 2.0),
        ("peak_rss_bytes", {}, 150_000),
        ("fragmentation", {}, 1.5),  # over peak live bytes; start-up is included
        ("fragmentation", {"peak_requested_bytes": 0}, None),
        ("blowup", {"ideal_bytes": 120_000}, 1.25),  # over the ideal allocator
        ("blowup", {"ideal_bytes": 0}, None),
        ("failed", {}, 7),  # of the worst run
    ],
)
def test_figures_by_hand(name: str, changes: dict[str, Any], value: Any) -> None:
    assert getattr(replay(*THREE, **changes), name) == value


def test_text() -> None:
    lines = describe([replay(*THREE)]).splitlines()
    assert lines[0].startswith("replay of mine: 100 operations, 2 threads, peak live ")
    assert "12.0 (10.0..30.0)" in lines[3] and " 1.500 " in lines[3] and " 1.200 " in lines[3]
    assert lines[4] == "  of ns/op the replayer's own loop: 2.0"
    assert lines[5].endswith("at most 9 waits, left out of ns/op")


def test_notes() -> None:
    assert replay(*THREE).notes == ("7 allocations refused: the numbers are of a smaller history",)
    above = replay(run(), above_table=2).notes
    assert above == ("2 requests above the largest class took whole pages",)


def test_json_has_the_same_numbers() -> None:
    value = replay(*THREE).to_dict()
    assert (value["ns_per_op"], value["ns_range"], value["blowup"]) == (12.0, [10.0, 30.0], 1.2)
    assert (value["fragmentation"], value["ideal_bytes"]) == (1.5, 125_000)
    assert (value["peak_rss_bytes"], value["overhead_ns_per_op"]) == (150_000, 2.0)
    assert value["left_bytes"] == {"0.5": 50_000, "5": 40_000}
    assert [one["elapsed_ns"] for one in value["runs"]] == [7777] * 3


# --- from the output of the program ---------------------------------------------------------------


def output(**changes: Any) -> dict[str, Any]:
    samples = [(1, 0, 10, 1, 100, 5000), (4, 3, 40, 2, 200, 9000), (6, 5, 20, 1, 300, 900)]
    values: dict[str, Any] = {
        **{"cpu_ns": 11, "elapsed_ns": 22, "waited_ns": 33, "waits": 44, "overhead_ns": 55},
        **{"failed": 66, "minor_faults": 77, "plan_bytes": 88, "own_rss_bytes": 1000},
        **{"startup_rss_bytes": 600, "drained_rss_bytes": 2500, "first_ns": 50},
        "returned": [(100, 1800), (5000, 700)],
        "malloc": "/lib/x.so",
        "threads": 1,
        **{"address_digest_peak": 123, "address_digest_end": 456},
        "samples": samples,
    }
    return {**values, **changes}


def seen_from_outside(*rows: tuple[int, int]) -> Any:
    return np.array(list(rows), TIMELINE)


def test_a_run_is_the_output_minus_the_replayers_own() -> None:
    """Samples before the first operation are not counted; start-up is."""
    one = _run(output(), seen_from_outside((40, 99_999), (50, 8000), (70, 12_000)), 4)
    assert (one.cpu_ns, one.elapsed_ns, one.waited_ns, one.waits) == (11, 22, 33, 44)
    assert (one.overhead_ns, one.failed, one.minor_faults, one.plan_bytes) == (55, 66, 77, 88)
    assert (one.own_bytes, one.startup_rss_bytes) == (1000, 600)
    assert one.samples["rss_bytes"].tolist() == [4000, 8000, 0]
    assert one.timeline["wall_ns"].tolist() == [0, 20]
    assert one.timeline["rss_bytes"].tolist() == [7000, 11_000]
    assert one.peak_rss_bytes == 11_000
    assert one.rss_at_peak_bytes == 8000
    assert one.drained_rss_bytes == 1500
    assert one.left_bytes == {0.1: 800, 5.0: 0}
    assert one.addresses == (123, 456)


def test_a_peak_that_only_a_sample_saw() -> None:
    one = _run(output(threads=2), seen_from_outside((60, 3000)), 5)
    assert one.peak_rss_bytes == 8000
    assert one.rss_at_peak_bytes == 0  # no sample there
    assert one.addresses is None  # threads make them differ


# --- benchmarks -----------------------------------------------------------------------------------


def rows_of(**by_allocator: list[int]) -> BenchResult:
    """By hand: one case, a run a value."""
    rows = []
    for allocator, values in by_allocator.items():
        for number, value in enumerate(values):
            row = dict.fromkeys(ROW_FIELDS)
            row |= {"program": "p", "input": "i", "allocator": allocator, "round": number}
            row |= {"rss_bytes": value, "outside_bytes": 10, "predicted_bytes": value // 2}
            row |= {"held_bytes": value << 10}
            rows.append(row)
    return BenchResult(rows)


def test_a_saving_is_taken_round_by_round() -> None:
    """By hand: 10, 5, 0, -10 and 20 %; of five values the interval is all of them."""
    found = rows_of(spanwise=[100, 200, 50, 10, 100], fitted=[90, 190, 50, 11, 80])
    saving = found.saving("p", "i")
    assert saving is not None
    assert (saving.median, saving.low, saving.high) == pytest.approx((5, -10, 20))
    assert saving.sure == 15 / 16
    assert found.verdict() == (
        "Fitted tables save 5.0 % of the peak RSS under c16 (median of 1 case);"
        " the worst end of an interval is a loss of 10.0 %."
    )
    assert "  100.0 KiB (10.0 .. 200.0)" in str(found)  # held, median and ends
    assert "  100 B (10 .. 200)" in str(found)
    assert found.saving("p", "other") is None
    (stock, fitted) = found.array
    assert stock["predicted_rss_bytes"] == 10 + 50 and fitted["predicted_rss_bytes"] == 10 + 45
    with pytest.raises(sw.InvalidError, match="field 'worker': must be one of rss_bytes"):
        found.values("p", "i", "spanwise", "worker")


@pytest.mark.parametrize(
    ("count", "low", "high", "sure"),
    [(1, 0, 0, 0.0), (2, 0, 1, 0.5), (5, 0, 4, 15 / 16), (7, 0, 6, 63 / 64), (8, 1, 6, 119 / 128)],
)
def test_intervals_by_hand(count: int, low: int, high: int, sure: float) -> None:
    """Of 8 values 1 - 2 (1 + 8) / 256 = 119 / 128 lie within the second and the seventh."""
    found = interval_of(reversed(range(count)))
    assert (found.low, found.high, found.sure) == (low, high, sure)


@pytest.mark.parametrize(
    ("runs", "line"),
    [
        (
            {"plain": [100, 200, 50], "spanwise": [110, 230, 60], "fitted": [90, 150, 44]},
            "spanwise costs 15.0 % more (10.0 % to 20.0 %), fitted saves 12.0 % (10.0 % to 25.0 %)",
        ),
        (
            {"plain": [100, 200, 50], "spanwise": [90, 230, 50]},
            "spanwise no difference (-15.0 % to 10.0 %)",
        ),
        (
            {"plain": [100, 200, 50], "spanwise": [100, 180, 40]},  # 0, 10 and 20 %
            "spanwise no difference (0.0 % to 20.0 %)",
        ),
        ({"plain": [100, 200], "fitted": [50, 150]}, "fitted saves 37.5 % (25.0 % to 50.0 %)"),
    ],
)
def test_the_first_line_compares_with_plain(runs: dict[str, list[int]], line: str) -> None:
    """By hand, round by round: -10, -15 and -20 %, and 10, 25 and 12 %; 10, -15 and 0 %."""
    found = rows_of(**runs)
    first = f"peak RSS compared with plain: {line}"
    assert str(found).splitlines()[0] == first
    assert str(found).count("compared with plain") == 1
    assert found.verdict().startswith(f"P{first[1:]}.")


def test_several_cases_are_compared_with_plain() -> None:
    """By hand: 10, 20 and 40 % of the peak RSS in three cases; 50 % more CPU time in one."""
    rows: list[dict[str, Any]] = []
    for name, peak in (("a", 90), ("b", 80), ("c", 60)):
        rows += [row | {"program": name} for row in rows_of(plain=[100], spanwise=[peak])]
    rows[0]["cpu_ns"], rows[1]["cpu_ns"] = 10, 15
    lines = str(BenchResult(rows)).splitlines()
    assert lines[:2] == [
        "peak RSS compared with plain: spanwise saves 20.0 % (10.0 % to 40.0 %; median of 3 cases)",
        "CPU time compared with plain: spanwise costs 50.0 % more (one round, no interval;"
        " median of 1 case)",
    ]
    assert (
        "b, i: peak RSS compared with plain: spanwise saves 20.0 % (one round, no interval)"
        in lines
    )
    one = "a, i: CPU time compared with plain: spanwise costs 50.0 % more (one round, no interval)"
    assert one in lines


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (
            {"started": "2026-11-25T10:00:00Z", "commit": "0123abcd+changes"},
            "2026-11-25, commit 0123abcd+changes, Linux x86_64, AMD EPYC",
        ),
        ({"commit": None}, "spanwise 0.3.0, Linux x86_64, AMD EPYC"),
    ],
)
def test_a_session_has_date_commit_and_machine(header: dict[str, Any], text: str) -> None:
    also = {"machine": "Linux x86_64, AMD EPYC", "versions": {"spanwise": "0.3.0"}}
    assert measured_on({**header, **also}) == text
