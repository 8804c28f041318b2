# SPDX-License-Identifier: Apache-2.0
"""Where the tasks of a sweep run: in threads, in processes or on any executor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import (
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from typing import Any, Protocol

from spanwise import errors
from spanwise.recordings.recording import Recording
from spanwise.results.jobs import Workers, starts
from spanwise.sweeps.tasks import Row, Task
from spanwise.sweeps.worker import run_task


def processor_count() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine(Protocol):
    """An executor as the sweep sees it.

    Attributes:
        name: what the header calls it.
        width: tasks that run at once.
        window: tasks that are under way at once at most, to keep all workers busy.
        remote: tasks leave this process: recordings must be files.
    """

    name: str
    width: int
    window: int
    remote: bool

    def submit(self, task: Task, content: bytes | None = None) -> Future[list[Row]]:
        """Starts a task; content: the recording's file, for a worker that does not have it."""
        ...

    def renew(self) -> bool:
        """Makes a broken engine work again; false where that is not possible."""
        ...

    def cancel(self) -> None:
        """Asks running tasks to stop, where that is possible."""
        ...

    def close(self) -> None:
        """Ends what the sweep itself began."""
        ...


class ThreadEngine:
    """Threads of this process: ours, or a ThreadPoolExecutor of the caller."""

    remote = False

    def __init__(
        self, recordings: dict[str, Recording], width: int, given: ThreadPoolExecutor | None = None
    ) -> None:
        self._recordings = recordings
        self._stop = threading.Event()
        self._own = given is None
        self.width = int(getattr(given, "_max_workers", width))
        self.window = 2 * self.width
        self._pool = given or Workers(width, "spanwise-sweep")
        self.name = f"threads, {self.width}"

    def submit(self, task: Task, content: bytes | None = None) -> Future[list[Row]]:
        """Starts a task; a recording in memory goes by reference."""
        known = None if task.recording["path"] else self._recordings[task.recording["sha256"]]
        return self._pool.submit(run_task, task.to_json(), known, self._stop.is_set, content)

    def renew(self) -> bool:
        """Threads do not die."""
        return False

    def cancel(self) -> None:
        """The tasks stop within milliseconds."""
        self._stop.set()

    def close(self) -> None:
        """Waits for our own threads."""
        if self._own:
            self._pool.shutdown(wait=True, cancel_futures=True)


# --- processes ------------------------------------------------------------------------------------

_stop_flag: Any = None  # of a worker process


def start_worker(stop: Any) -> None:
    """The first call in a worker process.

    Workers ignore Ctrl-C: the parent answers it, and sets `stop`. A worker ends itself when the
    parent was killed, or it would wait for work for ever.
    """
    global _stop_flag  # noqa: PLW0603  a process pool's initializer has no other place
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _stop_flag = stop
    starts(threading.Thread(target=_end_with_parent, name="spanwise-parent", daemon=True))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def run_in_worker(text: str, content: bytes | None) -> list[Row]:
    """A task in a worker process of ours."""
    return run_task(text, None, lambda: bool(_stop_flag.value), content)


class ProcessEngine:
    """Processes of our own. They are spawned, not forked: the parent may have threads."""

    remote = True

    def __init__(self, width: int) -> None:
        if not starts(threading.Thread(target=int, name="spanwise-probe", daemon=True)):
            raise errors.UnsupportedError(
                "executor processes: the system refused to start a thread, which a pool of"
                " processes needs; raise its limit (ulimit -u), or use threads"
            )
        self.width, self.window = width, 2 * width
        self.name = f"processes, {width}"
        self._context = multiprocessing.get_context("spawn")
        self._stop = self._context.RawValue("b", 0)  # no lock, which a killed worker could hold
        self._pool = self._make()

    def _make(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.width, self._context, initializer=start_worker, initargs=(self._stop,)
        )

    def submit(self, task: Task, content: bytes | None = None) -> Future[list[Row]]:
        """Starts a task."""
        return self._pool.submit(run_in_worker, task.to_json(), content)

    def renew(self) -> bool:
        """New processes for those that died."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = self._make()
        return True

    def cancel(self) -> None:
        """The tasks stop within milliseconds."""
        self._stop.value = 1

    def close(self) -> None:
        """Waits for the processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)


# --- any executor ---------------------------------------------------------------------------------


class GivenEngine:
    """An executor of the caller. A process pool that breaks is replaced by one of our own."""

    remote = True

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._own: ProcessEngine | None = None
        self.width = _width(executor)
        # A pool that breaks loses all that is under way, a cluster only the tasks of one worker.
        breaks = isinstance(executor, ProcessPoolExecutor)
        self.window = 2 * self.width if breaks else max(2 * self.width, 256)
        self.name = f"{type(executor).__name__}, {self.width}"

    def submit(self, task: Task, content: bytes | None = None) -> Future[list[Row]]:
        """Starts a task."""
        if self._own is not None:
            return self._own.submit(task, content)
        return self._executor.submit(run_task, task.to_json(), None, None, content)

    def renew(self) -> bool:
        """Replaces a broken process pool."""
        if self._own is not None:
            return self._own.renew()
        if isinstance(self._executor, ProcessPoolExecutor):
            self._own = ProcessEngine(self.width)
        return self._own is not None

    def cancel(self) -> None:
        """Only what has not begun can be stopped, by its future."""
        if self._own is not None:
            self._own.cancel()

    def close(self) -> None:
        """The caller's executor stays open."""
        if self._own is not None:
            self._own.close()


def _width(executor: Executor) -> int:
    """How many tasks an executor runs at once, as far as it says; else the processors here."""
    client = getattr(executor, "_client", None)  # an executor of Dask has it
    if client is not None and hasattr(client, "nthreads"):
        return max(1, int(sum(client.nthreads().values())))
    return int(getattr(executor, "_max_workers", 0)) or processor_count()


def make_engine(
    executor: Executor | str | None, workers: int | None, recordings: dict[str, Recording]
) -> Engine:
    """The engine of an executor, or of "threads" or "processes".

    Args:
        executor: "threads" (also None), "processes", or an executor.
        workers: how many, of our own; None: as many as there are processors.
        recordings: by sha256, for threads.

    Raises:
        InvalidError: an unknown word, no workers.
        TypeError: something else.
    """
    if workers is not None and workers < 1:
        raise errors.InvalidError(f"workers {workers}: give at least 1")
    count = workers or processor_count()
    if executor is None or executor == "threads":
        return ThreadEngine(recordings, count)
    if executor == "processes":
        return ProcessEngine(count)
    if isinstance(executor, str):
        raise errors.InvalidError(
            f"executor {executor!r}: give threads, processes or a concurrent.futures.Executor"
        )
    if not isinstance(executor, Executor):
        raise TypeError(
            "executor must be a concurrent.futures.Executor, threads or processes, not"
            f" {type(executor).__name__}"
        )
    # An executor of subinterpreters is a ThreadPoolExecutor too, but its threads share nothing.
    if isinstance(executor, ThreadPoolExecutor) and "Interpreter" not in type(executor).__name__:
        return ThreadEngine(recordings, count, executor)
    return GivenEngine(executor)
