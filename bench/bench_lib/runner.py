# SPDX-License-Identifier: Apache-2.0
"""Runs rows, interleaved.

In each repetition every row runs once for every contender, A B C, then the next row; then comes the
next repetition. Each run is a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from bench_lib.contenders import Contender

GO_ROUNDS = 5
TIMEOUT_S = 600.0
MEMORY_ITERATIONS = 16  # google-benchmark's most iterations of a memory run


@dataclass(frozen=True)
class Job:
    """One row on one contender."""

    bench: str
    contender: Contender

    @property
    def key(self) -> tuple[str, str, str]:
        """What a result is filed under: row, contender's name, basis."""
        return self.bench, self.contender.name, self.contender.basis


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


@dataclass
class Run:
    """The finished repetitions of all jobs.

    Attributes:
        jobs: in the order in which each repetition ran them.
        repetitions: one mapping a repetition, from Job.key to its result.
        interrupted: True when Ctrl-C ended the run early.
    """

    jobs: list[Job]
    repetitions: list[dict[tuple[str, str, str], Result]] = field(default_factory=list)
    interrupted: bool = False

    def values(self, bench: str, contender: Contender, metric: str) -> list[float]:
        """One value a repetition, ns for `op`; empty when a repetition has none."""
        scale = 1e9 if metric == "op" else 1.0
        found = []
        for repetition in self.repetitions:
            result = repetition.get((bench, contender.name, contender.basis))
            if result is None or metric not in result.values:
                return []
            found.append(result.values[metric] * scale)
        return found

    def failures(self) -> list[str]:
        """One line for each job that failed in some repetition."""
        lines = []
        for job in self.jobs:
            errors = [r[job.key].error for r in self.repetitions if r[job.key].error]
            if errors:
                who = f"{job.contender.name} ({job.contender.basis})"
                lines.append(
                    f"{job.bench}, {who}: {errors[0]} ({len(errors)} of {len(self.repetitions)})"
                )
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


def run_job(job: Job, min_time_s: float, *, memory: bool = False) -> Result:
    """Runs one job in its own process. Failures are results with an error, never exceptions."""
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


def run_interleaved(
    jobs: Sequence[Job], repetitions: int, min_time_s: float, progress: TextIO | None = None
) -> Run:
    """Runs all jobs `repetitions` times. Ctrl-C keeps the finished repetitions.

    Args:
        jobs: a row's contenders stand next to each other.
        repetitions: at least 1.
        min_time_s: least measured time of each process, seconds.
        progress: terminal for a line that is rewritten, or None.
    """
    run = Run(list(jobs))
    try:
        for number in range(1, repetitions + 1):
            finished: dict[tuple[str, str, str], Result] = {}
            for job in jobs:
                if progress is not None:
                    text = (
                        f"repetition {number} of {repetitions}: {job.bench} {job.contender.label}"
                    )
                    progress.write(f"\r{text:<78.78}")
                    progress.flush()
                finished[job.key] = run_job(job, min_time_s)
            run.repetitions.append(finished)
    except KeyboardInterrupt:
        run.interrupted = True
    if progress is not None:
        progress.write("\r" + " " * 78 + "\r")
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
