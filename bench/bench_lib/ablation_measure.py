# SPDX-License-Identifier: Apache-2.0
"""Times and counts of one row of one variant, with a hot or a cold instruction cache.

Counts are the processor's where `perf stat` has them (median of several runs), else callgrind's,
which repeat to the last digit.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench_lib.counts import find_valgrind, parse_collected
from bench_lib.errors import BenchError
from bench_lib.stats import median

HOT, COLD = "hot", "cold"
_COUNTS = {HOT: (8192, 40960), COLD: (128, 640)}  # operations of the two runs that are subtracted
_PERF_EVENTS = ("instructions", "L1-icache-load-misses", "L1-dcache-load-misses", "branch-misses")
_PERF_RUNS = 5


@dataclass(frozen=True)
class Events:
    """What one operation causes; hot: with its loop, cold: beside an empty one.

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
        """Of one of so many."""
        return Events(
            self.instructions / operations,
            self.i1 / operations,
            self.d1 / operations,
            self.mispredicts / operations,
        )


def from_callgrind(totals: dict[str, int]) -> Events:
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


def _output(words: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if not line.startswith("==")]
        raise BenchError(f"{' '.join(words[-6:])}: {(said or ['no message'])[-1]}")
    return done


def _perf(words: list[str]) -> Events | None:
    events = ",".join(f"{name}:u" for name in _PERF_EVENTS)
    return from_perf(_output(["perf", "stat", "-x,", "-e", events, *words]).stderr)


def counter() -> str | None:
    """`perf` when it counts here, else `callgrind`, else None."""
    if shutil.which("perf") is not None:
        try:
            if _perf(["true"]) is not None:
                return "perf"
        except BenchError:
            pass  # perf is there and may not count
    return "callgrind" if find_valgrind() is not None else None


def _callgrind(words: list[str]) -> Events:
    with tempfile.TemporaryDirectory(prefix="spanwise-bench-") as folder:
        done = _output(
            [
                *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes"),
                *("--branch-sim=yes", "--toggle-collect=measured"),
                f"--callgrind-out-file={folder}/profile",
                *words,
            ]
        )
    return from_callgrind(parse_collected(done.stderr))


def _hardware(words: list[str]) -> Events:
    runs = [found for _ in range(_PERF_RUNS) if (found := _perf(words)) is not None]
    if not runs:
        raise BenchError("perf stat: the counters went away; try again")
    names = ("instructions", "i1", "d1", "mispredicts")
    return Events(*(median([getattr(run, name) for run in runs]) for name in names))


def _simulated(words: list[str], state: str) -> Events:
    """The difference of a long and a short run: what comes before and after cancels."""
    some, more = _COUNTS[state]
    short, long = (_callgrind([*words[:3], "count", str(n), *words[3:]]) for n in (some, more))
    return (long - short).over(more - some)


def _counted(words: list[str], state: str) -> Events:
    """The difference of a run and of one that does all but the operations."""
    _, more = _COUNTS[state]
    whole, rest = (
        _hardware([*words[:3], task, str(more), *words[3:]]) for task in ("count", "prepare")
    )
    return (whole - rest).over(more)


def count(program: Path, row: str, state: str, options: tuple[str, ...], how: str) -> Events:
    """What an operation of a row causes.

    Args:
        program: bench_ablation.
        row: its row.
        state: HOT or COLD.
        options: of the program.
        how: "perf" or "callgrind".

    Raises:
        BenchError: the program or the counter failed.
    """
    words = [str(program), row, state, *options]
    if how == "perf":
        return _counted(words, state)
    found = _simulated(words, state)
    if state == HOT:
        return found
    return found - _simulated([str(program), "empty", state, *options], state)


def time_ns(
    program: Path, row: str, state: str, options: tuple[str, ...], milliseconds: int
) -> float:
    """Nanoseconds of an operation: CPU time, or when cold a typical one beside an empty one.

    Raises:
        BenchError: the program failed.
    """
    words = [str(program), row, state, "time", str(milliseconds), *options]
    return float(_output(words).stdout)
