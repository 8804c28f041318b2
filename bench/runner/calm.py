# SPDX-License-Identifier: Apache-2.0
"""Runs in calm moments of a machine that others work on too.

A neighbour on the same core, or on the other half of it, slows a program down for tenths of a
second at a time: on a virtual machine a pair takes 2.8 ns in one moment and 5 in the next. Before
and after each run a fixed computation is timed on the processor that the run gets. A run counts
when both times are close to the shortest ever seen, else it is done again. Only the computation
decides, never what the run itself measured, and all contenders are treated alike.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from runner.runs import Job, Result, run_job

TOLERANCE = 1.1  # times the shortest computation
ATTEMPTS = 12
PATIENCE_S = 5.0  # for one job; after that its calmest run counts
CALIBRATION_S = 2.0
_Found = TypeVar("_Found")
_PAUSE_S = 0.02
_STEPS = 40000  # about a millisecond
# Rows of several threads; Go's runtime has several, too, and asks for the number of processors.
_THREADED = ("producer_consumer/", "cross_free/", "false_sharing/", "scaling_", "field/")


def spin() -> float:
    """Seconds of the fixed computation on this thread's processor: the shortest of three."""
    found = math.inf
    for _ in range(3):
        started = time.perf_counter()
        total = 0
        for step in range(_STEPS):
            total += step & 7
        found = min(found, time.perf_counter() - started)
    return found


@contextlib.contextmanager
def on(cpus: Sequence[int]) -> Iterator[None]:
    """Binds this thread, and the processes that it starts, to some processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def spin_on(cpu: int) -> float:
    """Seconds of the fixed computation on one processor."""
    with on([cpu]):
        return spin()


def is_threaded(job: Job) -> bool:
    """Whether the job needs all processors: then all must be calm."""
    return job.contender.basis == "go" or job.bench.startswith(_THREADED)


@dataclass
class Calm:
    """Runs jobs, each in a moment as calm as can be had.

    Attributes:
        cpus: processors that may be used.
        probe: seconds of the fixed computation on a processor.
        execute: runs a job.
        shortest: of all computations so far.
        runs: of jobs that counted.
        again: how often one was done again.
        busy: jobs of which no run was in a calm moment.
    """

    cpus: Sequence[int] = field(default_factory=lambda: sorted(os.sched_getaffinity(0)))
    probe: Callable[[int], float] = spin_on
    execute: Callable[[Job, float], Result] = run_job
    shortest: float = math.inf
    runs: int = 0
    again: int = 0
    busy: int = 0

    def calibrate(self, seconds: float = CALIBRATION_S) -> None:
        """Looks for the shortest time of the computation."""
        end = time.monotonic() + seconds
        while True:
            for cpu in self.cpus:
                self._level([cpu])
            if time.monotonic() >= end:
                return

    def _level(self, cpus: Sequence[int]) -> float:
        """How much longer the computation takes now than at best, on the worst of some."""
        taken = [self.probe(cpu) for cpu in cpus]
        self.shortest = min(self.shortest, *taken)
        return max(taken) / self.shortest

    def _await(self, choices: Sequence[Sequence[int]], end: float) -> tuple[float, Sequence[int]]:
        """Waits for calm processors until `end` at the latest; returns the calmest choice."""
        while True:
            found = min((self._level(cpus), cpus) for cpus in choices)
            if found[0] <= TOLERANCE or time.monotonic() >= end:
                return found
            time.sleep(_PAUSE_S)

    def measure(
        self,
        work: Callable[[], _Found],
        *,
        threaded: bool = False,
        failed: Callable[[_Found], bool] = lambda _: False,
    ) -> _Found:
        """The result of `work` from the first calm moment, or else from the calmest.

        Args:
            work: measures something; called again after a moment that was none.
            threaded: it needs all processors.
            failed: tells by a result whether measuring again is of no use.
        """
        choices = [self.cpus] if threaded else [[cpu] for cpu in self.cpus]
        end = time.monotonic() + PATIENCE_S
        best, attempts = math.inf, 0
        while True:
            before, cpus = self._await(choices, end)
            with on(cpus):
                found = work()
            attempts += 1
            level = max(before, self._level(cpus))
            if level < best or failed(found):
                best, kept = level, found
            late = attempts == ATTEMPTS or time.monotonic() >= end
            if late or level <= TOLERANCE or failed(found):
                break
        self.runs += 1
        self.again += attempts - 1
        self.busy += best > TOLERANCE
        return kept

    def run(self, job: Job, min_time_s: float) -> Result:
        """The result of a job; one that failed is not done again."""
        return self.measure(
            lambda: self.execute(job, min_time_s),
            threaded=is_threaded(job),
            failed=lambda result: bool(result.error),
        )

    def as_json(self) -> dict[str, Any]:
        """What was asked of the machine, and how often it was given."""
        return {
            "tolerance": TOLERANCE,
            "shortest_s": self.shortest,
            "runs": self.runs,
            "again": self.again,
            "busy": self.busy,
        }


def calm_if(asked: bool) -> Calm | None:
    """A calibrated Calm if the options ask for calm moments; None otherwise."""
    if not asked:
        return None
    calm = Calm()
    calm.calibrate()
    return calm


def describe(told: dict[str, Any]) -> str:
    """A line on what as_json says."""
    return (
        f"calm: {told['runs'] - told['busy']} of {told['runs']} runs within "
        f"{told['tolerance'] - 1:.0%} of the machine's best speed; {told['again']} were done again"
    )
