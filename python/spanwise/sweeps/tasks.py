# SPDX-License-Identifier: Apache-2.0
"""The tasks of a sweep: one recording and a few tables each, and their rows.

A task is sent as JSON: the recording by path and hash, the tables by their classes. Rows are plain
values, even those of failures.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib, errors
from spanwise._lib import OPS_DTYPE, check, ffi, lib
from spanwise.heap.options import HeapOptions
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.recordings.recording import Recording
from spanwise.recordings.simulate import Simulation, before_stop
from spanwise.recordings.sources import Batch, FileSource
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
    """A recording and tables for a worker.

    Attributes:
        library: version of spanwise of the sweep.
        recording: name, path and sha256 of the recording, valid_prefix; path None: in memory.
        at: moment of the ledgers, as of `Recording.ledger`.
        options: fields of `HeapOptions`.
        tables: name, hash (hexadecimal), page_bytes and classes [[size, pages, first pages]] of
            each table.
    """

    library: str
    recording: dict[str, Any]
    at: str | float
    options: dict[str, Any]
    tables: tuple[dict[str, Any], ...]

    def to_json(self) -> str:
        """Return the task as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Return the task of `to_json`."""
        value = json.loads(text)
        return cls(**{**value, "tables": tuple(value["tables"])})

    def failures(self, error: str) -> list[Row]:
        """Return a failed row for each table."""
        return [self.row(table, error=error) for table in self.tables]

    def row(self, table: dict[str, Any], *, error: str | None = None, **values: Any) -> Row:
        """Return a row of one of the tables."""
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


BLOCK_OPS = 1 << 19
"""Operations decoded at once, 16 MiB, so that each heap runs long with warm processor caches."""


class CancelledTaskError(Exception):
    """The sweep was interrupted; the task has no rows."""


def _blocks(recording: Recording) -> Iterator[Batch]:
    """Yield the operations in large blocks, decoded into the same memory."""
    source = recording._source
    if not isinstance(source, FileSource):
        yield from source.batches()
        return
    trace = source.open()
    block = np.empty(BLOCK_OPS, OPS_DTYPE)
    start, count = _lib.pointer(block, "sw_op *"), ffi.new("size_t *")
    while True:
        check(lib.sw_trace_read(trace.c, start, BLOCK_OPS, count))
        if count[0]:
            yield Batch(start, int(count[0]))
        if count[0] < BLOCK_OPS:
            return


class _Lane:
    """The run of one table."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.stop_op: int | None = None
        self.stop_ns: int | None = None
        self.simulation: Simulation | None = None
        self.ledger: Ledger | None = None
        self.seconds = 0.0
        self.error: str | None = None

    def do(self, step: Callable[[], None]) -> None:
        """Run a step; an error fails only this table."""
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
        """Create the table and its dry heap."""
        self.close()
        options = HeapOptions(**task.options)
        self.simulation = Simulation(spec_table(self.spec), options, resident=True)
        self.simulation.time_ns = end_ns

    def run(self, batch: Batch) -> None:
        """Run operations."""
        assert self.simulation is not None
        self.simulation.run(batch)

    def run_through(self, batch: Batch, at: str, name: str) -> None:
        """Run operations, and take the ledger if its moment is among them."""
        assert self.simulation is not None
        done = self.simulation.done
        stop = None
        if self.ledger is None:
            stop = before_stop(batch, done, self.stop_op, self.stop_ns)
        if stop is None or stop >= batch.count:
            self.run(batch)
            return
        self.run(batch.first(stop))
        self.take(at, name)
        self.run(batch.from_(stop))

    def stop_at_resident_peak(self) -> None:
        """Set the moment to the peak resident bytes of the run so far."""
        assert self.simulation is not None
        self.stop_op = self.simulation.resident_peak()[1]

    def take(self, at: str, name: str) -> None:
        """Take the ledger unless it was taken."""
        if self.ledger is None:
            assert self.simulation is not None
            self.ledger = self.simulation.ledger(at, name)

    def values(self) -> dict[str, Any]:
        """Return the values of the row."""
        assert self.ledger is not None and self.simulation is not None
        stats = self.simulation.stats()
        found = {name: getattr(self.ledger, name) for name in LEDGER_FIELDS}
        found.update({name: getattr(stats, name) for name in STATS_FIELDS})
        return {**found, "events": stats.events}

    def close(self) -> None:
        """Close the heap."""
        if self.simulation is not None:
            self.simulation.close()
            self.simulation = None


def run_task(
    text: str,
    recording: Recording | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> list[Row]:
    """Run a task."""
    task = Task.from_json(text)
    lanes = [_Lane(spec) for spec in task.tables]
    try:
        _check_library(task)
        opened = recording if recording is not None else open_checked(task.recording)
        _run_lanes(task, opened, lanes, cancelled or _never)
        return [_row_of(task, lane, worker_name()) for lane in lanes]
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
    """Run all operations in all heaps, and take the ledgers at their moment.

    The moment of the peak resident bytes depends on the table, so a first pass finds it.
    """
    at, stop_op, stop_ns = recording._moment(task.at)
    end_ns = recording.summary.duration_ns if task.at == "end" else 0
    for lane in lanes:
        lane.stop_op, lane.stop_ns = stop_op, stop_ns
        lane.do(functools.partial(lane.start, task, end_ns))
    if at == "peak-resident":
        _pass(recording, lanes, cancelled, lambda lane, batch: lane.run(batch))
        for lane in lanes:
            lane.do(lane.stop_at_resident_peak)
            lane.do(functools.partial(lane.start, task, end_ns))
    name = recording.name
    _pass(recording, lanes, cancelled, lambda lane, batch: lane.run_through(batch, at, name))
    for lane in lanes:
        lane.do(functools.partial(lane.take, at, name))


def _pass(
    recording: Recording,
    lanes: Sequence[_Lane],
    cancelled: Callable[[], bool],
    step: Callable[[_Lane, Batch], None],
) -> None:
    """Make one pass over the operations; lanes share the time of reading."""
    mark = time.perf_counter()
    reading = 0.0
    for batch in _blocks(recording):
        reading += time.perf_counter() - mark
        for lane in lanes:
            if cancelled():
                raise CancelledTaskError
            lane.do(functools.partial(step, lane, batch))
        mark = time.perf_counter()
    reading += time.perf_counter() - mark
    for lane in lanes:
        lane.seconds += reading / len(lanes)
