# SPDX-License-Identifier: Apache-2.0
"""The Go library's benchmark cases on ours: what is read, printed, and that each case is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runner.errors import BenchError
from scoreboard import original_cases
from studies import holes

from tests.bench.test_studies import bench_build, study


def case(contender: str, name: str, cpu: float, real: float, threads: int) -> dict[str, object]:
    path = f"{contender}/case/{name}"
    return {"run_name": path, "cpu_time": cpu, "real_time": real, "threads": threads}


TOLD = {
    "benchmarks": [
        case("wide", "TwoTreeFind", 0.5, 0.6, 1),
        case("single", "TwoTreeFind", 0.7, 0.8, 1),
        case("spanwise", "BuddyAlloc/real_time", 30.0, 20.0, 2),
    ]
}


def test_cases_of_several_threads_count_by_elapsed_time() -> None:
    assert original_cases.parse_times(json.dumps(TOLD)) == {
        "wide": {"TwoTreeFind": 0.5},
        "single": {"TwoTreeFind": 0.7},
        "spanwise": {"BuddyAlloc": 20.0},
    }


def test_a_line_has_ours_and_the_record() -> None:
    ours = original_cases.parse_times(json.dumps(TOLD))
    lines = {
        line.split()[0]: line.split()[1:] for line in original_cases.cases_table(ours).splitlines()
    }
    assert lines["TwoTreeFind"] == ["0.5", "0.7", "2.754", "-", "0.5247"]
    assert lines["BuddyAlloc"] == ["20", "-", "61.67", "-", "76.39"]
    assert lines["MemoryCount"] == ["-", "-", "0.2464", "-", "0.2589"]
    now = {"treap": {"TwoTreeFind": 4.0, "New": 5.0}, "twotree": {"TwoTreeFind": 6.0}}
    table = original_cases.cases_table(ours, now).splitlines()
    assert "treap now" in table[0] and "twotree now" in table[0]
    lines = {line.split()[0]: line.split()[1:] for line in table}
    assert lines["TwoTreeFind"] == ["0.5", "0.7", "4", "2.754", "-", "6", "0.5247"]
    assert lines["New"] == ["-", "-", "5", "-", "-", "-", "-"]


def test_every_case_on_record_runs_on_ours() -> None:
    """Of each the usual back end, and where a range is behind it those of both builds."""
    build = bench_build(original_cases.PROGRAM)
    told = study("original-cases", "--quick", "--build", build)
    lines = {line.split()[0]: line.split()[1:] for line in told.splitlines() if line}
    without = [name for name in original_cases.recorded() if lines[name][0] == "-"]
    assert without == []
    ranged = [name for name in original_cases.recorded() if lines[name][1] != "-"]
    assert len(ranged) == 20 + 12 + 15 + 3  # ranges, memory and scalable allocators, recyclable
    assert all(lines[name][3] != "-" for name in ranged)


def test_holes_of_every_back_end_and_reference(tmp_path: Path) -> None:
    build = bench_build("bench_ranges")
    picture = tmp_path / "holes.png"
    told = study("holes", "--quick", "--build", build, "--plot", picture)
    lines = {line.split()[0]: line for line in told.splitlines() if line}
    assert {*holes.OWN, *holes.REFERENCES} <= set(lines)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_refused_requests_are_told_by_the_thousand() -> None:
    row = {"name": "two/range/replaced", "cpu_time": 90.0, "iterations": 2000, "refused": 500}
    assert holes.parse_costs(json.dumps({"benchmarks": [row]})) == {
        ("two", "replaced"): (90.0, 250.0)
    }


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"not there; \./dev bench builds it"):
        original_cases.own_times(tmp_path, rounds=1, quick=True)
    with pytest.raises(BenchError, match=r"not there; \./dev bench builds it"):
        holes.measure(tmp_path, 1, quick=True)
