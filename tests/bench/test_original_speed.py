# SPDX-License-Identifier: Apache-2.0
"""The comparison with the Go library: what is read, judged and refused. The library is not here."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from runner.errors import BenchError
from scoreboard import cli, original_cases, original_speed

from tests.bench.tools import BENCH

TOLD = """goos: linux
BenchmarkBuddyAlloc-2      1000000          61.67 ns/op      0 B/op    0 allocs/op
BenchmarkMemoryToBytes           50000   19750 ns/op
PASS
"""


def test_cases_are_read_from_what_go_prints() -> None:
    assert original_speed.parse_cases(TOLD) == {"BuddyAlloc": 61.67, "MemoryToBytes": 19750.0}


def test_who_is_slower() -> None:
    assert original_speed.judge(1.0, 2.0, 2.0) == ""
    assert original_speed.judge(1.0, 2.2, 2.0) == "reference"
    assert original_speed.judge(2.2, 2.2, 2.0) == "ours and reference"


def test_every_row_is_one_of_the_harness() -> None:
    source = (original_speed.HARNESS / "main.go").read_text(encoding="utf-8")
    rows = set(re.findall(r'"((?:range|buffer)/\w+)":', source))
    assert {f"{row.subject}/{row.row}" for row in original_speed.ROWS} == rows


def test_the_harness_has_what_go_takes_and_nothing_else() -> None:
    """Go refuses to build a folder with C++ in it."""
    assert {file.name for file in original_speed.HARNESS.iterdir()} == {"go.mod", "main.go"}


def test_defect_10_a_row_says_which_tree_it_times() -> None:
    """GoMem's rows named after two trees run one code, on a pool with one hole in most of them."""
    rows = [row for row in original_speed.ROWS if row.subject == "range" and row.ours != "buddy"]
    asked = {(row.row, row.build): (row.ours, row.reference) for row in rows}
    names = {row.row for row in rows}
    assert "fragmented" in names
    assert asked == {
        (name, build): contenders
        for name in names
        for build, contenders in (
            ("treap", ("single", "reference_single")),
            ("twotree", ("two", "reference_two")),
        )
    }
    source = (BENCH / "ranges/bench_ranges.cc").read_text(encoding="utf-8")
    made = re.findall(r"^    add_(?:own_)?rows<([\w<>]+)>\(\);", source, re.MULTILINE)
    assert {"Ours<SW_RANGE_SINGLE>", "Ours<SW_RANGE_TWO>", "Single", "Two"} <= set(made)
    assert len(made) == len(set(made))


def test_rows_are_selected_by_their_names() -> None:
    assert original_speed.rows_of(None) == original_speed.ROWS
    assert {row.subject for row in original_speed.rows_of("range*")} == {"range"}
    assert [row.row for row in original_speed.rows_of("buffer copy_to, treap")] == ["copy_to"]
    assert {row.build for row in original_speed.rows_of("*twotree")} == {"twotree"}
    with pytest.raises(BenchError, match="matches no row; there are 18"):
        original_speed.rows_of("gc*")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--json"], "leave out --json"),
        (["--all"], "leave out --all"),
        (["--plot", "a.png"], "leave out --plot"),
        (["--resume"], "leave out --resume"),
        (["--linked-peers"], "leave out --linked-peers"),
        (["--peer", "a=b"], "leave out --peer"),
        (["--rows", "gc*"], "matches no row"),
        (["--scoreboard"], "give --rows 'range*' or --rows 'buffer*'"),
        (["--scoreboard", "--rows", "gc*"], "give --rows 'range*' or --rows 'buffer*'"),
        (["--scoreboard", "--rows", "buffer, stack*"], "matches no row"),
    ],
)
def test_what_does_not_go_with_the_library_is_refused_at_once(
    words: list[str],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "_execute_scripts", None)  # nothing runs before the refusal
    assert cli.main(["--peer-go", str(tmp_path), *words]) == 2
    assert told in capsys.readouterr().err


def test_verdicts_stand_before_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called: list[object] = []

    def scripts(options: argparse.Namespace, _: object) -> int:
        called.append(options.rows)
        return 0

    def compare(library: Path, **options: object) -> int:
        called.append((library, options["pattern"], options["rounds"]))
        return 1

    monkeypatch.setattr(cli, "_execute_scripts", scripts)
    monkeypatch.setattr(original_speed, "compare", compare)
    words = ["--peer-go", str(tmp_path), "--rows", "range*", "--repetitions", "3"]
    assert cli.main([*words, "--scoreboard"]) == 1
    assert called == ["range*", (tmp_path, "range*", 3)]
    assert cli.main(words) == 1
    assert called[2:] == [(tmp_path, "range*", 3)]


def test_all_cases_on_record() -> None:
    cases = original_cases.recorded()
    assert len(cases) == 72
    assert cases["BuddyAlloc"] == {"treap": 61.67, "twotree": 76.39}


def test_a_folder_without_the_library_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BenchError, match="no Go module"):
        original_speed.compare(tmp_path, rounds=1, quick=True, say=print)
    assert cli.main(["--peer-go", str(tmp_path)]) == 2
    assert "--peer-go" in capsys.readouterr().err
