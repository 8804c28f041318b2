# SPDX-License-Identifier: Apache-2.0
"""Instruction counts: reading, comparing, the committed baseline."""

from __future__ import annotations

from pathlib import Path

import instructions
import pytest
from driver import counts
from driver.tools import BenchError

CLOSING = "==7== Events    : Ir Dr Dw Bc\n==7== Collected : 67978 20 10 5\n==7==\n"


def test_parse_collected() -> None:
    assert counts.parse_collected(CLOSING) == {"Ir": 67978, "Dr": 20, "Dw": 10, "Bc": 5}
    with pytest.raises(BenchError, match=r"^callgrind gave no count: valgrind: no"):
        counts.parse_collected("valgrind: no\n")
    assert counts.parse_calls("fn=(1) a\ncalls=3 +5\n12 9\ncalls=40 -2\n") == 43


def count_of(instructions: float, loads: float = 5.0) -> counts.Counts:
    return counts.Counts(instructions, loads, 2.0, 3.0, 0.0)


def test_growth_beyond_the_slack() -> None:
    baseline = {"a": count_of(20), "b": count_of(20), "c": count_of(20), "gone": count_of(5)}
    now = {"a": count_of(20.3), "b": count_of(21), "c": count_of(20, 6), "new": count_of(9)}
    grown = counts.growths(baseline, now)
    assert [(growth.path, growth.kind) for growth in grown] == [
        ("b", "instructions"),
        ("c", "loads"),
    ]
    assert str(grown[0]).startswith("b: 20.00 -> 21.00 instructions per operation; ")
    said = instructions.complaints({"k": baseline}, {"k": now})
    assert said[-1] == "no baseline: new (k); run bench/instructions.py --update"
    assert len(said) == 3


def test_instructions_without_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counts, "find_valgrind", lambda: "valgrind")
    assert instructions.main(["--build", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"instructions: {tmp_path}/bench_paths is missing: build with ")
    monkeypatch.setattr(counts, "find_valgrind", lambda: None)
    assert instructions.main(["--check"]) == 77
    assert capsys.readouterr().out.startswith("skipped: valgrind was not found")


def test_bad_baseline(tmp_path: Path) -> None:
    path = tmp_path / "instructions.json"
    path.write_text("[1]")
    with pytest.raises(BenchError, match="not a baseline of counts by key and path"):
        counts.load_baseline(path)


def test_nothing_collected() -> None:
    said = "==1== Events    : Ir Dr Dw\n==1== Collected : 0\n"
    with pytest.raises(BenchError, match="callgrind collected nothing"):
        counts.parse_collected(said)
    assert counts.parse_collected(said.replace("d : 0", "d : 3 2 1")) == {"Ir": 3, "Dr": 2, "Dw": 1}
