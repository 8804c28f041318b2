# SPDX-License-Identifier: Apache-2.0
"""Simulated scores of tables, and the local search for a better table."""

from __future__ import annotations

import functools
import itertools
import math
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from spanwise.ledger.ledger import Ledger, add_ledgers
from spanwise.ledger.parts import PEAK_RESIDENT, peak_resident_under
from spanwise.optimizer.pareto import run_to
from spanwise.optimizer.profile import SizeProfile
from spanwise.optimizer.solver import SLOTS_MAX, SPAN_BYTES_MAX, Rules
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
        self, recordings: Sequence[Recording], progress: Step = no_step, workers: int | None = None
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
        """Return the ledgers of tables, all at the peak resident under `moment_of`."""
        self.of([*tables, moment_of])
        return self._run([functools.partial(self._ledger, table, moment_of) for table in tables])

    def _ledger(self, table: SizeClassTable, moment_of: SizeClassTable) -> Ledger:
        at = PEAK_RESIDENT if table == moment_of else peak_resident_under(moment_of.name)
        peaks, moments = self._peaks[table.hash], self._peaks[moment_of.hash]
        parts = []
        for one, peak, moment in zip(self.recordings, peaks, moments, strict=True):
            with Simulation(table, name=one.name, resident=True) as simulation:
                run_to(simulation, one, moment.op, self._step)
                found = simulation.ledger(at)
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

        def step(operations: int) -> None:
            self._step(operations)
            if simulation.done < len(recording) and simulation.resident_peak()[0] > most:
                raise _AboveError

        simulation = Simulation(
            table, source=recording.source, progress=step, resident=True, tracked=False
        )
        with simulation:
            try:
                visit(simulation, [], lambda: None)
                return Peak(*simulation.resident_peak()), True
            except _AboveError:
                self._step(len(recording) - simulation.done)
                return Peak(*simulation.resident_peak()), False

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


Spec: TypeAlias = tuple[int, int, int]
"""A class: bytes of a slot, pages of its longest span, pages of its first span."""

Specs: TypeAlias = tuple[Spec, ...]

BLOCK = 8
"""Number of neighbours simulated before the best of them is compared."""

_SPLITS = 3
"""The number of sizes tried to split the interval between two classes."""

_SEED = 22


def specs_of(table: SizeClassTable) -> Specs:
    """Return the classes of a table."""
    page = table.page_bytes
    columns = ("size_bytes", "span_bytes", "first_span_bytes")
    rows = zip(*(table.classes[name].tolist() for name in columns), strict=True)
    return tuple((size, span // page, first // page) for size, span, first in rows)


class Neighbourhood:
    """The tables that differ from a table in one boundary, one class or one span."""

    def __init__(self, profile: SizeProfile, rules: Rules) -> None:
        self.rules = rules
        requested = np.flatnonzero(profile.weights[: rules.largest_bytes + 1])
        step = np.where(requested <= 8, 8, rules.align)
        rounded = np.maximum(-(-requested // step) * step, 8)
        sizes, index = np.unique(rounded, return_inverse=True)
        self.sizes: list[int] = sizes.tolist()
        self._sizes = sizes
        self._weights = np.bincount(index, profile.weights[requested], len(sizes))

    def of(self, specs: Specs, order: random.Random) -> Iterator[Specs]:
        """Yield all allowed neighbours: those of one change, then of two, each in random order."""
        seen = {specs}
        for kind in (self._changes, self._exchanges):
            found = [*kind(specs)]
            order.shuffle(found)
            for one in found:
                if one not in seen and self.allows(one):
                    seen.add(one)
                    yield one

    def allows(self, specs: Specs) -> bool:
        """Return whether the rules allow the number and the distances of the classes."""
        below = (0, *(size for size, _, _ in specs))
        return 1 <= len(specs) <= self.rules.classes and all(
            self.rules.may_follow(low, size)
            for low, (size, _, _) in zip(below, specs, strict=False)
        )

    # --- kinds of neighbours ---

    def _changes(self, specs: Specs) -> Iterator[Specs]:
        for kind in (self._spans, self._drops, self._moves, self._adds):
            yield from kind(specs)

    def _spans(self, specs: Specs) -> Iterator[Specs]:
        """Change the length or the growth of one span."""
        for i, (size, pages, first) in enumerate(specs):
            lengths = {pages - 1, pages + 1, pages // 2, 2 * pages}
            options = [(longest, longest) for longest in sorted(lengths)]
            options += [(pages, pages), (pages, first // 2), (2 * pages, first), (pages, 2 * first)]
            for longest, shortest in options:
                if self._fits(size, longest, shortest):
                    yield (*specs[:i], (size, longest, shortest), *specs[i + 1 :])

    def _fits(self, size: int, longest: int, shortest: int) -> bool:
        """Return whether a class may have spans of these lengths, at most 8 times `rules.pages`."""
        page = self.rules.page_bytes
        most = min(SPAN_BYTES_MAX, SLOTS_MAX * size, 8 * self.rules.pages * page)
        power = shortest > 0 and longest % shortest == 0
        power = power and (longest // shortest).bit_count() == 1
        return power and size <= shortest * page and longest * page <= most

    def _drops(self, specs: Specs) -> Iterator[Specs]:
        for i in range(len(specs) - 1):
            yield (*specs[:i], *specs[i + 1 :])

    def _moves(self, specs: Specs) -> Iterator[Specs]:
        """Move one boundary to the next smaller or larger size, or as far as its span allows."""
        for i in range(len(specs) - 1):
            size = specs[i][0]
            place = int(np.searchsorted(self._sizes, size))
            below = self.sizes[max(place - 1, 0)]
            above = self.sizes[min(place + (below < size), len(self.sizes) - 1)]
            span = specs[i][1] * self.rules.page_bytes
            grown = span // (span // size) // self.rules.align * self.rules.align
            exact = self.sizes[min(place, len(self.sizes) - 1)]
            for other in (below, above, grown, exact):
                yield from self._with_size(specs, i, other)

    def _with_size(self, specs: Specs, i: int, size: int) -> Iterator[Specs]:
        low = specs[i - 1][0] if i else 0
        _, pages, first = specs[i]
        fits = self._fits(size, pages, first)
        if low < size < specs[i + 1][0]:
            spec = (size, pages, first) if fits else self._spec(size)
            yield (*specs[:i], spec, *specs[i + 1 :])

    def _spec(self, size: int) -> Spec:
        """Return a class with the shortest span that holds a slot."""
        pages = -(-size // self.rules.page_bytes)
        return (size, pages, pages)

    def _adds(self, specs: Specs) -> Iterator[Specs]:
        """Add a class where it saves the most round-up, with its own span or the next one's."""
        low = 0
        for i, (size, pages, first) in enumerate(specs):
            for split in self._splits(low, size):
                options = {(split, pages, first), self._spec(split)}
                for spec in sorted(options):
                    if self._fits(*spec):
                        yield (*specs[:i], spec, *specs[i:])
            low = size

    def _splits(self, low: int, high: int) -> list[int]:
        """Return the sizes between two classes where a class saves the most round-up."""
        begin = int(np.searchsorted(self._sizes, low, "right"))
        end = int(np.searchsorted(self._sizes, high))
        sizes = self._sizes[begin:end]
        if len(sizes) == 0:
            return []
        gains = np.cumsum(self._weights[begin:end]) * (high - sizes)
        best = np.argsort(-gains, kind="stable")[:_SPLITS]
        return [int(sizes[i]) for i in best]

    def _exchanges(self, specs: Specs) -> Iterator[Specs]:
        """Drop one class and split another interval."""
        for dropped in self._drops(specs):
            yield from self._adds(dropped)


class Found(NamedTuple):
    """The best table of a search, its score, and whether Ctrl-C ended the search early."""

    table: SizeClassTable
    score: float
    stopped: bool


def search(
    starts: Sequence[SizeClassTable],
    near: Neighbourhood,
    scores: MixedScores,
    candidates: int,
    make: Callable[[Specs], SizeClassTable],
) -> Found:
    """Improve each start, best first, until no neighbour is better or the budget is spent."""
    best, stopped = starts[0], False
    try:
        by_score = sorted(zip(scores.of(starts), range(len(starts)), strict=True))
        best = starts[by_score[0][1]]
        for _, number in by_score:
            here: SizeClassTable | None = starts[number]
            while here is not None:
                best = here if scores(here) < scores(best) else best
                here = _first_better(here, near, scores, candidates, make)
    except KeyboardInterrupt:
        stopped = True
    return Found(best, scores(best), stopped)


def _first_better(
    table: SizeClassTable,
    near: Neighbourhood,
    scores: MixedScores,
    candidates: int,
    make: Callable[[Specs], SizeClassTable],
) -> SizeClassTable | None:
    """Return the best of the first block of neighbours with an improvement, or None."""
    neighbours = near.of(specs_of(table), random.Random(_SEED + len(scores)))
    score = scores(table)
    while (room := candidates - len(scores)) > 0:
        block = [make(specs) for specs in itertools.islice(neighbours, min(BLOCK, room))]
        if not block:
            return None
        found = scores.within(block, score)
        if min(found) < score:
            return block[found.index(min(found))]
    return None
