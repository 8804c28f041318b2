# SPDX-License-Identifier: Apache-2.0
"""Runs rows, interleaved.

In each repetition every row runs once for every contender, A B C, then the next row; then comes the
next repetition. Each run is a process of its own.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from runner.contenders import Contender
from runner.field import FIELD, percent_of, run_program
from runner.stats import median

GO_ROUNDS = 5
TIMEOUT_S = 600.0
MEMORY_ITERATIONS = 16  # google-benchmark's most iterations of a memory run
# A peer cannot become the best one if, in each of the first repetitions, it is this far behind the
# best peer of each of its races, by every metric. If races are given, it does not run in the other
# repetitions.
DROP_AFTER = 3
DROP_FACTORS = {"op": 1.4, "rss_over_live": 1.02}

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Job:
    """One row on one contender."""

    bench: str
    contender: Contender

    @property
    def key(self) -> Key:
        """What a result is filed under: row, contender's name, basis, options."""
        who = self.contender
        return self.bench, who.name, who.basis, who.options


@dataclass(frozen=True)
class Result:
    """What one process said.

    Attributes:
        values: counters of the row: `op` in seconds, ratios plain.
        iterations: google-benchmark's iterations.
        error: why there are no values, or "".
    """

    values: dict[str, float]
    iterations: int
    error: str = ""


Repetition = dict[Key, Result]
Race = Sequence[Job]  # peers of a row that compete with each other


@dataclass
class Run:
    """The finished repetitions of all jobs.

    Attributes:
        jobs: in the order in which each repetition ran them.
        repetitions: one mapping a repetition, from Job.key to its result; a peer that was dropped
            has no results from then on.
        interrupted: True when Ctrl-C ended the run early.
    """

    jobs: list[Job]
    repetitions: list[Repetition] = field(default_factory=list)
    interrupted: bool = False

    def values(self, bench: str, contender: Contender, metric: str) -> list[float]:
        """One value a repetition, ns for `op`; empty when a repetition failed."""
        scale = 1e9 if metric == "op" else 1.0
        found = []
        for repetition in self.repetitions:
            result = repetition.get(Job(bench, contender).key)
            if result is None:
                continue
            if metric not in result.values:
                return []
            found.append(result.values[metric] * scale)
        return found

    def whole(self, series: Sequence[float]) -> bool:
        """Whether a series of values has one for every repetition."""
        return 0 < len(series) == len(self.repetitions)

    def failures(self) -> list[str]:
        """One line for each job that failed in some repetition."""
        lines = []
        for job in self.jobs:
            results = [r[job.key] for r in self.repetitions if job.key in r]
            errors = [result.error for result in results if result.error]
            if errors:
                how = f"{job.contender.basis} {job.contender.options}".rstrip()
                who = f"{job.contender.name} ({how})"
                lines.append(f"{job.bench}, {who}: {errors[0]} ({len(errors)} of {len(results)})")
        return lines


def command(job: Job, min_time_s: float, *, memory: bool = False) -> list[str]:
    """The command line of a job."""
    contender = job.contender
    if contender.basis == "go":
        return [str(contender.program), job.bench.rpartition("/")[2], str(GO_ROUNDS)]
    words = [
        str(contender.program),
        f"--benchmark_filter=^{contender.policy}/{job.bench}(/iterations:1)?(/manual_time)?$",
        "--benchmark_format=json",
        f"--benchmark_min_time={min_time_s}",
    ]
    return [*words, "--memory"] if memory else words


def parse_result(stdout: str, stderr: str, status: int) -> Result:
    """Reads google-benchmark's JSON (or the Go program's, which has its shape)."""
    last_words = (stderr.strip().splitlines() or [""])[-1]
    if status != 0:
        return Result({}, 0, f"ended with status {status}: {last_words or 'no message'}")
    try:
        rows: list[dict[str, Any]] = json.loads(stdout)["benchmarks"]
    except (ValueError, KeyError, TypeError):
        return Result({}, 0, f"no such row: {last_words or 'no output'}")
    if len(rows) != 1:
        return Result({}, 0, f"{len(rows)} rows match, not 1")
    row = rows[0]
    if row.get("error_occurred"):
        return Result({}, 0, str(row.get("error_message", "failed")))
    values = {
        key: float(value)
        for key, value in row.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    return Result(values, int(row["iterations"]))


def run_field(job: Job, min_time_s: float) -> Result:
    """Runs a program of the field; a failure is a result with an error."""
    who = job.contender
    try:
        values = run_program(
            who.program.parent, job.bench, percent_of(min_time_s), who.environment(), TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return Result({}, 0, f"no result within {TIMEOUT_S:.0f} s")
    except (OSError, ValueError) as error:
        return Result({}, 0, f"cannot run: {error}")
    return Result(values, 1)


def run_job(job: Job, min_time_s: float, *, memory: bool = False) -> Result:
    """Runs one job in its own process. Failures are results with an error, never exceptions."""
    if job.bench.startswith(FIELD):
        return run_field(job, min_time_s)
    try:
        done = subprocess.run(
            command(job, min_time_s, memory=memory),
            env=job.contender.environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Result({}, 0, f"no result within {TIMEOUT_S:.0f} s")
    except OSError as error:
        return Result({}, 0, f"cannot run: {error.strerror}")
    return parse_result(done.stdout, done.stderr, done.returncode)


def groups_of(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs of each row that stand next to each other."""
    return [list(group) for _, group in itertools.groupby(jobs, key=lambda job: job.bench)]


def hopeless(run: Run, races: Sequence[Race]) -> set[Key]:
    """Peers that were far behind the best of all their races in every one of enough repetitions.

    Args:
        run: what was measured so far.
        races: a peer may be in several, or in none: measured only to be shown, it is not spared.
    """
    if len(run.repetitions) < DROP_AFTER:
        return set()
    behind: dict[Key, bool] = {}
    for race in races:
        for metric, factor in DROP_FACTORS.items():
            series = {job.key: run.values(job.bench, job.contender, metric) for job in race}
            whole = [values for values in series.values() if values]
            best = min(map(median, whole), default=0.0)
            for key, values in series.items():
                if values:
                    behind[key] = behind.get(key, True) and min(values) > factor * best
    return {key for key, late in behind.items() if late}


@dataclass
class Progress:
    """A line on a terminal that is rewritten: where the run is, and how long it will take."""

    stream: TextIO | None
    repetitions: int
    started: float = field(default_factory=time.monotonic)
    begun: int = 0  # repetitions of an earlier run that is resumed

    def show(self, number: int, job: Job) -> None:
        """Tells which job runs now."""
        if self.stream is None:
            return
        ended = number - 1 - self.begun
        left = ""
        if ended > 0:
            spent = time.monotonic() - self.started
            seconds = spent / ended * (self.repetitions - number + 1)
            left = f"{seconds / 60:.0f} min left, "
        text = f"{number} of {self.repetitions}, {left}{job.bench} {job.contender.label}"
        self.stream.write(f"\r{text:<78.78}")
        self.stream.flush()

    def close(self) -> None:
        """Clears the line."""
        if self.stream is not None:
            self.stream.write("\r" + " " * 78 + "\r")


Keep = Callable[[int, Job, Result], None]
Execute = Callable[[Job, float], Result]


def run_interleaved(
    jobs: Sequence[Job],
    repetitions: int,
    min_time_s: float,
    progress: TextIO | None = None,
    *,
    before: Sequence[Repetition] = (),
    keep: Keep | None = None,
    races: Sequence[Race] = (),
    execute: Execute | None = None,
) -> Run:
    """Runs all jobs `repetitions` times. Ctrl-C keeps the finished repetitions.

    Args:
        jobs: a row's contenders stand next to each other.
        repetitions: at least 1.
        min_time_s: least measured time of each process, seconds.
        progress: terminal for a line that is rewritten, or None.
        before: results of a run that was cut short, by repetition; a row of which they lack a
            contender is run anew for all, so that what is compared ran side by side.
        keep: is told each result (number of the repetition from 1, job, result) as it comes.
        races: who competes with whom (hopeless); peers that cannot win are spared repetitions.
        execute: how a job is run; run_job if not told.
    """
    run = Run(list(jobs))
    execute = execute or run_job
    told = Progress(progress, repetitions, begun=max(len(before) - 1, 0))
    try:
        for number in range(1, repetitions + 1):
            known = before[number - 1] if number <= len(before) else {}
            dropped = hopeless(run, races)
            finished: Repetition = {}
            for group in groups_of(jobs):
                wanted = [job for job in group if job.key not in dropped]
                if all(job.key in known for job in wanted):
                    finished |= {job.key: known[job.key] for job in wanted}
                    continue
                for job in wanted:
                    told.show(number, job)
                    finished[job.key] = result = execute(job, min_time_s)
                    if keep is not None:
                        keep(number, job, result)
            run.repetitions.append(finished)
    except KeyboardInterrupt:
        run.interrupted = True
    told.close()
    return run


@dataclass(frozen=True)
class MemoryUse:
    """Calls and bytes of one operation, as google-benchmark's memory manager counted them."""

    allocs: float
    total_bytes: float
    max_bytes: float


def memory_use(result: Result) -> MemoryUse | None:
    """Per operation, from a run with --memory; None when it failed."""
    values = result.values
    if "allocs_per_iter" not in values:
        return None
    ops = values.get("ops", 1.0)
    iterations = min(MEMORY_ITERATIONS, result.iterations)
    return MemoryUse(
        values["allocs_per_iter"] / ops,
        values.get("total_allocated_bytes", 0.0) / (iterations * ops),
        values["max_bytes_used"],
    )


def terminal() -> TextIO | None:
    """Where progress is shown: standard error when it is a terminal."""
    return sys.stderr if sys.stderr.isatty() else None
