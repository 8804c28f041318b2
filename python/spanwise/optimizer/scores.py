# SPDX-License-Identifier: Apache-2.0
"""The peak resident bytes of recordings under tables, simulated, several tables at a time."""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from typing import NamedTuple, TypeVar

from spanwise.ledger.ledger import Ledger, add_ledgers
from spanwise.optimizer.frontier import run_to
from spanwise.optimizer.profile import SizeProfile
from spanwise.recordings.recording import Recording
from spanwise.recordings.simulate import Simulation, visit
from spanwise.results.jobs import Step, Workers, ctrl_c_heard, no_step, raise_what_came
from spanwise.tables.table import SizeClassTable

Made = TypeVar("Made")

_TELL_SECONDS = 0.1
"""How often progress is told, and Ctrl-C heard, while tables are simulated."""


class Peak(NamedTuple):
    """The peak resident bytes of one recording, and the operations after which they first were."""

    resident_bytes: int
    op: int


class _StoppedError(Exception):
    """Ends a simulation whose result nobody waits for any more."""


class _AboveError(Exception):
    """Ends a simulation in which more is resident already than its table may have."""


class Scores:
    """The peak resident bytes of recordings under any table; each table is simulated once.

    A table's score is the sum over the recordings of the peak resident bytes that a dry heap
    has while it runs the recording: what `Recording.ledger(table, "peak-resident")` counts.

    As many dry heaps live at once as tables are simulated at once, and no operations are kept of
    recordings that are files: so memory follows the live objects, not the length.

    Args:
        recordings: at least one.
        progress: told in operations; those that need not be simulated any more are among them.
        workers: tables that are simulated at once; None: one a processor.
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
        self._above: dict[int, int] = {}  # lower bounds on the scores of tables that were given up
        self._lock = threading.Lock()
        self._done = 0
        self._stop = threading.Event()

    def __call__(self, table: SizeClassTable) -> int:
        """The score of one table, bytes."""
        return self.of([table])[0]

    def __len__(self) -> int:
        """How many tables were simulated, also those that were given up."""
        return len(self._peaks.keys() | self._above.keys())

    def of(self, tables: Iterable[SizeClassTable]) -> list[int]:
        """The scores of tables, bytes.

        Raises:
            KeyboardInterrupt: as it came; what was simulated so far stays known.
        """
        wanted = list(tables)
        return self.within(wanted, [math.inf] * len(wanted))

    def within(self, tables: Sequence[SizeClassTable], most: Sequence[float]) -> list[int]:
        """The scores of tables, bytes; for one that is above its `most`, some number above that.

        The peak resident bytes never fall, so such a table is given up as soon as they are
        above. Raises what `of` does.
        """
        jobs = {
            table.hash: functools.partial(self._one, table, limit)
            for table, limit in zip(tables, most, strict=True)
            if table.hash not in self._peaks and not self._above.get(table.hash, -math.inf) > limit
        }
        if jobs:
            self._run(list(jobs.values()))
        return [self._known(table) for table in tables]

    def _known(self, table: SizeClassTable) -> int:
        peaks = self._peaks.get(table.hash)
        if peaks is None:
            return self._above[table.hash]
        return sum(peak.resident_bytes for peak in peaks)

    def ledger(self, table: SizeClassTable) -> Ledger:
        """The ledger at the peak resident bytes, the sum over the recordings' own moments."""
        return self.ledgers([table])[0]

    def ledgers(self, tables: Sequence[SizeClassTable]) -> list[Ledger]:
        """As `ledger`, of tables."""
        self.of(tables)
        return self._run([functools.partial(self._ledger, table) for table in tables])

    def _ledger(self, table: SizeClassTable) -> Ledger:
        parts = [
            self._ledger_of(one, table, peak.op)
            for one, peak in zip(self.recordings, self._peaks[table.hash], strict=True)
        ]
        return add_ledgers(parts, "recordings")

    def _ledger_of(self, recording: Recording, table: SizeClassTable, op: int) -> Ledger:
        simulation = Simulation(table, resident=True)
        try:
            before = 0
            for done in run_to(simulation, recording, op):
                self._step(done - before)
                before = done
            return simulation.ledger("peak-resident", recording.name)
        finally:
            simulation.close()

    def _run(self, jobs: Sequence[Callable[[], Made]]) -> list[Made]:
        """Does jobs, several at once; what each gives, in their order."""
        with ctrl_c_heard(), Workers(self.workers) as pool:
            futures: list[Future[Made]] = []
            waiting: set[Future[Made]] = set()
            try:
                for job in jobs:
                    raise_what_came()  # without threads, to submit a job is to do it
                    futures.append(pool.submit(job))
                    waiting.add(futures[-1])
                while waiting:
                    raise_what_came()
                    ended, waiting = wait(waiting, _TELL_SECONDS)
                    self._tell()
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
        """Keeps the table's peaks as soon as it has all of them, or that it is above `most`."""
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
        """The peak, or its value once it is above `most`; and whether all was simulated."""
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
        """Called in a worker's thread after each batch."""
        if self._stop.is_set():
            raise _StoppedError
        with self._lock:
            self._done += operations

    def _tell(self) -> None:
        with self._lock:
            done, self._done = self._done, 0
        if done:
            self._progress(done)


class MixedScores:
    """What the search goes by: the peak resident bytes, and what requests of unseen sizes cost.

    A part `prior` of the score is of requests of every size, each doubling of the size equally many
    bytes, and as many as the recordings request at their peaks; they cost their slots and the
    slots' share of the tails. The rest is the peak resident bytes.

    Args:
        scores: the peak resident bytes of recordings.
        unseen: weights of requests of every size.
        prior: 0 to below 1; 0: the score is the peak resident bytes alone.
    """

    def __init__(self, scores: Scores, unseen: SizeProfile, prior: float) -> None:
        self._scores, self._unseen, self._prior = scores, unseen, prior

    def __call__(self, table: SizeClassTable) -> float:
        """The score of one table."""
        return self.of([table])[0]

    def __len__(self) -> int:
        """How many tables were simulated."""
        return len(self._scores)

    def of(self, tables: Iterable[SizeClassTable]) -> list[float]:
        """The scores of tables. Raises what `Scores.of` does."""
        return self.within(list(tables), math.inf)

    def within(self, tables: Sequence[SizeClassTable], most: float) -> list[float]:
        """The scores of tables; for one that is above `most`, some number above that."""
        costs = [self._cost(table) if self._prior else 0.0 for table in tables]
        # A byte more than the arithmetic says, since its sums are rounded.
        limits = [1 + (most - self._prior * cost) / (1 - self._prior) for cost in costs]
        return [
            (1 - self._prior) * seen + self._prior * cost
            for seen, cost in zip(self._scores.within(tables, limits), costs, strict=True)
        ]

    def _cost(self, table: SizeClassTable) -> float:
        waste = self._unseen.waste(table)
        return waste.requested + waste.total


__all__ = ["MixedScores", "Peak", "Scores"]
