# SPDX-License-Identifier: Apache-2.0
"""Times and counts of one row of one variant, with a hot or a cold instruction cache.

Counts are the processor's where `perf stat` has them (median of several runs), else simulated by
callgrind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner import children
from runner.counts import find_valgrind, parse_collected
from runner.errors import BenchError
from runner.stats import median

HOT, COLD = "hot", "cold"
AUTO, PERF, CALLGRIND, NONE = "auto", "perf", "callgrind", "none"
# Operations of callgrind's two runs, which are subtracted, and of perf's one.
_SIMULATED = {HOT: (8192, 40960), COLD: (128, 640)}
_MEASURED = {HOT: 131072, COLD: 8192}
_PERF_EVENTS = ("instructions", "L1-icache-load-misses", "L1-dcache-load-misses", "branch-misses")
_PERF_RUNS = 5


@dataclass(frozen=True)
class Probe:
    """What is run.

    Attributes:
        program: built of bench/studies/ablations/ablation.c.
        row: its row.
        state: HOT or COLD.
        options: of the program.
    """

    program: Path
    row: str
    state: str
    options: tuple[str, ...]

    def words(self, task: str, number: int) -> list[str]:
        """The command."""
        return [str(self.program), self.row, self.state, task, str(number), *self.options]


@dataclass(frozen=True)
class Events:
    """What one operation causes, less what an empty one does.

    Attributes:
        instructions: executed.
        i1: first-level instruction cache misses.
        d1: first-level data cache misses, reads and writes (perf: reads).
        mispredicts: of branches, indirect ones included.
    """

    instructions: float
    i1: float
    d1: float
    mispredicts: float

    def __sub__(self, other: Events) -> Events:
        return Events(
            self.instructions - other.instructions,
            self.i1 - other.i1,
            self.d1 - other.d1,
            self.mispredicts - other.mispredicts,
        )

    def over(self, operations: int) -> Events:
        """The events of one operation, from the sums over so many."""
        return Events(
            self.instructions / operations,
            self.i1 / operations,
            self.d1 / operations,
            self.mispredicts / operations,
        )


def from_callgrind(totals: Mapping[str, int]) -> Events:
    """Sums callgrind's totals.

    Raises:
        BenchError: caches or branches were not simulated.
    """
    try:
        return Events(
            totals["Ir"],
            totals["I1mr"],
            totals["D1mr"] + totals["D1mw"],
            totals["Bcm"] + totals["Bim"],
        )
    except KeyError as error:
        raise BenchError(f"callgrind counted no {error}; use valgrind 3.19 or later") from error


def from_perf(text: str) -> Events | None:
    """Reads `perf stat -x,`; None when the processor does not count one of the events."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        cells = line.split(",")
        if len(cells) > 2 and cells[0].replace(".", "", 1).isdigit():
            found[cells[2].partition(":")[0]] = float(cells[0])
    if any(name not in found for name in _PERF_EVENTS):
        return None
    return Events(*(found[name] for name in _PERF_EVENTS))


def _output(words: Sequence[str], said_by: str) -> tuple[str, str]:
    done = children.run(words)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if not line.startswith("==")]
        why = (said or ["no message"])[-1]
        raise BenchError(f"{said_by} ended with {done.returncode}: {why}")
    return done.stdout, done.stderr


def _perf(words: Sequence[str]) -> Events | None:
    events = ",".join(f"{name}:u" for name in _PERF_EVENTS)
    return from_perf(_output(["perf", "stat", "-x,", "-e", events, *words], "perf stat")[1])


def _perf_counts() -> bool:
    if shutil.which("perf") is None:
        return False
    try:
        return _perf(["true"]) is not None
    except BenchError:
        return False


def counter(wanted: str) -> str:
    """PERF, CALLGRIND or NONE: the wanted counter that this machine has.

    Args:
        wanted: AUTO takes the first of them that counts here.

    Raises:
        BenchError: one was asked for by name and does not count here.
    """
    if wanted == NONE:
        return NONE
    if wanted in (AUTO, PERF) and _perf_counts():
        return PERF
    if wanted in (AUTO, CALLGRIND) and find_valgrind() is not None:
        return CALLGRIND
    mend = {
        PERF: "perf has no such hardware counters here; use --counter callgrind",
        CALLGRIND: "valgrind was not found: apt-get install valgrind",
    }
    if wanted in mend:
        raise BenchError(f"--counter {wanted}: {mend[wanted]}")
    return NONE


def _callgrind(probe: Probe, operations: int) -> Events:
    with tempfile.TemporaryDirectory(prefix="spanwise-bench-") as folder:
        _, said = _output(
            [
                *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes"),
                *("--branch-sim=yes", "--toggle-collect=measured"),
                f"--callgrind-out-file={folder}/profile",
                *probe.words("count", operations),
            ],
            f"callgrind of {probe.row} {probe.state}",
        )
    return from_callgrind(parse_collected(said))


def _simulated(probe: Probe) -> Events:
    """The difference of a long and a short run, in which start and end cancel."""
    some, more = _SIMULATED[probe.state]
    return (_callgrind(probe, more) - _callgrind(probe, some)).over(more - some)


def _hardware(words: Sequence[str]) -> Events:
    runs = [found for _ in range(_PERF_RUNS) if (found := _perf(words)) is not None]
    if not runs:
        raise BenchError("perf stat: the counters went away; use --counter callgrind")
    names = ("instructions", "i1", "d1", "mispredicts")
    return Events(*(median([getattr(run, name) for run in runs]) for name in names))


def _measured(probe: Probe) -> Events:
    """The difference of a run and of one with empty operations after the same preparation."""
    most = _MEASURED[probe.state]
    whole, rest = (_hardware(probe.words(task, most)) for task in ("count", "prepare"))
    return (whole - rest).over(most)


def count_all(probes: Sequence[Probe], how: str) -> dict[Probe, Events]:
    """What an operation of each probe causes.

    Args:
        probes: any number, equal ones too.
        how: PERF, one after the other, or CALLGRIND, several at once: other load changes no count.

    Raises:
        BenchError: a program or the counter failed.
    """
    wanted = list(dict.fromkeys(probes))
    if how == PERF:
        return {probe: _measured(probe) for probe in wanted}
    idle = {probe: replace(probe, row="empty", options=()) for probe in wanted}
    both = list(dict.fromkeys([*wanted, *idle.values()]))
    found = dict(zip(both, children.each(_simulated, both, os.cpu_count() or 1), strict=True))
    return {probe: found[probe] - found[idle[probe]] for probe in wanted}


def time_ns(probe: Probe, milliseconds: int) -> float:
    """Nanoseconds of an operation: CPU time, or when cold a typical one beside an empty one.

    Raises:
        BenchError: the program failed.
    """
    said, _ = _output(probe.words("time", milliseconds), f"{probe.row} {probe.state}")
    return float(said)
