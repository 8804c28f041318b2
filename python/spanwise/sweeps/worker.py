# SPDX-License-Identifier: Apache-2.0
"""The worker of a sweep: runs one task and returns its rows.

All tables of a task share one pass over the operations. A failure for one table becomes that
table's failed row.
"""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from spanwise import _lib, errors
from spanwise._lib import OPS_DTYPE, check, ffi, lib
from spanwise.heap.options import HeapOptions
from spanwise.ledger.ledger import Ledger
from spanwise.recordings.recording import Recording
from spanwise.recordings.simulate import Simulation, before_stop
from spanwise.recordings.sources import Batch, FileSource
from spanwise.sweeps.row_file import Row
from spanwise.sweeps.tasks import (
    LEDGER_FIELDS,
    STATS_FIELDS,
    Task,
    describe,
    open_checked,
    spec_table,
    worker_name,
)

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
