# SPDX-License-Identifier: Apache-2.0
"""The tasks of a sweep (one recording and one table each), their rows, and their executors.

A task is sent as JSON: the recording by path and hash, the table by its classes. Rows are plain
values, even those of failures. If a worker dies, its task becomes a failed row, and the other tasks
continue.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import socket
import threading
import time
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib, errors
from spanwise.heap.options import HeapOptions
from spanwise.ledger.parts import PARTS
from spanwise.recordings.recording import Recording
from spanwise.results.jobs import first_ended
from spanwise.sweeps.row_file import (
    COUNT,
    HASH,
    MOMENT,
    NUMBER,
    OBJECT,
    OBJECTS,
    TABLES,
    TEXT,
    Row,
    RowKind,
    optional,
)
from spanwise.tables.classes import file_specs
from spanwise.tables.table import SizeClassTable

LEDGER_FIELDS = (
    *PARTS,
    "held_bytes",
    "resident_bytes",
    "waste_bytes",
    "live_objects",
    "spans",
    "time_ns",
)
STATS_FIELDS = (
    "failed",
    "skipped",
    "peak_requested_bytes",
    "peak_held_bytes",
    "peak_resident_bytes",
    "held_at_peak_bytes",
    "mean_held_over_requested",
)
VALUE_FIELDS = (*LEDGER_FIELDS, "events", *STATS_FIELDS)
"""The values of a row; None in a failed row."""

ROW_FIELDS = (
    "recording",
    "recording_sha256",
    "table",
    "table_hash",
    "classes",
    "at",
    *VALUE_FIELDS,
    "seconds",
    "worker",
    "error",
)
"""All fields of a row."""

_TYPES = {
    **dict.fromkeys(ROW_FIELDS, optional(COUNT)),
    **{"recording": TEXT, "recording_sha256": optional(TEXT), "table": TEXT, "at": MOMENT},
    **{"table_hash": optional(HASH), "classes": COUNT},
    **{"mean_held_over_requested": optional(NUMBER), "seconds": optional(NUMBER)},
    **{"worker": optional(TEXT), "error": optional(TEXT)},
}
SWEEP = RowKind(
    "sweep",
    {"at": MOMENT, "options": OBJECT, "recordings": OBJECTS, "tables": TABLES},
    _TYPES,
    (
        *("recording_sha256", "table_hash"),
        *(name for name in VALUE_FIELDS if name != "mean_held_over_requested"),
    ),
)


@dataclass(frozen=True)
class Task:
    """A recording and a table for a worker.

    Attributes:
        recording: name, path and sha256 of the recording, valid_prefix; path None: in memory.
        table: its name, hash (hexadecimal), page_bytes and classes [[size, pages, first pages]].
    """

    library: str  # version of spanwise of the sweep
    recording: dict[str, Any]
    at: str | float  # moment of the ledgers, as in `Recording.ledger`
    options: dict[str, Any]  # fields of `HeapOptions`
    table: dict[str, Any]

    def to_json(self) -> str:
        """Return the task as JSON."""
        return json.dumps(asdict(self))

    def row(self, *, error: str | None = None, **values: Any) -> Row:
        """Return the row; without values, of a failure."""
        return {
            "recording": self.recording["name"],
            "recording_sha256": self.recording["sha256"],
            "table": self.table["name"],
            "table_hash": self.table["hash"],
            "classes": len(self.table["classes"]),
            "at": self.at,
            **{name: values.get(name) for name in (*VALUE_FIELDS, "seconds", "worker")},
            "error": error,
        }


def table_spec(table: SizeClassTable) -> dict[str, Any]:
    """Return a table in the form of a task."""
    file = table.to_dict()
    classes = [list(spec) for spec in file_specs(file)]
    return {
        "name": table.name,
        "hash": f"{table.hash:016x}",
        "page_bytes": table.page_bytes,
        "classes": classes,
    }


def spec_table(spec: dict[str, Any]) -> SizeClassTable:
    """Return the table of `table_spec`."""
    classes = [(size, pages, first) for size, pages, first in spec["classes"]]
    table = SizeClassTable.custom(classes, name=spec["name"], page_bytes=spec["page_bytes"])
    if f"{table.hash:016x}" != spec["hash"]:
        raise errors.InvalidError(
            f"table {spec['name']}: hash {table.hash:016x} here, {spec['hash']} in the sweep;"
            " use the same spanwise on all workers"
        )
    return table


def describe(error: BaseException) -> str:
    """Describe an error on one line, with its type if the message is not enough."""
    text = " ".join(str(error).split())
    if isinstance(error, errors.SpanwiseError) and text:
        return text
    if isinstance(error, OSError) and error.strerror:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# --- recordings -----------------------------------------------------------------------------------


def worker_name() -> str:
    """Return host and process id, for rows."""
    return f"{socket.gethostname()}:{os.getpid()}"


def ops_sha256(ops: NDArray[np.void]) -> str:
    """Return the hash of operations in memory."""
    return hashlib.sha256(np.ascontiguousarray(ops).view(np.uint8).data).hexdigest()


def file_sha256(path: str) -> str:
    """Return the hash of a file, cached by the file's identity, size and time."""
    status = Path(path).stat()
    return _file_sha256(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))


@functools.lru_cache(maxsize=1024)
def _file_sha256(path: str, _identity: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def open_checked(recording: dict[str, Any]) -> Recording:
    """Open a recording by its path if the hash matches."""
    path, host = recording["path"], socket.gethostname()
    wanted = recording.get("file_sha256", recording["sha256"])  # set if it was in memory
    try:
        found = file_sha256(path)
    except FileNotFoundError:
        raise errors.InvalidError(
            f"{path}: is not on {host}; put the same file there, under the same name"
        ) from None
    if found != wanted:
        raise errors.InvalidError(
            f"{path}: sha256 {found[:16]}... on {host}, {wanted[:16]}... in the sweep; put the same"
            " file there"
        )
    return _open(path, wanted, recording["valid_prefix"])


@functools.lru_cache(maxsize=16)
def _open(path: str, _sha256: str, valid_prefix: bool) -> Recording:
    """Open a recording; cached, because the summary of a raw one costs a pass."""
    return Recording.open(path, valid_prefix)


# --- the worker -----------------------------------------------------------------------------------


class CancelledTaskError(Exception):
    """The sweep was interrupted; the task has no rows."""


def run_task(
    text: str, recording: Recording | None = None, cancelled: Callable[[], bool] | None = None
) -> list[Row]:
    """Run a task, and return its row."""
    task, begin = Task(**json.loads(text)), time.perf_counter()

    def step(_operations: int) -> None:
        if cancelled is not None and cancelled():
            raise CancelledTaskError

    try:
        here = _lib.version()
        if here != task.library:
            raise errors.UnsupportedError(
                f"worker {socket.gethostname()} has spanwise {here}, the sweep {task.library};"
                " install the same there"
            )
        opened = open_checked(task.recording) if recording is None else recording
        table, options = spec_table(task.table), HeapOptions(**task.options)
        ledger = opened.ledger(table, task.at, options=options, progress=step)
    except CancelledTaskError:
        raise
    except Exception as error:
        return [task.row(error=describe(error), worker=worker_name())]
    assert ledger.stats is not None
    values = {name: getattr(ledger, name) for name in LEDGER_FIELDS}
    values |= {name: getattr(ledger.stats, name) for name in ("events", *STATS_FIELDS)}
    seconds = round(time.perf_counter() - begin, 6)
    return [task.row(seconds=seconds, worker=worker_name(), **values)]


# --- engines --------------------------------------------------------------------------------------


def processor_count() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine:
    """An executor for a sweep.

    Attributes:
        window: maximum number of submitted tasks, enough to keep all workers busy.
        remote: whether tasks leave this process, so that recordings must be files.
    """

    name: str  # in headers
    width: int  # tasks that run at once
    window: int
    remote = True

    def submit(self, task: Task) -> Future[list[Row]]:
        """Submit a task."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Stop running tasks where possible; the sweep cancels those that have not started."""

    def close(self) -> None:
        """Close what the sweep itself opened."""


class ThreadEngine(Engine):
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


class GivenEngine(Engine):
    """An executor of the caller."""

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
            self._deliver([task.row(error=f"no workers left: {describe(error)}")])
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
            self._deliver([task.row(error=why + describe(error))])
            return
        self._deliver(rows)


def _worker_died(error: BaseException) -> bool:
    """Return whether an error means that the worker died, not that its result was lost."""
    lost = isinstance(error, BrokenExecutor | CancelledError)
    return lost or type(error).__module__.partition(".")[0] == "distributed"
