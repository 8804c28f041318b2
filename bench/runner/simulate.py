# SPDX-License-Identifier: Apache-2.0
"""Instructions and mispredicted branches of the programs of bench/field, by cachegrind's models.

Each program runs at two shares of its work, which are subtracted, so that starting costs nothing.
The model of branches is not this machine's: it says which of two allocators is easier to predict.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from runner import children
from runner.contenders import Contender
from runner.counts import find_valgrind
from runner.errors import BenchError
from runner.field import FIELD, parse_lines, program_words
from runner.runs import Job

SHORT_PERCENT, LONG_PERCENT = 1, 3
# Programs that cannot be subtracted or simulated: with more live objects for more work, with times,
# or with processes of their own.
UNSIMULATED = tuple(f"{FIELD}{name}" for name in ("random-1m", "latency", "small-programs"))
_TOTALS = {
    "instructions": re.compile(r"^==\d+== I +refs: +([\d,]+)", re.MULTILINE),
    "mispredicted": re.compile(r"^==\d+== Mispredicts: +([\d,]+)", re.MULTILINE),
}


@dataclass(frozen=True)
class Simulated:
    """What one operation of a program executes, its loop included.

    Attributes:
        instructions: of any kind, in the program and the allocator.
        mispredicted: branches, conditional and indirect, by the model.
    """

    instructions: float
    mispredicted: float


def parse_totals(stderr: str) -> dict[str, int]:
    """The totals among cachegrind's closing lines.

    Raises:
        BenchError: there are none.
    """
    found = {name: pattern.search(stderr) for name, pattern in _TOTALS.items()}
    totals = {name: int(match[1].replace(",", "")) for name, match in found.items() if match}
    if len(totals) < len(_TOTALS):
        last = (stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchError(f"cachegrind gave no count: {last}")
    return totals


def _run(job: Job, percent: int) -> tuple[dict[str, int], float]:
    """Totals of a run, and its operations."""
    valgrind = find_valgrind()
    if valgrind is None:
        raise BenchError("valgrind was not found: apt-get install valgrind")
    who = job.contender
    words = [valgrind, "--tool=cachegrind", "--cache-sim=no", "--branch-sim=yes"]
    words += ["--cachegrind-out-file=/dev/null"]
    done = children.run(
        [*words, *program_words(who.program.parent, job.bench, percent)], env=who.environment()
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if not line.startswith("==")]
        last = (said or ["no message"])[-1]
        raise BenchError(f"{job.bench}, {who.label}: ended with {done.returncode}: {last}")
    try:
        return parse_totals(done.stderr), parse_lines(done.stdout)["ops"]
    except ValueError as error:
        raise BenchError(f"{job.bench}, {who.label}: {error}") from error


def simulate(job: Job) -> Simulated | None:
    """One program under one allocator; None where it does not run under valgrind.

    Raises:
        BenchError: valgrind is missing.
    """
    if find_valgrind() is None:
        raise BenchError("valgrind was not found: apt-get install valgrind")
    try:
        (long, more), (short, fewer) = _run(job, LONG_PERCENT), _run(job, SHORT_PERCENT)
    except BenchError:
        return None
    each = {name: (long[name] - short[name]) / (more - fewer) for name in long}
    return Simulated(**each)


def simulate_all(jobs: Sequence[Job]) -> list[Simulated | None]:
    """Several at once: other load changes no count."""
    return children.each(simulate, jobs, os.cpu_count() or 1)


def tables(jobs: Sequence[Job], found: Sequence[Simulated | None]) -> dict[str, list[list[str]]]:
    """A table a figure: a row a program behind the heading, a column an allocator."""
    known = dict(zip(((job.bench, job.contender) for job in jobs), found, strict=True))
    columns: list[Contender] = list(dict.fromkeys(job.contender for job in jobs))
    made: dict[str, list[list[str]]] = {}
    for name in _TOTALS:
        rows = [[f"{name} an operation", *(who.label for who in columns)]]
        for bench in dict.fromkeys(job.bench for job in jobs):
            cells = [known.get((bench, who)) for who in columns]
            rows.append([bench, *(f"{getattr(c, name):.3f}" if c else "-" for c in cells)])
        made[name] = rows
    return made
