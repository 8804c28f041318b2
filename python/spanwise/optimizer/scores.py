# SPDX-License-Identifier: Apache-2.0
"""Simulate the peak resident bytes of recordings under tables, several tables at a time."""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple, TypeVar

from spanwise.ledger.ledger import Ledger, add_ledgers
from spanwise.ledger.parts import PEAK_RESIDENT, peak_resident_under
from spanwise.optimizer.pareto import run_to
from spanwise.optimizer.profile import SizeProfile
from spanwise.recordings.recording import Recording
from spanwise.recordings.simulate import Simulation, visit
from spanwise.results.jobs import Step, ctrl_c_heard, no_step, raise_what_came
from spanwise.tables.table import SizeClassTable

Made = TypeVar("Made")

_PROGRESS_SECONDS = 0.1
"""Interval of progress reports and of checks for Ctrl-C."""


class Peak(NamedTuple):
    """The peak resident bytes of a recording, and the number of operations that first reach it."""

    resident_bytes: int
    op: int


class _StoppedError(Exception):
    """Ends a simulation that is no longer needed."""


class _AboveError(Exception):
    """Ends a simulation that has exceeded its limit."""


class Scores:
    """The peak resident bytes of recordings under any table; each table is simulated once.

    A table's score is the sum over the recordings of the resident bytes that
    `Recording.ledger(table, "peak-resident")` counts. Memory is proportional to the live objects,
    because operations of recording files are not kept.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        progress: Step = no_step,
        workers: int | None = None,
    ) -> None:
        self.recordings = tuple(recordings)
        self.workers = workers or len(os.sched_getaffinity(0))
        self._progress = progress
        self._peaks: dict[int, tuple[Peak, ...]] = {}
        self._above: dict[int, int] = {}  # lower bounds on the scores of rejected tables
        self._lock = threading.Lock()
        self._done = 0
        self._stop = threading.Event()

    def __call__(self, table: SizeClassTable) -> int:
        """Return the score of one table, bytes."""
        return self.of([table])[0]

    def __len__(self) -> int:
        """Return the number of simulated tables, rejected ones included."""
        return len(self._peaks.keys() | self._above.keys())

    def of(self, tables: Iterable[SizeClassTable]) -> list[int]:
        """Return the scores of tables, bytes."""
        wanted = list(tables)
        return self.within(wanted, [math.inf] * len(wanted))

    def within(self, tables: Sequence[SizeClassTable], most: Sequence[float]) -> list[int]:
        """Return the scores of tables in bytes, or a lower bound above `most` if that is exceeded.

        The peak resident bytes never decrease, so a table is rejected once they exceed `most`.
        Raises as `of`.
        """
        jobs = {
            table.hash: functools.partial(self._one, table, limit)
            for table, limit in zip(tables, most, strict=True)
            if table.hash not in self._peaks and not self._above.get(table.hash, -math.inf) > limit
        }
        if jobs:
            self._run(list(jobs.values()))
        return [self._score(table) for table in tables]

    def _score(self, table: SizeClassTable) -> int:
        peaks = self._peaks.get(table.hash)
        if peaks is None:
            return self._above[table.hash]
        return sum(peak.resident_bytes for peak in peaks)

    def ledgers(self, tables: Sequence[SizeClassTable], moment_of: SizeClassTable) -> list[Ledger]:
        """Return the ledgers of tables, all at the peak resident under `moment_of`.

        They are summed over the recordings, each at its own moment.
        """
        self.of([*tables, moment_of])
        return self._run([functools.partial(self._ledger, table, moment_of) for table in tables])

    def _ledger(self, table: SizeClassTable, moment_of: SizeClassTable) -> Ledger:
        at = PEAK_RESIDENT if table == moment_of else peak_resident_under(moment_of.name)
        peaks, moments = self._peaks[table.hash], self._peaks[moment_of.hash]
        parts = []
        for one, peak, moment in zip(self.recordings, peaks, moments, strict=True):
            with closing(Simulation(table, resident=True)) as simulation:
                run_to(simulation, one, moment.op, self._step)
                found = simulation.ledger(at, one.name)
            assert found.stats is not None
            stats = replace(found.stats, peak_resident_bytes=peak.resident_bytes)
            parts.append(replace(found, stats=stats))
        return add_ledgers(parts, "recordings")

    def _run(self, jobs: Sequence[Callable[[], Made]]) -> list[Made]:
        with ctrl_c_heard(), ThreadPoolExecutor(self.workers) as pool:
            futures: list[Future[Made]] = []
            waiting: set[Future[Made]] = set()
            try:
                for job in jobs:
                    futures.append(pool.submit(job))
                    waiting.add(futures[-1])
                while waiting:
                    raise_what_came()
                    ended, waiting = wait(waiting, _PROGRESS_SECONDS)
                    self._report()
                    for future in ended:
                        future.result()
            except BaseException:
                self._stop.set()
                for future in waiting:
                    future.cancel()
                wait(waiting)
                self._stop.clear()
                raise
        return [future.result() for future in futures]

    def _one(self, table: SizeClassTable, most: float) -> None:
        """Store the peaks of a table, or a lower bound once it exceeds `most`."""
        peaks: list[Peak] = []
        score = 0
        for recording in self.recordings:
            peak, whole = self._peak(recording, table, most - score)
            peaks.append(peak)
            score += peak.resident_bytes
            left = self.recordings[len(peaks) :]
            if score > most and (left or not whole):
                self._above[table.hash] = score
                self._step(sum(map(len, left)))
                return
        self._peaks[table.hash] = tuple(peaks)
        self._above.pop(table.hash, None)

    def _peak(self, recording: Recording, table: SizeClassTable, most: float) -> tuple[Peak, bool]:
        """Return the peak, or its value once above `most`, and whether the simulation is whole."""
        simulation = Simulation(table, resident=True, tracked=False)

        def step(operations: int) -> None:
            self._step(operations)
            if simulation.done < len(recording) and simulation.resident_peak()[0] > most:
                raise _AboveError

        try:
            visit(recording._source, simulation, [], lambda: None, step)
            return Peak(*simulation.resident_peak()), True
        except _AboveError:
            self._step(len(recording) - simulation.done)
            return Peak(*simulation.resident_peak()), False
        finally:
            simulation.close()

    def _step(self, operations: int) -> None:
        """Count operations; worker threads call this after each batch."""
        if self._stop.is_set():
            raise _StoppedError
        with self._lock:
            self._done += operations

    def _report(self) -> None:
        with self._lock:
            done, self._done = self._done, 0
        if done:
            self._progress(done)


class MixedScores:
    """The objective of the search: peak resident bytes, mixed with the cost of unseen sizes.

    The score is (1 - prior) * peak resident bytes + prior * cost, where the cost is the slots and
    shares of tails of the `unseen` requests.
    """

    def __init__(self, scores: Scores, unseen: SizeProfile, prior: float) -> None:
        self._scores, self._unseen, self._prior = scores, unseen, prior

    def __call__(self, table: SizeClassTable) -> float:
        """Return the score of one table."""
        return self.of([table])[0]

    def __len__(self) -> int:
        """Return the number of simulated tables."""
        return len(self._scores)

    def of(self, tables: Iterable[SizeClassTable]) -> list[float]:
        """Return the scores of tables. Raises as `Scores.of`."""
        return self.within(list(tables), math.inf)

    def within(self, tables: Sequence[SizeClassTable], most: float) -> list[float]:
        """Return the scores of tables, or a lower bound above `most` if that is exceeded."""
        costs = [self._cost(table) if self._prior else 0.0 for table in tables]
        # One byte of slack for rounding.
        limits = [1 + (most - self._prior * cost) / (1 - self._prior) for cost in costs]
        return [
            (1 - self._prior) * seen + self._prior * cost
            for seen, cost in zip(self._scores.within(tables, limits), costs, strict=True)
        ]

    def _cost(self, table: SizeClassTable) -> float:
        waste = self._unseen.waste(table)
        return waste.requested + waste.total
