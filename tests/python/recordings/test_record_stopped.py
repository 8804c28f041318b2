# SPDX-License-Identifier: Apache-2.0
"""Recordings stopped by Ctrl-C or a signal are kept; starting commands print one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import spanwise as sw
from spanwise import _lib
from spanwise.heap import handle as runner
from spanwise.recordings import finish as finishing
from spanwise.recordings.recorder import RECORDER

from tests.python.helpers import (
    lives,
    needs_python_malloc,
    needs_recorder,
    python,
    wait_for,
)

KEPT = "the recording of what ran until then is kept"
SERVER = """
import os, pathlib, signal, sys, time
state = {"stops": 0}
def stop(number, frame):
    state["stops"] += 1
    pathlib.Path(f"stop-{state['stops']}").touch()
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
kept = [str(i) * 10 for i in range(20_000)]
pathlib.Path("pid").write_text(str(os.getpid()))
pathlib.Path("ready").touch()
while state["stops"] == 0 or (STUBBORN and not pathlib.Path("enough").exists()):
    time.sleep(0.01)
kept += [str(i) * 10 for i in range(20_000)]
pathlib.Path("clean").touch()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process in tmp_path, in a process group of its own, and ends it after the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str | Path, **settings: object) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = subprocess.Popen(
            [str(word) for word in words],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **settings,  # type: ignore[call-overload]
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def recorded(code: str, stubborn: bool = False) -> list[str]:
    """Return the words of a command that records a Python program."""
    program = [sys.executable, "-c", code.replace("STUBBORN", str(stubborn))]
    return [sys.executable, "-m", "spanwise", "record", "-o", "a.swt", "--", *program]


def allocations(path: Path) -> int:
    """Of a recording that is whole."""
    summary = sw.Recording.open(path).summary
    assert summary.incomplete == 0
    return summary.allocs


def ends_within(pid: str, seconds: float) -> None:
    """Wait for the end, up to the given time."""
    until = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < until:
        time.sleep(0.01)


# --- spanwise record ------------------------------------------------------------------------------


@needs_recorder()
@needs_python_malloc()
def test_ctrl_c_that_the_program_answers(tmp_path: Path, start: Start) -> None:
    command = start(*recorded(SERVER))
    wait_for((tmp_path / "ready").exists)
    os.killpg(command.pid, signal.SIGINT)
    lines = command.communicate()[1].splitlines()
    assert command.returncode == 130
    assert lines[0] == f"ended after SIGINT; {KEPT}"
    assert lines[-1].startswith("a.swt: ")
    assert "Traceback" not in "".join(lines)
    assert (tmp_path / "clean").exists()
    assert allocations(tmp_path / "a.swt") > 40_000
    assert not list(tmp_path.glob(".spanwise-*"))


@needs_recorder()
@needs_python_malloc()
def test_the_second_ctrl_c_kills(tmp_path: Path, start: Start) -> None:
    command = start(*recorded(SERVER, stubborn=True))
    wait_for((tmp_path / "ready").exists)
    os.killpg(command.pid, signal.SIGINT)
    wait_for((tmp_path / "stop-1").exists)
    assert command.poll() is None  # waits for the program, which goes on
    program = (tmp_path / "pid").read_text()
    while lives(program):  # two that come before the command has heard the first are one
        os.killpg(command.pid, signal.SIGINT)
        ends_within(program, 5)
    lines = command.communicate()[1].splitlines()
    assert command.returncode == 130
    assert lines[:2] == [f"ended after SIGINT; {KEPT}", "the program was ended by signal 9"]
    assert not (tmp_path / "clean").exists()
    assert sw.Recording.open(tmp_path / "a.swt").summary.allocs > 15_000


# --- ordering the events --------------------------------------------------------------------------


@needs_recorder()
def test_the_bar_counts_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends at no more than there are, which is known before."""
    raw = tmp_path / "raw.swt"
    recorder = {"LD_PRELOAD": str(_lib.native_library(RECORDER)), "SPANWISE_RECORD_FILE": str(raw)}
    script = "kept = [[] for _ in range(400_000)]"
    assert python("-c", script, env={**recorder, "PYTHONMALLOC": "malloc"}).returncode == 0
    totals: list[int] = []
    steps: list[int] = []

    @contextmanager
    def bar(_progress: None, total: int, _what: str, _unit: str) -> Iterator[object]:
        totals.append(total)
        yield steps.append

    monkeypatch.setattr(finishing, "progress_bar", bar)
    monkeypatch.setattr(runner, "LOOK_SECONDS", 0.001)
    finishing.finish(raw, tmp_path / "ordered.swt")
    made = len(sw.Recording.open(tmp_path / "ordered.swt"))
    # The recorder counts a reallocation as two events.
    assert len(totals) == 1 and made <= totals[0] < 1.01 * made
    assert len(steps) >= 3 and 0 < sum(steps) <= totals[0]
