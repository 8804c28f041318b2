# SPDX-License-Identifier: Apache-2.0
"""Where the tasks of a sweep run: threads, processes or any executor, and what if a worker dies.

Only so many tasks are under way as keep the workers busy, so a pool that breaks takes few with it.
Those are suspects: they run again one table at a time and alone, and what kills its worker alone
becomes a failed row. All other work goes on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from typing import Any, Protocol

from spanwise import errors
from spanwise._sweep_task import CancelledTaskError, Row, Task, describe, run_task
from spanwise.trace import Recording

DEATHS_IN_A_ROW = 8
"""Pools that break one after the other without a row between: no task is to blame for that."""


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

    def submit(self, task: Task) -> Future[list[Row]]:
        """Starts a task."""
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
        self._pool = given or ThreadPoolExecutor(width, "spanwise-sweep")
        self.name = f"threads, {self.width}"

    def submit(self, task: Task) -> Future[list[Row]]:
        """Starts a task; a recording in memory goes by reference."""
        known = None if task.recording["path"] else self._recordings[task.recording["sha256"]]
        return self._pool.submit(run_task, task.to_json(), known, self._stop.is_set)

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
    """First call in a worker process.

    Ctrl-C is the parent's business, which then sets `stop`. A parent that is killed says nothing;
    its workers would wait for work for ever.
    """
    global _stop_flag  # noqa: PLW0603  a process pool's initializer has no other place
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _stop_flag = stop
    threading.Thread(target=_end_with_parent, name="spanwise-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def run_in_worker(text: str) -> list[Row]:
    """A task in a worker process of ours."""
    return run_task(text, None, lambda: bool(_stop_flag.value))


class ProcessEngine:
    """Processes of our own. They are spawned, not forked: the parent may have threads."""

    remote = True

    def __init__(self, width: int) -> None:
        self.width, self.window = width, 2 * width
        self.name = f"processes, {width}"
        self._context = multiprocessing.get_context("spawn")
        self._stop = self._context.RawValue("b", 0)  # no lock that a killed worker could hold
        self._pool = self._make()

    def _make(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.width, self._context, initializer=start_worker, initargs=(self._stop,)
        )

    def submit(self, task: Task) -> Future[list[Row]]:
        """Starts a task."""
        return self._pool.submit(run_in_worker, task.to_json())

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
        # A pool that breaks takes all that is under way with it; a cluster only what a worker had.
        breaks = isinstance(executor, ProcessPoolExecutor)
        self.window = 2 * self.width if breaks else max(2 * self.width, 256)
        self.name = f"{type(executor).__name__}, {self.width}"

    def submit(self, task: Task) -> Future[list[Row]]:
        """Starts a task."""
        if self._own is not None:
            return self._own.submit(task)
        return self._executor.submit(run_task, task.to_json())

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
    client = getattr(executor, "_client", None)  # of Dask's
    if client is not None and hasattr(client, "nthreads"):
        return max(1, int(sum(client.nthreads().values())))
    return int(getattr(executor, "_max_workers", 0)) or processor_count()


def make_engine(
    executor: Executor | str | None, workers: int | None, recordings: dict[str, Recording]
) -> Engine:
    """The engine of an executor, or of a word for one.

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
    # Subinterpreters are a kind of threads that share nothing.
    if isinstance(executor, ThreadPoolExecutor) and "Interpreter" not in type(executor).__name__:
        return ThreadEngine(recordings, count, executor)
    return GivenEngine(executor)


# --- the loop -------------------------------------------------------------------------------------


class Dispatcher:
    """Runs tasks on an engine and hands over their rows as they come.

    Attributes:
        lost: how often tasks were lost with their worker.
    """

    def __init__(
        self, engine: Engine, tasks: Iterable[Task], deliver: Callable[[Sequence[Row]], None]
    ) -> None:
        self._engine = engine
        self._queue = deque(tasks)
        self._suspects: deque[Task] = deque()
        self._flying: dict[Future[list[Row]], Task] = {}
        self._deliver = deliver
        self._broken: BaseException | None = None
        self._deaths = 0  # of pools, since the last row
        self.lost = 0

    def run(self) -> None:
        """To the end. What interrupts it (Ctrl-C) stops the tasks; rows that are there are kept."""
        try:
            while self._queue or self._suspects or self._flying:
                self._submit()
                if self._flying:
                    done, _ = wait(self._flying, return_when=FIRST_COMPLETED)
                    for future in done:
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
        """Keeps the workers busy."""
        if self._broken is not None and not self._flying:
            self._mend(self._broken)
        while self._broken is None and self._may_submit():
            source = self._suspects or self._queue
            task = source.popleft()
            try:
                self._flying[self._engine.submit(task)] = task
            except Exception as error:  # broken, or shut down by somebody else
                source.appendleft(task)
                self._broken = error
                if not self._flying:
                    self._mend(error)

    def _may_submit(self) -> bool:
        """A suspect runs alone; else as many as keep the workers busy."""
        if self._suspects:
            return not self._flying
        alone = any(task.attempt for task in self._flying.values())
        return bool(self._queue) and not alone and len(self._flying) < self._engine.window

    def _mend(self, error: BaseException) -> None:
        """Goes on with new workers, or fails what is left."""
        self._deaths += 1
        self._broken = None
        if self._deaths <= DEATHS_IN_A_ROW and self._engine.renew():
            return
        text = f"no workers left: {describe(error)}"
        if self._deaths > DEATHS_IN_A_ROW:
            text += '; a script that sweeps with processes needs `if __name__ == "__main__":`'
        for task in (*self._suspects, *self._queue):
            self._deliver(task.failures(text))
        self._suspects.clear()
        self._queue.clear()

    def _settle(self, future: Future[list[Row]], task: Task) -> None:
        try:
            rows = future.result()
        except CancelledTaskError:
            return
        except Exception as error:
            self._settle_failure(task, error)
            return
        self._deaths = 0
        self._deliver(rows)

    def _settle_failure(self, task: Task, error: Exception) -> None:
        """A task that raised: the first time it is a suspect, whatever was raised.

        Tasks tell their own failures in rows. What is raised comes from the executor: a dead
        worker, or a result that was lost on its way, for which each executor has its own words.
        """
        died = _worker_died(error)
        self.lost += died
        if isinstance(error, BrokenExecutor):
            self._broken = error
        if not task.attempt:
            self._suspects.extend(task.singles())
            return
        why = "its worker died: " if died else ""  # it was alone
        self._deliver(task.failures(why + describe(error)))


def _worker_died(error: BaseException) -> bool:
    """Whether the worker is gone, rather than its task failed. Dask has errors of its own."""
    lost = isinstance(error, BrokenExecutor | CancelledError)
    return lost or type(error).__module__.partition(".")[0] == "distributed"
