# SPDX-License-Identifier: Apache-2.0
"""Run the tasks of a sweep in threads or on any executor.

A task that is lost with its worker becomes failed rows, and all other work goes on.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from typing import Protocol

from spanwise import errors
from spanwise.recordings.recording import Recording
from spanwise.results.jobs import first_ended
from spanwise.sweeps.row_file import Row
from spanwise.sweeps.tasks import CancelledTaskError, Task, describe, run_task


def processor_count() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine(Protocol):
    """An executor for a sweep.

    Attributes:
        name: in headers.
        width: tasks that run at once.
        window: maximum number of submitted tasks, enough to keep all workers busy.
        remote: whether tasks leave this process, so that recordings must be files.
    """

    name: str
    width: int
    window: int
    remote: bool

    def submit(self, task: Task) -> Future[list[Row]]:
        """Submit a task."""
        ...

    def cancel(self) -> None:
        """Stop running tasks where possible."""
        ...

    def close(self) -> None:
        """Close what the sweep itself opened."""
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
        self._pool = given or ThreadPoolExecutor(width, "spanwise-sweep")
        self.name = f"threads, {self.width}"

    def submit(self, task: Task) -> Future[list[Row]]:
        """Submit a task; a recording in memory is passed by reference."""
        known = None if task.recording["path"] else self._recordings[task.recording["sha256"]]
        return self._pool.submit(run_task, task.to_json(), known, self._stop.is_set)

    def cancel(self) -> None:
        """Stop the tasks within milliseconds."""
        self._stop.set()

    def close(self) -> None:
        """Wait for our own threads."""
        if self._own:
            self._pool.shutdown(wait=True, cancel_futures=True)


# --- any executor ---------------------------------------------------------------------------------


class GivenEngine:
    """An executor of the caller."""

    remote = True

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.width = _width(executor)
        # A broken pool loses all running tasks, a cluster only those of one worker.
        breaks = isinstance(executor, ProcessPoolExecutor)
        self.window = 2 * self.width if breaks else max(2 * self.width, 256)
        self.name = f"{type(executor).__name__}, {self.width}"

    def submit(self, task: Task) -> Future[list[Row]]:
        """Submit a task."""
        return self._executor.submit(run_task, task.to_json())

    def cancel(self) -> None:
        """Do nothing: the sweep cancels futures, which stops tasks that have not started."""

    def close(self) -> None:
        """Leave the executor open."""


def _width(executor: Executor) -> int:
    """Return how many tasks an executor runs at once; the default is processor_count()."""
    client = getattr(executor, "_client", None)  # an executor of Dask has it
    if client is not None and hasattr(client, "nthreads"):
        return max(1, int(sum(client.nthreads().values())))
    return int(getattr(executor, "_max_workers", 0)) or processor_count()


def make_engine(
    executor: Executor | None, workers: int | None, recordings: dict[str, Recording]
) -> Engine:
    """Return the engine of an executor; None: threads of our own, for recordings by sha256."""
    if workers is not None and workers < 1:
        raise errors.InvalidError(f"workers {workers}: give at least 1")
    count = workers or processor_count()
    if executor is None:
        return ThreadEngine(recordings, count)
    if not isinstance(executor, Executor):
        raise TypeError(
            f"executor must be a concurrent.futures.Executor, not {type(executor).__name__}"
        )
    # An executor of subinterpreters is a ThreadPoolExecutor too, but its threads share nothing.
    if isinstance(executor, ThreadPoolExecutor) and "Interpreter" not in type(executor).__name__:
        return ThreadEngine(recordings, count, executor)
    return GivenEngine(executor)


# --- the dispatcher -------------------------------------------------------------------------------


class Dispatcher:
    """Runs tasks on an engine and delivers their rows."""

    def __init__(
        self, engine: Engine, tasks: Iterable[Task], deliver: Callable[[Sequence[Row]], None]
    ) -> None:
        self._engine = engine
        self._queue = deque(tasks)
        self._flying: dict[Future[list[Row]], Task] = {}
        self._deliver = deliver
        self._broken: BaseException | None = None

    def run(self) -> None:
        """Run all tasks. An interrupt (Ctrl-C) stops them; finished rows are delivered."""
        try:
            while self._queue or self._flying:
                self._submit()
                if self._flying:
                    for future in first_ended(self._flying):
                        self._settle(future, self._flying.pop(future))
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        self._engine.cancel()
        for future in self._flying:
            future.cancel()
        for future in [one for one in self._flying if one.done() and not one.cancelled()]:
            if future.exception() is None:
                self._deliver(future.result())

    def _submit(self) -> None:
        if self._broken is not None and not self._flying:
            self._recover(self._broken)
        while self._broken is None and self._queue and len(self._flying) < self._engine.window:
            task = self._queue[0]
            try:
                self._flying[self._engine.submit(task)] = task
            except Exception as error:  # the executor is broken or shut down
                self._broken = error
                return
            self._queue.popleft()

    def _recover(self, error: BaseException) -> None:
        """Fail the remaining tasks."""
        self._broken = None
        for task in self._queue:
            self._deliver(task.failures(f"no workers left: {describe(error)}"))
        self._queue.clear()

    def _settle(self, future: Future[list[Row]], task: Task) -> None:
        """Deliver rows. Tasks raise nothing of their own, so an exception is the executor's."""
        try:
            rows = future.result()
        except CancelledTaskError:
            return
        except Exception as error:
            if isinstance(error, BrokenExecutor):
                self._broken = error
            why = "its worker died: " if _worker_died(error) else ""
            self._deliver(task.failures(why + describe(error)))
            return
        self._deliver(rows)


def _worker_died(error: BaseException) -> bool:
    """Return whether an error means that the worker died, not that its result was lost."""
    lost = isinstance(error, BrokenExecutor | CancelledError)
    return lost or type(error).__module__.partition(".")[0] == "distributed"
