# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: rounds, files, bad input, the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.measure.bench import processor
from spanwise.measure.bench_cases import case_of, read_cases
from spanwise.measure.bench_result import BenchResult

from tests.python.measure.bench_tools import BYTES, MIB, QUICK, TRUE


def test_each_case_runs_under_each_allocator() -> None:
    """Only our malloc knows held and outside bytes; 32 MiB are in the peak of both."""
    for stays_s in (0.3, 3, 30):  # until samples have seen them
        words = [sys.executable, "-S", "-c", BYTES.replace("0.3", str(stays_s))]
        cases = [TRUE, case_of(words, "python", "32 MiB")]
        found = sw.bench(cases, QUICK, rounds=2, progress=False)
        seen = [row["anonymous_bytes"] for row in found if row["program"] == "python"]
        if all((anonymous or 0) > 32 * MIB for anonymous in seen):
            break
    keys = [(row["program"], row["allocator"], row["round"]) for row in found]
    assert keys == [
        (name, one, i) for name in ("true", "python") for one in QUICK for i in range(2)
    ]
    assert not found.failures and found.verdict() == ""
    for row in found:
        own = row["allocator"] == "spanwise"
        assert (row["held_bytes"] is not None) == own == (row["outside_bytes"] is not None)
        assert row["predicted_bytes"] is None
        if row["program"] == "python":
            assert row["rss_bytes"] > 32 * MIB < row["anonymous_bytes"]
            assert not own or row["held_bytes"] > 32 * MIB
    rows = found.array
    assert rows["runs"].tolist() == [2] * 4 and rows["failed"].tolist() == [0] * 4
    assert (rows["rss_low_bytes"] <= rows["rss_bytes"]).all()
    assert "python, 32 MiB" in str(found)
    assert json.loads(found.to_json())["summary"][1]["held_bytes"] is None
    axes = found.plot()
    assert {text.get_text() for text in axes.get_yticklabels()} == {"true", "python, 32 MiB"}
    title = f"programs under allocators, in turns\n{found.measured}"
    assert axes.get_title() == title and processor() in found.measured


def test_rows_go_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text("[]")  # an earlier file is replaced
    steps: list[int] = []
    bad = case_of(["false"], "bad", "")
    found = sw.bench([TRUE, bad], ["glibc"], rounds=2, output=path, progress=steps.append)
    assert [row["error"] for row in found.failures] == ["false: ended with 1"] * 2
    assert "2 runs failed: false: ended with 1" in str(found) and sum(steps) == 4
    assert [(row["program"], row["round"]) for row in found] == [
        (name, number) for name in ("true", "bad") for number in range(2)
    ]
    opened = BenchResult.open(path)
    assert sorted(opened, key=str) == sorted(found, key=str)
    assert opened.measured == found.measured != ""
    assert all(row["page_faults"] > 0 for row in opened if row["error"] is None)
    with path.open("a") as file:
        file.write('{"kind": "row", "prog')
    assert any("was truncated" in note for note in BenchResult.open(path).notes)
    with pytest.raises(sw.InvalidError, match="not the file of a sweep"):
        sw.Sweep.open(path)


def test_ctrl_c_keeps_finished_runs(tmp_path: Path) -> None:
    def step(_: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "f.jsonl"
    with pytest.raises(sw.BenchInterrupted, match="interrupted after 2 runs") as caught:
        sw.bench([TRUE], QUICK, rounds=3, output=path, progress=step)
    assert [row["round"] for row in caught.value.result] == [0, 0]
    assert len(BenchResult.open(path)) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not JSON"),
        ("{}", "must be a list of at least one case"),
        ("[]", "must be a list of at least one case"),
        ("[3]", "case 1: must be an object with argv"),
        ('[{"argv": ["a"]}, {"argv": []}]', "case 2: argv must be a list of words"),
        ('[{"argv": "ls"}]', "case 1: argv must be a list of words"),
        ('[{"argv": ["a"], "inputs": "b"}]', "unknown key 'inputs'; the keys are argv, env"),
        ('[{"argv": ["a"], "folder": 3}]', "case 1: folder must be a text"),
        ('[{"argv": ["a"], "environment": {"A": 1}}]', "environment must be an object of texts"),
    ],
)
def test_wrong_files_of_cases(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "cases.json"
    path.write_text(content)
    with pytest.raises(sw.InvalidError, match=message):
        read_cases(path)


def test_wrong_arguments(tmp_path: Path) -> None:
    wrong: tuple[tuple[list[sw.BenchCase], dict[str, Any], str], ...] = (
        ([], {}, "no case to run"),
        ([TRUE], {"rounds": 0}, "rounds 0: must be at least 1"),
        ([TRUE], {"timeout_s": 0}, "timeout_s 0: must be more than 0"),
        ([TRUE, case_of(["ls"], "true", "")], {}, "two different cases are called true"),
    )
    for cases, options, message in wrong:
        with pytest.raises(sw.InvalidError, match=message):
            sw.bench(cases, QUICK, **options)
    with pytest.raises(sw.InvalidError, match="allocator 'nomalloc': unknown; use spanwise, gl"):
        sw.bench([TRUE], ["nomalloc"])


def test_one_arena_is_the_plain_program_with_a_variable(tmp_path: Path) -> None:
    script = 'echo "$MALLOC_ARENA_MAX $PYTHONMALLOC $LD_PRELOAD" >> seen'
    case = case_of(["sh", "-c", script], folder=tmp_path)
    found = sw.bench([case], ["plain", "one-arena", "glibc"], rounds=1, progress=False)
    assert found.allocators == ["plain", "one-arena", "glibc"] and not found.failures
    seen = sorted((tmp_path / "seen").read_text().splitlines())
    assert seen[0] == "  " and seen[2] == "1  " and "libc.so" in seen[1]


def test_protections_are_allocators(tmp_path: Path) -> None:
    case = case_of(["sh", "-c", 'echo "$SPANWISE_PROTECT" >> seen'], folder=tmp_path)
    found = sw.bench([case], ["spanwise", "hardened", "paranoid"], rounds=1, progress=False)
    assert found.allocators == ["spanwise", "hardened", "paranoid"] and not found.failures
    assert sorted((tmp_path / "seen").read_text().splitlines()) == ["", "hardened", "paranoid"]


def test_a_missing_allocator_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanwise.measure.bench_cases.loaded_library", lambda _name: None)
    found = sw.bench([TRUE], ["spanwise", "jemalloc"], rounds=1, progress=False)
    assert found.allocators == ["spanwise"]
    assert found.notes == ("jemalloc is not installed: install libjemalloc2",)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "--rounds", "2", "--allocator", "glibc", "-o", str(tmp_path / "f.jsonl")]
    forms = ["--plot", str(tmp_path / "f.png")]
    assert main([*words, *forms, "--", "true"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("medians, in parentheses") and "2 runs in " in err
    assert (tmp_path / "f.png").stat().st_size > 5000
    assert main([*words, "--json", "--", "true"]) == 0
    assert [row["round"] for row in json.loads(capsys.readouterr().out)["rows"]] == [0, 1]
    cases = tmp_path / "cases.json"
    cases.write_text('[{"program": "no", "input": "luck", "argv": ["false"]}]')
    assert main(["bench", "--rounds", "1", "--allocator", "glibc", "--cases", str(cases)]) == 1
    assert "1 run failed: false: ended with 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --cases FILE.json, or one program after --"),
        (["--cases", "a.json", "--", "true"], "give --cases FILE.json, or one program after --"),
        (["--plot", "x.nothing", "--", "true"], "unsupported picture format"),
        (["--rounds", "0", "--", "true"], "rounds 0: must be at least 1"),
    ],
)
def test_wrong_commands(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err
