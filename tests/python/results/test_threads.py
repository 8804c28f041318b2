# SPDX-License-Identifier: Apache-2.0
"""Where the system refuses threads: pools do the work themselves, commands end in a line."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spanwise.__main__ import main
from spanwise.recordings.sources import write_ops
from spanwise.results.jobs import Workers, is_refused, starts

from tests.python.helpers import python, random_ops

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
