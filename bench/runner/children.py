# SPDX-License-Identifier: Apache-2.0
"""Child processes, several at once, none of which outlives Ctrl-C or another one's failure.

Each child has a process group of its own, so that a compiler's own children end with it. Ctrl-C, or
a SIGINT to this process alone, therefore reaches no child: each() ends them.

Only the main thread can answer a signal. But the system may hand the signal to any thread, and then
it does not wake the main thread. So no wait here is longer than _LOOK_S.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from runner.errors import BenchError

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_GRACE_S = 2.0  # seconds from SIGTERM to SIGKILL
_LOOK_S = 0.2  # seconds between two checks for a signal
_changed = threading.Condition()  # guards the set and the event below
_running: set[subprocess.Popen[str]] = set()
_stopping = threading.Event()


def _send(child: subprocess.Popen[str], number: signal.Signals) -> None:
    """Sends a signal to a child's group; its id is not reused before the child is waited for."""
    with contextlib.suppress(ProcessLookupError):
        if child.returncode is None:
            os.killpg(child.pid, number)


def _end_all() -> None:
    """Asks every child to end, and kills what lives on after two seconds."""
    with _changed:
        _stopping.set()
        try:
            for child in _running:
                _send(child, signal.SIGTERM)
            _changed.wait_for(lambda: not _running, _GRACE_S)
        finally:  # also when a second Ctrl-C cuts the grace short
            for child in _running:
                _send(child, signal.SIGKILL)


def _output_of(child: subprocess.Popen[str], told: str | None) -> tuple[str, str]:
    """Waits for a child's end; returns its standard output and standard error."""
    while True:
        try:
            return child.communicate(told, timeout=_LOOK_S)
        except subprocess.TimeoutExpired:
            told = None  # communicate() keeps the input, and what was read, from call to call


def run(
    words: Sequence[str], env: Mapping[str, str] | None = None, told: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, in the C locale.

    Args:
        words: program and arguments.
        env: its environment but for LC_ALL; None: that of this process.
        told: its standard input; None: there is none.

    Raises:
        BenchError: it cannot be started, or others failed meanwhile.
    """
    with _changed:
        if _stopping.is_set():
            raise BenchError(f"{words[0]}: not started, something else failed")
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL if told is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**(os.environ if env is None else env), "LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError as error:
            raise BenchError(f"{words[0]}: {error.strerror}") from error
        _running.add(child)
    try:
        with child:
            try:
                out, err = _output_of(child, told)
            finally:
                _send(child, signal.SIGKILL)  # only after an exception: else it has ended
    finally:
        with _changed:
            _running.discard(child)
            _changed.notify_all()
    return subprocess.CompletedProcess(list(words), child.returncode, out, err)


def _failed_first(tasks: Sequence[Future[_Found]]) -> Future[_Found] | None:
    """Waits until one has failed, and returns it, or until all are done, and returns None."""
    while True:
        done, waiting = wait(tasks, _LOOK_S, FIRST_EXCEPTION)
        failed = [task for task in tasks if task in done and task.exception() is not None]
        if failed or not waiting:
            return failed[0] if failed else None


def each(function: Callable[[_Item], _Found], items: Sequence[_Item], workers: int) -> list[_Found]:
    """The function's results for all items, in their order, from several threads.

    Args:
        function: called once an item; starts processes by run() only.
        items: any number.
        workers: threads, at least 1.

    Raises:
        BenchError: what the function raised first; by then every child has ended.
    """
    with ThreadPoolExecutor(max_workers=workers) as pool:
        try:
            tasks = [pool.submit(function, item) for item in items]
            failed = _failed_first(tasks)
            return [task.result() for task in ([failed] if failed is not None else tasks)]
        except BaseException as error:
            _end_all()
            pool.shutdown(cancel_futures=True)
            # After Ctrl-C start nothing: it may come before the pool has noted a thread that it
            # started.
            if isinstance(error, Exception):
                _stopping.clear()
            raise
