# SPDX-License-Identifier: Apache-2.0
"""The tasks of a sweep are kept under way on an engine, also when workers die.

Only as many tasks are under way as keep the workers busy, so a pool that breaks loses few. The lost
tasks are suspects: they run again, alone and one table at a time, and one that kills its worker
while it is alone becomes a failed row. All other work goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from dataclasses import replace

from spanwise.errors import InvalidError, SpanwiseError
from spanwise.results.jobs import first_ended
from spanwise.sweeps.engines import Engine
from spanwise.sweeps.inputs import AbsentRecordingError, content_of, wanted_sha256
from spanwise.sweeps.tasks import Row, Task
from spanwise.sweeps.worker import CancelledTaskError, describe

DEATHS_IN_A_ROW = 8
"""If more pools than this break without a row between them, the sweep ends: no task is to blame."""

LACKED_MAX, LACKED_SEND = 16, 4
"""A task fails after it met so many workers without its recording. The file is sent along if that
worker was not sent it before, and each fourth time, since only the executor decides which worker
runs a task."""


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
        self._sent: set[tuple[str, str]] = set()  # worker, hash of a file
        self.lost = 0

    def run(self) -> None:
        """To the end. What interrupts it (Ctrl-C) stops the tasks; rows that are there are kept."""
        try:
            while self._queue or self._suspects or self._flying:
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
        except AbsentRecordingError as error:
            self._send(task, error)
            return
        except Exception as error:
            self._settle_failure(task, error)
            return
        self._deaths = 0
        self._deliver(rows)

    def _send(self, task: Task, error: AbsentRecordingError) -> None:
        """Submits a task anew whose worker lacks the recording; with the file, if none was sent."""
        sent = (error.worker, wanted_sha256(task.recording))
        again = replace(task, lacked=task.lacked + 1)
        content = None
        try:
            if again.lacked > LACKED_MAX:
                raise InvalidError(f"it was sent {again.lacked} times in vain")
            if sent not in self._sent or again.lacked % LACKED_SEND == 0:
                content = content_of(task.recording)
        except (SpanwiseError, OSError) as refused:
            self._deliver(task.failures(f"{error}; {describe(refused)}"))
            return
        self._sent.add(sent)
        try:
            self._flying[self._engine.submit(again, content)] = again
        except Exception as broken:
            self._queue.appendleft(again)
            self._broken = broken

    def _settle_failure(self, task: Task, error: Exception) -> None:
        """A task that raised becomes a suspect, whatever was raised, or failed rows.

        Tasks tell their own failures in rows. What is raised comes from the executor: a dead
        worker, or a result that was lost on its way, for which each executor has its own words.
        """
        died = _worker_died(error)
        self.lost += died
        if isinstance(error, BrokenExecutor):
            self._broken = error
        # A pool that breaks under one task says which. A cluster may lose a worker for a reason of
        # its own: there a task fails when it was alone twice.
        of_cluster = died and not isinstance(error, BrokenExecutor)
        if task.attempt < (2 if of_cluster else 1):
            self._suspects.extend(task.singles())
            return
        why = "its worker died: " if died else ""  # it was alone
        self._deliver(task.failures(why + describe(error)))


def _worker_died(error: BaseException) -> bool:
    """Whether an error says that the worker died, not that its task failed."""
    lost = isinstance(error, BrokenExecutor | CancelledError)
    return lost or type(error).__module__.partition(".")[0] == "distributed"
