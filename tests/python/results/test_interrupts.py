# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while threads work: at whatever line of a wait it comes, all of it ends."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import spanwise as sw
from spanwise.builds.programs import Step, run_steps
from spanwise.heap.runner import interruptible
from spanwise.measure import bench
from spanwise.optimizer.scores import Scores
from spanwise.results.jobs import Signals, ctrl_c_heard, raise_what_came
from spanwise.sweeps.engines import ThreadEngine, make_engine
from spanwise.sweeps.tasks import Row, Task
from spanwise.sweeps.worker import CancelledTaskError

from tests.python.helpers import random_ops

LINES = range(1, 800, 53)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a thousand lines take no time."""
    for name in ("results.jobs", "builds.programs", "heap.runner"):
        monkeypatch.setattr(f"spanwise.{name}.LOOK_SECONDS", 0.001)
    monkeypatch.setattr("spanwise.optimizer.scores._TELL_SECONDS", 0.001)


@contextmanager
def ctrl_c_at(line: int) -> Iterator[None]:
    """Sends Ctrl-C before the line of that number, of those that this thread goes through."""
    left = itertools.count(line - 1, -1)

    def trace(_frame: FrameType, _event: str, _arg: object) -> Callable[..., Any]:
        if next(left) == 0:
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
    """The jobs end when they are told to, and never by themselves."""
    scores = Scores([sw.Recording.from_ops(random_ops(1, 50))], workers=2)

    def job() -> None:
        while True:
            scores._step(0)
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt), ctrl_c_at(line):
        scores._run([job] * 4)
    assert scores.of([sw.SizeClassTable.named("c16")])[0] > 0


@pytest.mark.parametrize("line", LINES)
def test_ctrl_c_while_the_library_runs(line: int) -> None:
    """The call reads `cancel` while it runs, and has ended when the exception arrives."""
    cancel = [0]
    under_way: list[int] = []

    def call() -> None:
        under_way.append(1)
        while not cancel[0]:
            time.sleep(0.001)
        under_way.clear()

    with pytest.raises(KeyboardInterrupt), ctrl_c_at(line):
        interruptible(call, cancel)
    assert not under_way


@pytest.mark.parametrize("line", LINES)
def test_ctrl_c_while_a_sweep_runs(line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks end when they are told to; what was done until then comes with the exception."""
    recordings = [sw.Recording.from_ops(random_ops(seed, 50)) for seed in range(4)]

    def endless(engine: ThreadEngine, _: Task, content: bytes | None = None) -> Future[list[Row]]:
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


@pytest.mark.parametrize("line", LINES)
def test_ctrl_c_while_a_benchmark_runs(line: int) -> None:
    """On an executor that ends its tasks only when nobody waits for them any more."""
    ended = threading.Event()

    class Endless(ThreadPoolExecutor):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            return super().submit(ended.wait)

    class Plan:
        def to_json(self) -> str:
            return ""

    def nothing(_: Sequence[Any]) -> None:
        pytest.fail("nothing has ended")

    plans: Any = [Plan()] * 4
    with Endless(2) as pool:
        try:
            with pytest.raises(KeyboardInterrupt), ctrl_c_at(line), ctrl_c_heard():
                bench._run_on(pool, plans, nothing)
        finally:
            ended.set()


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


def test_what_is_heard_around_goes_on_being_heard() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), Signals() as outer, outer.heard(), ctrl_c_heard():
        signal.raise_signal(signal.SIGINT)
        done.append("went on")
        raise_what_came()
        done.append("never")
    assert done == ["went on"]


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
