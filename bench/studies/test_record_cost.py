# SPDX-License-Identifier: Apache-2.0
"""The study record-cost: what is timed is the whole command, to the finished file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
import spanwise as sw
from spanwise import _lib
from spanwise.recordings.recorder import RECORDER

from studies import record_cost

JOB = [sys.executable, "-c", "print(sum(range(1000)))"]


def options(rounds: int) -> argparse.Namespace:
    recorder = _lib.native_library(RECORDER)
    return argparse.Namespace(recorder=recorder, stacks=1, rounds=rounds, quick=False)


def test_the_command_is_timed_not_the_recorder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripted seconds: 1 plain, 3 for the command, 1.5 for the program under the recorder."""
    began: list[tuple[str, set[str]]] = []

    def seconds(command: list[str], environment: dict[str, str], cwd: Path) -> float:
        began.append((command[0], {path.name for path in cwd.iterdir()}))
        (cwd / "job.1.swt").write_bytes(b"12345")
        if "record" in command:
            assert command[command.index("--") + 1 :] == JOB
            assert "LD_PRELOAD" not in environment
            return 3.0
        return 1.5 if "LD_PRELOAD" in environment else 1.0

    monkeypatch.setattr(record_cost, "seconds", seconds)
    monkeypatch.setattr("shutil.which", lambda name: None)
    rows = record_cost.measure("a job", JOB, options(2))
    assert rows["spanwise record"] == {"seconds": [3.0, 3.0], "ratio": 3.0}
    assert rows["recorder alone"] == {"seconds": [1.5, 1.5], "ratio": 1.5}
    assert rows["bytes"] == 5
    deep = record_cost.variants(JOB, options(1).recorder, 1)[record_cost.DEEP][1]
    assert deep["SPANWISE_RECORD_STACKS"] == "8" and "SPANWISE_RECORD_PYTHON" not in deep
    modes = 5 if record_cost.KNOWS_FRAMES else 4
    assert [files for _, files in began] == [{"job.c", "job.py"}] * 2 * modes
    said = capsys.readouterr().out
    assert "spanwise record   3.000 s    3.00 x plain  [3.00, 3.00]" in said
    assert "heaptrack       left out: it is not installed" in said


def test_heaptrack_is_run_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole stacks, the same job, no preload of ours; 8 seconds beside a plain run of 1."""

    def seconds(command: list[str], environment: dict[str, str], cwd: Path) -> float:
        if command[0] != record_cost.HEAPTRACK:
            return 1.0
        assert command[3:] == JOB and "LD_PRELOAD" not in environment
        assert environment["PYTHONMALLOC"] == "malloc"
        return 8.0

    monkeypatch.setattr(record_cost, "seconds", seconds)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    rows = record_cost.measure("a job", JOB, options(1))
    assert rows["heaptrack"] == {"seconds": [8.0], "ratio": 8.0}
    assert "left out" not in capsys.readouterr().out


def test_the_command_leaves_a_finished_recording(tmp_path: Path) -> None:
    where = tmp_path / "run"
    record_cost.prepare(where)
    runs = record_cost.variants(JOB, options(1).recorder, 1)
    command, environment = runs[record_cost.WHOLE]
    assert record_cost.seconds(command, environment, where) > 0
    (path,) = where.glob("job*.swt")
    assert sw.Recording.open(path).ledger("go").requested_bytes > 0
