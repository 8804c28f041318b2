# SPDX-License-Identifier: Apache-2.0
"""gctrace lines: three as an article prints them, two of Go 1.26, and ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from spanwise.__main__ import main
from spanwise.errors import InvalidError
from spanwise.gc.trace import parse_gctrace, read_gctrace

SAMPLES = Path(__file__).with_name("gctrace-samples.txt")


def test_every_field_of_the_samples() -> None:
    rows = read_gctrace(SAMPLES).array
    assert rows["number"].tolist() == [12, 1, 1, 2, 5]
    assert rows["at_s"].tolist() == [124.885, 0.452, 0.452, 0.004, 0.008]
    assert rows["gc_percent"].tolist() == [0, 3, 3, 5, 8]
    assert rows["start_ns"].tolist() == [20_000, 26_000, 11_000, 43_000, 110_000]
    assert rows["mark_ns"].tolist() == [2_100_000, 12_300_000, 2_100_000, 340_000, 380_000]
    assert rows["end_ns"].tolist() == [25_000, 12_000, 5_000, 65_000, 1_000]
    assert rows["cpu_ns"].tolist() == [2_200_000, 14_918_000, 2_718_000, 435_000, 341_000]
    assert rows["before_mb"].tolist() == [123, 12, 12, 3, 3]
    assert rows["peak_mb"].tolist() == [123, 13, 13, 3, 4]
    assert rows["after_mb"].tolist() == [56, 8, 8, 0, 0]
    assert rows["goal_mb"].tolist() == [128, 16, 16, 4, 4]
    assert np.array_equal(rows["processors"], [8, np.nan, np.nan, 2, 2], equal_nan=True)
    assert rows["arena_mb"][0] == 42.1
    assert np.isnan(rows["arena_mb"][1:]).all()


def test_pauses_are_starts_and_ends() -> None:
    trace = read_gctrace(SAMPLES)
    assert sorted(trace.pauses_ns) == sorted(
        [20e3, 26e3, 11e3, 43e3, 110e3, 25e3, 12e3, 5e3, 65e3, 1e3]
    )
    assert trace.to_dict()["pauses_ns"]["sum"] == 318e3
    assert trace.to_dict()["pauses_ns"]["p50"] == 22.5e3


def test_lines_of_the_program_are_left_out_and_damage_is_named() -> None:
    lines = SAMPLES.read_text(encoding="utf-8").splitlines()
    assert len(parse_gctrace(["hello", lines[1], "", "gc is a word"]).array) == 1
    assert len(parse_gctrace([]).array) == 0
    assert "no gctrace line" in str(parse_gctrace([]))
    with pytest.raises(InvalidError, match=r"err\.txt:2: no gctrace line"):
        parse_gctrace([lines[0], lines[1].replace("clock", "clack")], "err.txt")
    for end in range(8, len(lines[3]) - 5):
        cut = lines[3][:end]
        try:
            assert len(parse_gctrace([cut]).array) == 1
        except InvalidError:
            continue
        assert cut.endswith(("goal", "globals"))


def test_ours_is_read() -> None:
    script = """if True:
        import spanwise as sw
        heap = sw.CollectedHeap()
        node = heap.add_type("node", 1 << 20)
        kept = [heap.new(node) for _ in range(3)]
        for _ in range(5):
            heap.new(node)
        heap.collect()
        heap.set_pace(300, limit_bytes=9 << 20)
        heap.start()
        heap.finish()
        heap.collect()
    """
    for wanted, cycles in (("gctrace=1", 3), ("other=1,gctrace=1", 3), ("gctrace=10", 0), ("", 0)):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"SPANWISE_DEBUG": wanted},
            capture_output=True,
            text=True,
            check=True,
        )
        rows = parse_gctrace(done.stderr.splitlines()).array
        assert rows["number"].tolist() == [1, 2, 3][:cycles]
        assert rows["goal_mb"].tolist() == [0, 9, 9][:cycles]  # 12 MB, but for the limit
        if cycles:
            assert rows["before_mb"].tolist() == [8, 3, 3]
            assert rows["after_mb"].tolist() == [3, 3, 3]


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["gctrace", str(SAMPLES)]) == 0
    text = capsys.readouterr().out
    assert "5 cycles in 124.885 s" in text
    assert "longest 110 µs" in text
    assert main(["gctrace", str(SAMPLES), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cycles"]) == 5
    assert main(["gctrace", str(tmp_path / "gone")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
