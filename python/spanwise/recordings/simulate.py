# SPDX-License-Identifier: Apache-2.0
"""The simulator: a dry heap runs operations with the placement code of every heap.

No object memory is touched, and memory follows live objects, not the number of operations. Time
comes from the operations, also for what the heap gives back to the system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import RUN_SAMPLE_DTYPE, check, ffi, lib
from spanwise.heap.handle import HeapHandle
from spanwise.heap.options import DEFAULT, HeapOptions, c_options
from spanwise.ledger.ledger import Ledger, read_ledger
from spanwise.ledger.run_stats import RunStats
from spanwise.recordings.sources import Batch, FileSource, Source
from spanwise.results.progress import Step
from spanwise.tables.table import SizeClassTable

FILE_STEP = 1 << 20
"""Operations of a file that are run in one C call; Ctrl-C is heard between two: some 50 ms."""

_SAMPLES_MAX = 2048


class Simulation:
    """A dry tracked heap with a manual clock, and its runner.

    Args:
        table: size classes.
        options: of the heap.
    """

    def __init__(self, table: SizeClassTable, options: HeapOptions = DEFAULT) -> None:
        made = c_options(table, options, tracked=True, dry=True, manual_clock=True)
        self._handle = HeapHandle(made, table)
        with self._handle as heap:
            self._heap = heap
            self._runner = self._handle.runner()
        self.done = 0
        self.time_ns = 0

    def run(self, batch: Batch) -> None:
        """Runs operations."""
        if batch.count == 0:
            return
        check(lib.sw_runner_run(self._runner, batch.ops, batch.count, 0, ffi.NULL, ffi.NULL))
        self.done += batch.count
        self.time_ns = int(batch.ops[batch.count - 1].time_ns)

    def run_trace(self, trace: Any, until: int) -> bool:
        """Runs a reader's operations until `until` were run in all; false at the end of them."""
        done = ffi.new("uint64_t *", self.done)
        check(lib.sw_runner_run_trace(self._runner, trace, until, 0, ffi.NULL, done))
        self.done = int(done[0])
        return self.done >= until

    def note_time(self, run_one: Callable[[], None]) -> None:
        """Runs one operation of a file, and takes its time from a row of the time line."""
        self.sample_every(1)
        run_one()
        self.sample_every(0)
        rows = self.samples()
        self.time_ns = int(rows["time_ns"][-1]) if len(rows) else 0

    def stats(self) -> RunStats:
        """Counts so far."""
        return RunStats.read(self._runner)

    def ledger(self, at: str, source: str) -> Ledger:
        """The ledger now."""
        table = self._handle.table
        return read_ledger(
            self._heap, table, at=at, stats=self.stats(), time_ns=self.time_ns, source=source
        )

    def sample_every(self, ops: int) -> None:
        """Asks for a row of the time line every `ops` operations."""
        check(lib.sw_runner_sample_every(self._runner, ops))

    def samples(self) -> NDArray[np.void]:
        """The rows of the time line so far."""
        rows = np.zeros(_SAMPLES_MAX, RUN_SAMPLE_DTYPE)
        where = _lib.pointer(rows, "sw_replay_sample *")
        return rows[: lib.sw_runner_samples(self._runner, where, len(rows))]

    def address(self, object_id: int) -> int:
        """The address of a live object; 0 when it is not live."""
        return int(ffi.cast("uintptr_t", lib.sw_runner_address(self._runner, object_id)))

    def close(self) -> None:
        """Ends heap and runner."""
        self._handle.close()


def account(
    source: Source,
    simulation: Simulation,
    *,
    at: str,
    name: str,
    stop_op: int | None = None,
    stop_ns: int | None = None,
    progress: Step | None = None,
) -> Ledger:
    """Runs all operations, and takes the ledger at one moment of them.

    Args:
        source: the operations.
        simulation: a fresh one.
        at: name of the moment, for the ledger.
        name: name of the source, for the ledger.
        stop_op: the moment is after so many operations.
        stop_ns: the moment is after the last operation of this time or earlier.
        progress: called after each batch.

    Returns:
        The ledger at that moment, or at the end if that comes first; its stats are of the whole.
    """

    def take() -> Ledger:
        return simulation.ledger(at, name)

    if isinstance(source, FileSource) and stop_ns is None:
        found = _account_file(source, simulation, take, stop_op, progress)
    else:
        found = _account_batches(source, simulation, take, (stop_op, stop_ns), progress)
    return _with_stats(found or take(), simulation.stats())


def _account_file(
    source: FileSource,
    simulation: Simulation,
    take: Callable[[], Ledger],
    stop_op: int | None,
    progress: Step | None,
) -> Ledger | None:
    """Accounts a file with many operations a C call; the reader's blocks never come to Python."""
    trace = source.open()

    def run_to(until: int | None) -> None:
        """Runs until so many operations were run in all, or to the end of the recording."""
        going = True
        while going and (until is None or simulation.done < until):
            before = simulation.done
            step = before + FILE_STEP
            going = simulation.run_trace(trace, step if until is None else min(step, until))
            if progress is not None:
                progress(simulation.done - before)

    found: Ledger | None = None
    if stop_op is not None:
        run_to(max(stop_op - 1, 0))
        simulation.note_time(lambda: run_to(stop_op))
        found = take()
    run_to(None)
    return found


def _account_batches(
    source: Source,
    simulation: Simulation,
    take: Callable[[], Ledger],
    stop: tuple[int | None, int | None],
    progress: Step | None,
) -> Ledger | None:
    found: Ledger | None = None
    for batch in source.batches():
        before = before_stop(batch, simulation.done, *stop) if found is None else None
        if before is not None and before < batch.count:
            simulation.run(batch.first(before))
            found = take()
            simulation.run(batch.from_(before))
        else:
            simulation.run(batch)
        if progress is not None:
            progress(batch.count)
    return found


def before_stop(batch: Batch, done: int, stop_op: int | None, stop_ns: int | None) -> int | None:
    """How many operations of the batch come before the stop; None: there is no stop."""
    if stop_op is not None:
        return min(stop_op - done, batch.count)
    if stop_ns is None:
        return None
    if batch.ops[batch.count - 1].time_ns <= stop_ns:
        return batch.count
    return int(np.searchsorted(batch.array()["time_ns"], stop_ns, side="right"))


def _with_stats(ledger: Ledger, stats: RunStats) -> Ledger:
    return replace(ledger, stats=stats)
