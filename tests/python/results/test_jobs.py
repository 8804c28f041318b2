# SPDX-License-Identifier: Apache-2.0
"""Signals while threads work, and systems that refuse threads."""

from __future__ import annotations

import ctypes
import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.builds.programs import Step, run_steps
from spanwise.heap.runner import interruptible
from spanwise.measure import bench
from spanwise.optimizer.scores import Scores
from spanwise.recordings.sources import write_ops
from spanwise.results.jobs import (
    Signals,
    Workers,
    ctrl_c_heard,
    is_refused,
    raise_what_came,
    starts,
)
from spanwise.sweeps.engines import ThreadEngine, make_engine
from spanwise.sweeps.row_file import Row
from spanwise.sweeps.tasks import Task
from spanwise.sweeps.worker import CancelledTaskError

from tests.python.helpers import python, random_ops

LINES = range(1, 800, 53)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll often, so that a thousand lines take no time."""
    for name in ("results.jobs", "builds.programs", "heap.runner"):
        monkeypatch.setattr(f"spanwise.{name}.LOOK_SECONDS", 0.001)
    monkeypatch.setattr("spanwise.optimizer.scores._PROGRESS_SECONDS", 0.001)


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
    """Its tasks end when a file says so; what was done until then comes with the exception."""
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


# --- refused threads ------------------------------------------------------------------------------

PR_CAPBSET_DROP, CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 24, 21, 24
REFUSAL = "can't start new thread"

WITHOUT_THREADS = """\
import _thread, sys, threading
def refuse(*_):
    raise RuntimeError("can't start new thread")
threading._start_new_thread = _thread.start_new_thread = refuse
if hasattr(threading, "_start_joinable_thread"):
    threading._start_joinable_thread = lambda *_, **__: refuse()
from spanwise.__main__ import main
from spanwise.heap import runner
runner._DIRECT_OPS = 1  # so that short calls take the way of long ones
sys.exit(main(sys.argv[1:]))
"""
"""A command of which no second thread can be started."""


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def make(allowed: int) -> None:
        left = [None] * allowed
        real = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            if not left:
                raise RuntimeError(REFUSAL)
            left.pop()
            real(thread)

        monkeypatch.setattr(threading.Thread, "start", start)

    return make


@pytest.mark.parametrize("allowed", [0, 1, 2, 9])
def test_a_pool_does_each_piece_of_work_once(refusing: Callable[[int], None], allowed: int) -> None:
    refusing(allowed)
    counts = [0] * 40

    def work(number: int) -> int:
        counts[number] += 1
        if number == 7:
            raise KeyError(number)
        return number * number

    with Workers(4) as pool:
        futures = [pool.submit(work, number) for number in range(40)]
        found = [one.exception() or one.result() for one in futures]
    assert counts == [1] * 40
    assert isinstance(found.pop(7), KeyError)
    assert found == [number * number for number in range(40) if number != 7]


def test_work_that_a_thread_took_meanwhile_is_not_done_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread finds it in the pool's queue before its submitter learns of the refusal."""
    free, taken = threading.Event(), threading.Event()
    started: list[threading.Thread] = []
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if started:
            free.set()
            assert taken.wait(60)
            raise RuntimeError(REFUSAL)
        started.append(thread)
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with Workers(2) as pool:
        pool.submit(free.wait, 60)
        assert pool.submit(taken.set).exception(60) is None


def test_other_errors_of_a_pool_stay() -> None:
    pool = Workers(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)
    assert is_refused(RuntimeError(REFUSAL)) and not is_refused(ValueError(REFUSAL))
    done = threading.Event()
    assert starts(threading.Thread(target=done.set)) and done.wait(60)


def test_a_refused_start_is_reported(
    refusing: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(0)
    assert not starts(threading.Thread(target=int))

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("another one")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="another one"):
        starts(threading.Thread(target=int))


def recorded(folder: Path) -> Path:
    path = folder / "a.swt"
    write_ops(path, iter([random_ops(1, 3000)]))
    return path


COMMANDS: list[list[str]] = [
    ["report", "{file}", "-o", "{folder}/x.html"],
    ["optimize", "{file}", "--classes", "32", "--candidates", "2", "-o", "{folder}/t.json"],
    ["sweep", "{file}", "--table", "go", "--executor", "threads", "-o", "{folder}/s.jsonl"],
    ["ledger", "{file}"],
    ["export", "{file}", "--to", "npz", "-o", "{folder}/x.npz"],
]


def run_all(run: Callable[..., Any], file: Path, folder: Path) -> None:
    for words in COMMANDS:
        given = [word.format(file=file, folder=folder) for word in words]
        done = run(*given)
        assert done.returncode in (0, 1), (words, done.stderr)  # 1: no table is better
        assert "Traceback" not in done.stderr and "thread" not in done.stderr, done.stderr
    assert (folder / "x.html").stat().st_size > 20_000


@pytest.mark.slow
def test_commands_work_without_a_second_thread(tmp_path: Path) -> None:
    run_all(lambda *words: python("-c", WITHOUT_THREADS, *words), recorded(tmp_path), tmp_path)


def test_a_command_that_needs_threads_says_so_in_a_line(tmp_path: Path) -> None:
    """Process pools have threads of their own."""
    words: list[str | Path] = [
        "sweep",
        recorded(tmp_path),
        "--table",
        "go",
        "--executor",
        "processes",
    ]
    done = python("-c", WITHOUT_THREADS, *words, "-o", tmp_path / "s.jsonl")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "spanwise: executor processes: the system refused to start a thread, which a pool of"
        " processes needs; raise its limit (ulimit -u), or use threads"
    )
    assert "Traceback" not in done.stderr


def test_any_other_refusal_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> int:
        raise RuntimeError(REFUSAL)

    monkeypatch.setattr("spanwise.commands.tables.run_explain", refuse)
    assert main(["explain", "33"]) == 2
    assert capsys.readouterr().err == (
        "spanwise: the system refused to start a thread; raise its limit (ulimit -u)\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="another user, at its limit, needs root")
def test_commands_work_for_a_user_at_the_limit_of_processes(tmp_path: Path) -> None:
    """As the system does it: also for the libraries that start threads as they are loaded."""
    file = recorded(tmp_path)
    probe = "import threading; threading.Thread(target=int).start()"

    def limited() -> None:
        """The real user counts for the limit; files are still opened as root."""
        for capability in (CAP_SYS_ADMIN, CAP_SYS_RESOURCE):
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        os.setresuid(65534, 0, 0)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            preexec_fn=limited,
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "MPLCONFIGDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    if REFUSAL not in run("-c", probe).stderr:
        pytest.skip("this user cannot run Python here, or has no limit of processes")
    run_all(lambda *words: run("-m", "spanwise", *words), file, tmp_path)
