# SPDX-License-Identifier: Apache-2.0
"""Signals while threads work, and a system that refuses one."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.builds.steps import Step, run_steps
from spanwise.optimizer.local_search import Scores
from spanwise.results.jobs import (
    Signals,
    ctrl_c_heard,
    raise_what_came,
)
from spanwise.sweeps.row_file import Row
from spanwise.sweeps.tasks import CancelledTaskError, Task, ThreadEngine, make_engine

from tests.python.helpers import random_ops

LINES = range(1, 800, 53)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll often, so that a thousand lines take no time."""
    for name in ("results.jobs", "heap.handle"):
        monkeypatch.setattr(f"spanwise.{name}.LOOK_SECONDS", 0.001)
    monkeypatch.setattr("spanwise.optimizer.local_search._PROGRESS_SECONDS", 0.001)


@contextmanager
def ctrl_c_at(line: int) -> Iterator[None]:
    """Send Ctrl-C before this thread runs its n-th line, and after each 5,000 more.

    Python drops the first one if the line is in a weakref callback.
    """
    left = itertools.count(line - 1, -1)

    def trace(_frame: FrameType, _event: str, _arg: object) -> Callable[..., Any]:
        if (lines := next(left)) <= 0 and lines % 5000 == 0:
            signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


# --- what waits for threads -----------------------------------------------------------------------


@pytest.mark.parametrize("line", LINES)
def test_ctrl_c_while_programs_run(line: int) -> None:
    """An exception out of the handler left a lock of the thread pool taken, and nothing ended."""
    with pytest.raises(KeyboardInterrupt), Signals() as signals, signals.heard(), ctrl_c_at(line):
        run_steps([Step(["sleep", "600"], "sleeping")] * 4, 2)


@pytest.mark.parametrize("line", LINES)
def test_ctrl_c_while_tables_are_scored(line: int) -> None:
    """The jobs end when a file says so, and never by themselves."""
    scores = Scores([sw.Recording.from_ops(random_ops(1, 50))], workers=2)

    def job() -> None:
        while True:
            scores._step(0)
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt), ctrl_c_at(line):
        scores._run([job] * 4)
    assert scores.of([sw.SizeClassTable.named("c16")])[0] > 0


@pytest.mark.parametrize("line", LINES)
def test_ctrl_c_while_a_sweep_runs(line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks end when a file says so; what was done until then comes with the exception."""
    recordings = [sw.Recording.from_ops(random_ops(seed, 50)) for seed in range(4)]

    def endless(engine: ThreadEngine, _: Task) -> Future[list[Row]]:
        def task() -> list[Row]:
            while not engine._stop.wait(0.001):
                pass
            raise CancelledTaskError

        return engine._pool.submit(task)

    monkeypatch.setattr(ThreadEngine, "submit", endless)
    traced: list[Any] = []

    def make_and_trace(*args: Any) -> Any:
        traced.append(ctrl_c_at(line))
        traced[0].__enter__()
        return make_engine(*args)

    monkeypatch.setattr("spanwise.sweeps.sweep.make_engine", make_and_trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            sw.sweep(recordings, ["c16", "go"], workers=2)
    finally:
        traced[0].__exit__(None, None, None)
    assert not [one for one in threading.enumerate() if one.name.startswith("spanwise-sweep")]


# --- signals --------------------------------------------------------------------------------------


def test_what_came_is_raised_where_it_is_looked_for() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), ctrl_c_heard():
        signal.raise_signal(signal.SIGINT)
        done.append("went on")
        raise_what_came()
        done.append("never")
    assert done == ["went on"]
    raise_what_came()  # nothing is heard any more


def test_what_came_is_raised_at_the_end_at_the_latest() -> None:
    with pytest.raises(KeyboardInterrupt), ctrl_c_heard():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signals_wait_while_files_are_moved() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), Signals() as signals:
        with signals.heard():
            done.append("compiled")
        signal.raise_signal(signal.SIGINT)
        done.append("moved")
    assert done == ["compiled", "moved"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_only_the_first_signal_is_heard() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), Signals() as signals:
        try:
            with signals.heard():
                signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            done.append("cleared")
    assert done == ["cleared"]


def test_signals_that_the_caller_answers_are_left_alone() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Signals():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_change_nothing() -> None:
    """Only the main thread may set handlers."""
    seen: list[Any] = []

    def look() -> None:
        with ctrl_c_heard():
            raise_what_came()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


# --- refused threads ------------------------------------------------------------------------------


def test_any_other_refusal_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("spanwise.commands.tables.run_explain", refuse)
    assert main(["explain", "33"]) == 2
    assert capsys.readouterr().err == (
        "spanwise: the system refused to start a thread; raise its limit (ulimit -u)\n"
    )
