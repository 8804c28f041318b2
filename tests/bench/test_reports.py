# SPDX-License-Identifier: Apache-2.0
"""What bench/run.py is asked, and what it prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runner.contenders import Field
from runner.errors import BenchError
from runner.patterns import choose
from runner.provenance import SEED, preset_name, provenance, raw_results, write_results
from runner.text import ratio_cell, text_table, write_whole
from scoreboard import cli, report, scores

from tests.bench.tools import BENCH, INLINE, ROOT, SNMALLOC, THREE, make_run, make_target

# --- options --------------------------------------------------------------------------------------


def test_rows_by_name_pattern_and_part() -> None:
    names = ["pair/16", "zpair/16", "pair/64"]
    assert choose(names, "pair/16") == ["pair/16"]
    assert choose(names, "pair/*") == ["pair/16", "pair/64"]
    assert choose(names, "/16") == ["pair/16", "zpair/16"]
    assert choose(names, None) == names
    with pytest.raises(BenchError, match=r"^--rows 'quad' matches no row; there are 3: pair/16, "):
        choose(names, "quad")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--repetitions", "0"], "bench: --repetitions is 0; use 1 or more\n"),
        (["--plot", "x.pdf"], "bench: --plot is 'x.pdf'; use a name that ends in .png\n"),
    ],
)
def test_bad_options(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err == said


# --- reports --------------------------------------------------------------------------------------


def test_text_table() -> None:
    assert text_table(["row", "ns"], [["a", "1"], ["long", "10"]]).splitlines() == [
        "row   ns",
        "----  --",
        "a      1",
        "long  10",
    ]


def test_ratio_cell_says_no_difference() -> None:
    assert ratio_cell([1.0, 1.1, 0.9], [1.0, 1.0, 1.0]) == "no difference"
    assert ratio_cell([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]) == "0.50 [0.50, 0.50]"
    assert ratio_cell([], [1.0]) == "-"


def test_figures_and_comparison() -> None:
    run = make_run({INLINE: [3.0] * 3, SNMALLOC: [2.0] * 3})
    assert report.figures_table(run, ["pair/16"]).splitlines()[2].split() == [
        "pair/16",
        "3.00",
        "2.00",
    ]
    assert "1.50 [1.50, 1.50]" in report.comparison_table(run, ["pair/16"])


def test_scoreboard_table_counts_verdicts() -> None:
    run = make_run({INLINE: [2.5] * 3, SNMALLOC: [2.0] * 3})
    field = Field([INLINE, SNMALLOC], {})
    rows = [
        scores.score(make_target(), field, run, THREE),
        scores.score(make_target(target=1.2), field, run, THREE),
        scores.score(make_target(reference=["rpmalloc >= 2.0"]), field, run, THREE),
    ]
    text = report.scoreboard_table(rows)
    assert text.splitlines()[-1] == "1 met, 1 missed, 1 no peer"
    assert "no peer (needs rpmalloc >= 2.0)" in text


def test_go_benchmark_text() -> None:
    run = make_run({INLINE: [3.0], SNMALLOC: [2.0]}, "free_random/16x1M")
    about = {"machine": {"architecture": "x86_64", "cpu": "some cpu"}, "commit": "abc"}
    lines = report.go_benchmark_text(run, about).splitlines()
    assert lines[-2:] == [
        "BenchmarkFreeRandom/16x1M/alloc=inline\t1000\t3.0000 ns/op",
        "BenchmarkFreeRandom/16x1M/alloc=snmalloc-linked\t1000\t2.0000 ns/op",
    ]
    assert "cpu: some cpu" in lines


def test_raw_results_hold_provenance(tmp_path: Path) -> None:
    about = provenance(ROOT, tmp_path)
    assert {"date", "machine", "compiler", "commit", "preset", "seed"} <= set(about)
    run = make_run({INLINE: [3.0, 4.0]})
    path = write_results(
        tmp_path / "results", raw_results(run, Field([INLINE], {"go": "get it"}), about)
    )
    raw = json.loads(path.read_text())
    assert len(raw["repetitions"]) == 2
    assert raw["missing"] == {"go": "get it"}
    assert str(raw["commit"]) in path.name
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_seed_is_the_programs_seed() -> None:
    assert f"SEED = {SEED} " in (BENCH / "rows/rows.h").read_text()


def test_results_that_cannot_be_written(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    with pytest.raises(BenchError) as caught:
        write_whole(blocker / "x.json", "{}")
    assert str(caught.value).startswith(f"{blocker}/x.json: ")


@pytest.mark.parametrize(
    ("cache", "name"),
    [
        ({"CMAKE_BUILD_TYPE": "Release", "SPANWISE_CHECK": "1"}, "release"),
        ({"CMAKE_BUILD_TYPE": "Release", "SPANWISE_CHECK": "0"}, "bare"),
        ({"CMAKE_BUILD_TYPE": "RelWithDebInfo", "SPANWISE_CHECK": "2"}, "dev"),
    ],
)
def test_preset_name(cache: dict[str, str], name: str) -> None:
    assert preset_name(cache) == name
