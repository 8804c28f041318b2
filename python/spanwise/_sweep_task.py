# SPDX-License-Identifier: Apache-2.0
"""One task of a sweep, as a worker runs it: one recording, a few tables, one pass.

A task travels as JSON: the recording by path and hash, the tables by their classes. What comes back
is rows of plain values, also for what failed. Nothing here knows where it runs.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib, errors
from spanwise._lib import OPS_DTYPE, check, ffi, lib
from spanwise._parts import PARTS
from spanwise._trace import Batch, FileSource
from spanwise.ledger import Ledger
from spanwise.simulate import Simulation, before_stop
from spanwise.sizeclass import SizeClassTable
from spanwise.trace import Recording

BLOCK_OPS = 1 << 19
"""Operations decoded at once, 16 MiB: each heap runs long enough to have the caches to itself."""

LEDGER_FIELDS = (*PARTS, "held_bytes", "waste_bytes", "live_objects", "spans", "time_ns")
STATS_FIELDS = (
    "failed",
    "skipped",
    "peak_requested_bytes",
    "peak_held_bytes",
    "held_at_peak",
    "mean_held_over_requested",
)
VALUE_FIELDS = (*LEDGER_FIELDS, "events", *STATS_FIELDS)
"""What a row says of a table; None in a failed row."""

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
"""Every field of a row."""

Row = dict[str, Any]


class CancelledTaskError(Exception):
    """The sweep was interrupted; the task has no rows."""


@dataclass(frozen=True)
class Task:
    """What a worker is asked to do.

    Attributes:
        library: version of spanwise that the sweep was started with.
        recording: name, path and sha256 of the recording, valid_prefix; path None: in memory.
        at: moment of the ledgers, as of `Recording.ledger`.
        knobs: placement, decay_ms, batch, limit.
        tables: name, hash (hexadecimal), page_bytes and classes [[size, pages]] of each table.
        attempt: 0, or how often a worker died on it before.
    """

    library: str
    recording: dict[str, Any]
    at: str | float
    knobs: dict[str, Any]
    tables: tuple[dict[str, Any], ...]
    attempt: int = 0

    def to_json(self) -> str:
        """The task as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """The task of `to_json`."""
        value = json.loads(text)
        return cls(**{**value, "tables": tuple(value["tables"])})

    def singles(self) -> list[Task]:
        """The same work as tasks of one table each."""
        return [replace(self, tables=(one,), attempt=self.attempt + 1) for one in self.tables]

    def failures(self, error: str) -> list[Row]:
        """A failed row for each table."""
        return [self.row(table, error=error) for table in self.tables]

    def row(self, table: dict[str, Any], *, error: str | None = None, **values: Any) -> Row:
        """A row of one of the tables."""
        return {
            "recording": self.recording["name"],
            "recording_sha256": self.recording["sha256"],
            "table": table["name"],
            "table_hash": table["hash"],
            "classes": len(table["classes"]),
            "at": self.at,
            **{name: values.get(name) for name in VALUE_FIELDS},
            "seconds": values.get("seconds"),
            "worker": values.get("worker"),
            "error": error,
        }


def table_spec(table: SizeClassTable) -> dict[str, Any]:
    """A table as a task has it."""
    file = table.to_table_file()
    classes = [[one["size"], one["pages"]] for one in file["classes"]]
    return {
        "name": table.name,
        "hash": f"{table.hash:016x}",
        "page_bytes": table.page_bytes,
        "classes": classes,
    }


def spec_table(spec: dict[str, Any]) -> SizeClassTable:
    """The table of `table_spec`.

    Raises:
        InvalidError: it is no table, or not the one that its hash names.
    """
    classes = [(size, pages) for size, pages in spec["classes"]]
    table = SizeClassTable.custom(classes, name=spec["name"], page_bytes=spec["page_bytes"])
    if f"{table.hash:016x}" != spec["hash"]:
        raise errors.InvalidError(
            f"table {spec['name']}: hash {table.hash:016x} here, {spec['hash']} in the sweep;"
            " use the same spanwise on all workers"
        )
    return table


# --- recordings -----------------------------------------------------------------------------------


def ops_sha256(ops: NDArray[np.void]) -> str:
    """Hash of operations in memory."""
    return hashlib.sha256(np.ascontiguousarray(ops).view(np.uint8).data).hexdigest()


def file_sha256(path: str) -> str:
    """Hash of a file; remembered as long as the file's identity, size and time stay.

    Raises:
        OSError: it cannot be read.
    """
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
    """A recording by its path, if it is the one that the sweep means.

    Raises:
        InvalidError: the file there has another hash.
        OSError: there is no such file here, or it cannot be read. Else as `Recording.open`.
    """
    path = recording["path"]
    wanted = recording.get("file_sha256", recording["sha256"])  # of one that was in memory
    found = file_sha256(path)
    if found != wanted:
        raise errors.InvalidError(
            f"{path}: sha256 {found[:16]}... on {socket.gethostname()}, {wanted[:16]}... in the"
            " sweep; put the same file there"
        )
    return _open(path, wanted, recording["valid_prefix"])


@functools.lru_cache(maxsize=16)
def _open(path: str, _sha256: str, valid_prefix: bool) -> Recording:
    """Kept, because a raw recording's summary costs a pass."""
    return Recording.open(path, valid_prefix)


def _blocks(recording: Recording) -> Iterator[Batch]:
    """The operations in large blocks, decoded once into the same memory."""
    source = recording._source
    if not isinstance(source, FileSource):
        yield from source.batches()
        return
    trace = source.open()
    block = np.empty(BLOCK_OPS, OPS_DTYPE)
    start, count = _lib.pointer(block, "sw_op *"), ffi.new("size_t *")
    while True:
        check(lib.sw_trace_read(trace, start, BLOCK_OPS, count))
        if count[0]:
            yield Batch(start, int(count[0]))
        if count[0] < BLOCK_OPS:
            return


# --- running --------------------------------------------------------------------------------------


class _Lane:
    """One table's way through the operations."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.simulation: Simulation | None = None
        self.ledger: Ledger | None = None
        self.seconds = 0.0
        self.error: str | None = None

    def do(self, step: Callable[[], None]) -> None:
        """A step of this table alone: what fails here fails no other table."""
        if self.error is not None:
            return
        start = time.perf_counter()
        try:
            step()
        except Exception as error:
            self.error = describe(error)
            self.close()
        self.seconds += time.perf_counter() - start

    def start(self, task: Task, end_ns: int) -> None:
        """Makes the table and its dry heap."""
        self.simulation = Simulation(spec_table(self.spec), **task.knobs)
        self.simulation.time_ns = end_ns

    def run(self, batch: Batch) -> None:
        """Runs operations."""
        assert self.simulation is not None
        self.simulation.run(batch)

    def take(self, at: str, name: str) -> None:
        """Takes the ledger, once."""
        if self.ledger is None:
            assert self.simulation is not None
            self.ledger = self.simulation.ledger(at, name)

    def values(self) -> dict[str, Any]:
        """What the row says."""
        assert self.ledger is not None and self.simulation is not None
        stats = self.simulation.stats()
        found = {name: getattr(self.ledger, name) for name in LEDGER_FIELDS}
        found.update({name: getattr(stats, name) for name in STATS_FIELDS})
        return {**found, "events": stats.events}

    def close(self) -> None:
        """Ends the heap."""
        if self.simulation is not None:
            self.simulation.close()
            self.simulation = None


def describe(error: BaseException) -> str:
    """An error as one line; its kind is named where the message alone would not say it."""
    text = " ".join(str(error).split())
    if isinstance(error, errors.SpanwiseError) and text:
        return text
    if isinstance(error, OSError) and error.strerror:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def run_task(
    text: str,
    recording: Recording | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> list[Row]:
    """Does a task.

    Args:
        text: the task, of `Task.to_json`.
        recording: the recording itself, where the worker shares memory with the sweep.
        cancelled: asked every few milliseconds whether to stop.

    Returns:
        A row for each table, in the task's order; failed ones have `error`.

    Raises:
        CancelledTaskError: `cancelled` said so.
    """
    task = Task.from_json(text)
    lanes = [_Lane(spec) for spec in task.tables]
    try:
        _check_library(task)
        opened = recording if recording is not None else open_checked(task.recording)
        _run_lanes(task, opened, lanes, cancelled or _never)
        worker = f"{socket.gethostname()}:{os.getpid()}"
        return [_row_of(task, lane, worker) for lane in lanes]
    except CancelledTaskError:
        raise
    except Exception as error:
        return task.failures(describe(error))
    finally:
        for lane in lanes:
            lane.close()


def _never() -> bool:
    return False


def _check_library(task: Task) -> None:
    here = _lib.version()
    if here != task.library:
        raise errors.UnsupportedError(
            f"worker {socket.gethostname()} has spanwise {here}, the sweep {task.library};"
            " install the same there"
        )


def _row_of(task: Task, lane: _Lane, worker: str) -> Row:
    if lane.error is not None:
        return task.row(lane.spec, error=lane.error, worker=worker)
    seconds = round(lane.seconds, 6)
    return task.row(lane.spec, seconds=seconds, worker=worker, **lane.values())


def _run_lanes(
    task: Task, recording: Recording, lanes: Sequence[_Lane], cancelled: Callable[[], bool]
) -> None:
    """All operations through all heaps, decoded once; the ledgers are taken on the way."""
    at, stop_op, stop_ns = recording._moment(task.at)
    end_ns = recording.summary.duration_ns if task.at == "end" else 0
    for lane in lanes:
        lane.do(functools.partial(lane.start, task, end_ns))
    done, taken = 0, stop_op is None and stop_ns is None
    mark = time.perf_counter()
    reading = 0.0
    for batch in _blocks(recording):
        reading += time.perf_counter() - mark
        before = None if taken else before_stop(batch, done, stop_op, stop_ns)
        taken = taken or (before is not None and before < batch.count)
        for lane in lanes:
            if cancelled():
                raise CancelledTaskError
            lane.do(functools.partial(_step, lane, batch, before, at, recording.name))
        done += batch.count
        mark = time.perf_counter()
    reading += time.perf_counter() - mark
    for lane in lanes:
        lane.do(functools.partial(lane.take, at, recording.name))
        lane.seconds += reading / len(lanes)


def _step(lane: _Lane, batch: Batch, before: int | None, at: str, name: str) -> None:
    if before is None or before >= batch.count:
        lane.run(batch)
        return
    lane.run(batch.first(before))
    lane.take(at, name)
    lane.run(batch.from_(before))
