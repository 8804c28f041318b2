# SPDX-License-Identifier: Apache-2.0
"""Child processes, several at once, none of which outlives Ctrl-C or another one's failure.

Each child has a process group of its own, so that a compiler's own children end with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bench_lib.errors import BenchError

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_lock = threading.Lock()
_running: set[subprocess.Popen[str]] = set()
_stopping = threading.Event()


def _end(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)


def run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, in the C locale.

    Args:
        words: program and arguments.

    Raises:
        BenchError: it cannot be started, or others failed meanwhile.
    """
    with _lock:
        if _stopping.is_set():
            raise BenchError(f"{words[0]}: not started, something else failed")
        try:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError as error:
            raise BenchError(f"{words[0]}: {error.strerror}") from error
        _running.add(child)
    try:
        out, err = child.communicate()
    except BaseException:
        _end(child)
        child.wait()
        raise
    finally:
        with _lock:
            _running.discard(child)
    return subprocess.CompletedProcess(list(words), child.returncode, out, err)


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
            return list(pool.map(function, items))
        except BaseException as error:
            with _lock:
                _stopping.set()
                for child in _running:
                    _end(child)
            pool.shutdown(cancel_futures=True)
            # After Ctrl-C never again: it may strike before the pool has noted a thread it started.
            if isinstance(error, Exception):
                _stopping.clear()
            raise
