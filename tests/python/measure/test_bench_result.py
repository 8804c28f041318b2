# SPDX-License-Identifier: Apache-2.0
"""Results of benchmarks, by hand: savings, intervals, sentences."""

from __future__ import annotations

from typing import Any

import pytest
import spanwise as sw
from spanwise.measure.bench_result import BenchResult, measured_on
from spanwise.measure.bench_rounds import ROW_FIELDS
from spanwise.results.intervals import interval_of


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


def test_without_plain_nothing_is_compared_with_it() -> None:
    found = rows_of(glibc=[100], spanwise=[90])
    assert "plain" not in str(found) and found.verdict() == ""
    assert str(found).startswith("medians and their intervals")


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
