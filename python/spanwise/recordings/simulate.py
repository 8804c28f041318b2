# SPDX-License-Identifier: Apache-2.0
"""The simulator: a dry heap runs operations with the same placement code as real heaps.

No object memory is touched, and memory use is proportional to live objects, not to the number of
operations. The operations' times drive the clock, also for the decay of idle pages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import OPS_DTYPE, RUN_SAMPLE_DTYPE, check, ffi, lib
from spanwise._owner import Closable, Owned
from spanwise.heap.handle import HeapHandle
from spanwise.heap.heap_map import HeapMap, read_spans, read_tiles
from spanwise.heap.options import DEFAULT, HeapOptions, c_options
from spanwise.ledger.ledger import Ledger, read_ledger
from spanwise.ledger.parts import RunStats
from spanwise.recordings.sources import ArraySource, Batch, FileSource, Source
from spanwise.results.jobs import Step, no_step
from spanwise.results.rows import Rows
from spanwise.tables.table import SizeClassTable

Seen = TypeVar("Seen")


class Moment(NamedTuple):
    """A moment of a recording: its name, and where a run stops for it.

    Attributes:
        stop_ns: after the last operation at or before this time; without either, at the end.
    """

    at: str  # its name in ledgers
    stop_op: int | None = None  # after this many operations
    stop_ns: int | None = None


_NO_OPS = ArraySource(np.empty(0, OPS_DTYPE))

FILE_STEP = 1 << 20
"""Operations of a file per C call, about 50 ms; Ctrl-C is handled between calls."""

_SAMPLES_MAX = 2048


class Simulation(Closable):
    """A dry heap with a manual clock, and its runner.

    Attributes:
        whole_stats: counts of an earlier run of all operations; None: there was none. With them
            `visit_moment` stops at its moment.
    """

    def __init__(
        self,
        table: SizeClassTable,
        options: HeapOptions = DEFAULT,
        *,
        source: Source = _NO_OPS,
        name: str = "",
        progress: Step = no_step,
        resident: bool = False,
        tracked: bool = True,
    ) -> None:
        self.source = source  # what `visit` and its like run
        self.name = name  # of the source, for ledgers
        self.progress = progress  # called with operations done
        noted = {"dry": True, "manual_clock": True, "touch_map": resident}
        made = c_options(table, options, tracked=tracked, **noted)
        self._resident = resident
        self._touch = lib.SW_TOUCH_PAGES if resident else lib.SW_TOUCH_NONE
        self._handle = HeapHandle(made, table)
        with self._handle as heap:
            self._heap = heap
            self._runner = self._handle.runner()
        self.done = 0  # operations so far
        self.time_ns = 0  # time of the last of them
        self.whole_stats: RunStats | None = None

    def run(self, batch: Batch) -> None:
        """Runs operations."""
        if batch.count == 0:
            return
        check(
            lib.sw_runner_run(self._runner, batch.ops, batch.count, self._touch, ffi.NULL, ffi.NULL)
        )
        self.done += batch.count
        self.time_ns = int(batch.ops[batch.count - 1].time_ns)

    def run_trace(self, trace: Owned, until: int) -> bool:
        """Runs a reader's operations to a total of `until`; returns False at its end."""
        done = ffi.new("uint64_t *", self.done)
        check(lib.sw_runner_run_trace(self._runner, trace.c, until, self._touch, ffi.NULL, done))
        self.done = int(done[0])
        return self.done >= until

    def note_time(self, run_one: Callable[[], None]) -> None:
        """Runs one operation of a file, and reads its time from a row of the time line."""
        self.sample_every(1)
        run_one()
        self.sample_every(0)
        rows = self.samples()
        self.time_ns = int(rows["time_ns"][-1]) if len(rows) else 0

    def steady_from(self, requested_bytes: int) -> None:
        """Starts the steady mean at the first operation with that many live bytes."""
        lib.sw_runner_steady_from(self._runner, requested_bytes)

    def stats(self) -> RunStats:
        """Return the counts so far."""
        return RunStats.read(self._runner)

    def final_stats(self) -> RunStats:
        """Counts of the run of all operations, after `visit_moment`."""
        return self.whole_stats or self.stats()

    def ledger(self, at: str) -> Ledger:
        """Return the current ledger."""
        table = self._handle.table
        return read_ledger(
            self._heap,
            table,
            at=at,
            stats=self.stats(),
            time_ns=self.time_ns,
            source=self.name,
            resident=self._resident,
        )

    def resident_peak(self) -> tuple[int, int]:
        """Return the peak resident bytes so far, and the number of operations until then."""
        op = ffi.new("uint64_t *")
        return int(lib.sw_runner_resident_peak(self._runner, op)), int(op[0])

    def sample_every(self, ops: int) -> None:
        """Requests a row of the time line every `ops` operations."""
        check(lib.sw_runner_sample_every(self._runner, ops))

    def samples(self) -> NDArray[np.void]:
        """Return the rows of the time line so far."""
        rows = np.zeros(_SAMPLES_MAX, RUN_SAMPLE_DTYPE)
        where = _lib.pointer(rows, "sw_replay_sample *")
        return rows[: lib.sw_runner_samples(self._runner, where, len(rows))]

    def spans(self) -> Rows:
        """Return the current spans, as `Heap.spans`."""
        return read_spans(self._heap)

    def heap_map(self, at: str, *, slots: bool) -> HeapMap:
        """Return the current heap map, with slots if `slots`."""
        tiles, requested = read_tiles(self._heap, touched=self._resident, slots=slots)
        page_bytes = self._handle.table.page_bytes
        return HeapMap(tiles, self.ledger(at), page_bytes, requested)

    def addresses(self, object_ids: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Return the addresses of objects; 0 for one that is not live."""
        ids = np.ascontiguousarray(object_ids, np.uint32)
        found = np.zeros(len(ids), np.uint64)
        where = _lib.pointer(ids, "const uint32_t *"), _lib.pointer(found, "uint64_t *")
        check(lib.sw_runner_addresses(self._runner, where[0], len(ids), where[1]))
        return found

    def close(self) -> None:
        """Close heap and runner."""
        self._handle.close()


def account(simulation: Simulation, moment: Moment) -> Ledger:
    """Run all operations and return the ledger at one moment of them."""
    found = visit_moment(simulation, moment, lambda: simulation.ledger(moment.at))
    return replace(found, stats=simulation.final_stats())


def most_resident(source: Source, table: SizeClassTable) -> int:
    """Return the peak resident bytes of a whole run that writes all of each object."""
    with Simulation(table, source=source, resident=True) as simulation:
        visit(simulation, (), lambda: None)
        return simulation.resident_peak()[0]


def visit_moment(simulation: Simulation, moment: Moment, read: Callable[[], Seen]) -> Seen:
    """Run all operations and return the result of `read` at one moment of them."""
    found: list[Seen] = []

    def read_once() -> None:
        found.append(read())

    if moment.stop_ns is not None:
        _visit_time(simulation, moment.stop_ns, read_once)
    else:
        stops = [] if moment.stop_op is None else [moment.stop_op]
        ends = bool(stops) and simulation.whole_stats is not None
        visit(simulation, stops, read_once, ends=ends)
    return found[0] if found else read()


def visit(
    simulation: Simulation,
    stops: Sequence[int],
    take: Callable[[], object],
    *,
    ends: bool = False,
) -> None:
    """Runs all operations in one pass, and calls `take` at stops.

    Stops are ascending numbers of operations; those after the end are not reached. With `ends`,
    operations after the last stop are not run.
    """
    if isinstance(simulation.source, FileSource):
        _visit_file(simulation, simulation.source.open(), stops, take, ends=ends)
        return
    waiting = deque(stops)

    def cut(left: Batch) -> int | None:
        if waiting and waiting[0] <= simulation.done + left.count:
            return waiting.popleft() - simulation.done
        return None

    _visit_batches(simulation, cut, take, ends=lambda: ends and not waiting)


def _visit_file(
    simulation: Simulation,
    trace: Owned,
    stops: Sequence[int],
    take: Callable[[], object],
    *,
    ends: bool,
) -> None:
    """Run many operations per C call; the reader's blocks never reach Python."""

    def run_to(until: int | None) -> None:
        """Runs to a total of `until` operations, or to the end of the recording."""
        going = True
        while going and (until is None or simulation.done < until):
            before = simulation.done
            step = before + FILE_STEP
            going = simulation.run_trace(trace, step if until is None else min(step, until))
            simulation.progress(simulation.done - before)

    for stop in stops:
        run_to(max(stop - 1, 0))
        simulation.note_time(partial(run_to, stop))
        if simulation.done >= stop:
            take()
    if not ends:
        run_to(None)


def _visit_batches(
    simulation: Simulation,
    cut: Callable[[Batch], int | None],
    take: Callable[[], object],
    *,
    ends: Callable[[], bool] = lambda: False,
) -> None:
    """Run batches, and call `take` after each number of operations that `cut` returns of the rest.

    Once `ends` returns true, the rest is not run.
    """
    for batch in simulation.source.batches():
        left = batch
        while (count := cut(left)) is not None:
            simulation.run(left.first(count))
            take()
            left = left.from_(count)
        last = ends()
        if not last:
            simulation.run(left)
        simulation.progress(batch.count - (left.count if last else 0))
        if last:
            return


def visit_times(simulation: Simulation, step_ns: int, take: Callable[[], object]) -> None:
    """Run as `visit` does, with stops in steps of time.

    A stop is after the last operation at or before each multiple of `step_ns`. A multiple is
    skipped if no operation came since the previous one; the last stop is the end.
    """
    due, taken = step_ns, 0

    def stop() -> None:
        nonlocal taken
        if simulation.done > taken:
            take()
        taken = simulation.done

    def cut(left: Batch) -> int | None:
        nonlocal due
        after = ops_until(left, due)
        if after is not None:
            due = -(-int(left.ops[after].time_ns) // step_ns) * step_ns
        return after

    _visit_batches(simulation, cut, stop)
    stop()


def _visit_time(simulation: Simulation, stop_ns: int, take: Callable[[], object]) -> None:
    """Stop once, after the last operation at or before a time."""
    waiting = True

    def cut(left: Batch) -> int | None:
        nonlocal waiting
        after = ops_until(left, stop_ns) if waiting else None
        waiting = waiting and after is None
        return after

    _visit_batches(simulation, cut, take)


def ops_until(batch: Batch, stop_ns: int) -> int | None:
    """Return the number of operations at or before a time; None: all of them."""
    if batch.count == 0 or batch.ops[batch.count - 1].time_ns <= stop_ns:
        return None
    return int(np.searchsorted(batch.array()["time_ns"], stop_ns, side="right"))
