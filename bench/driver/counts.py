# SPDX-License-Identifier: Apache-2.0
"""Counts instructions, loads, stores, branches and calls of each allocation path with callgrind.

callgrind collects only inside measured(). Subtracting two runs of different length removes the cost
of entering the loop. What remains is one operation and its loop, with refills and span transitions
averaged over the operations between the two lengths.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path

from driver.tools import BenchError, captured, last_line, write_atomically

SHORT, LONG = 8192, 40960  # operations of weight 1; multiples of a span of 16 B objects
CALLGRIND = (
    *("--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes", "--branch-sim=yes"),
    "--toggle-collect=measured",
)
# Tolerated growth of each count, less than one instruction of a short path: refills vary with the C
# library, and long paths sometimes read the clock.
SLACK, SHARE = 0.5, 0.01


@dataclass(frozen=True)
class Counts:
    """Counts per operation, including its loop; fractions, because refills are averaged.

    Attributes:
        instructions: callgrind's Ir.
        loads: data reads (Dr).
        stores: data writes (Dw).
        branches: conditional branches (Bc).
        calls: function calls and tail calls.
    """

    instructions: float
    loads: float
    stores: float
    branches: float
    calls: float

    def as_json(self) -> dict[str, float]:
        """Return the counts by name, with three decimals."""
        return {kind: round(getattr(self, kind), 3) for kind in KINDS}


KINDS = tuple(field.name for field in fields(Counts))
Baseline = dict[str, dict[str, Counts]]


@dataclass(frozen=True)
class Growth:
    """A path whose count exceeds the baseline."""

    path: str
    kind: str
    was: float
    now: float

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.was:.2f} -> {self.now:.2f} {self.kind} per operation; fix the "
            "path, or run bench/instructions.py --update and say why in the commit"
        )


@dataclass(frozen=True)
class Program:
    """A program with counted paths.

    Attributes:
        file: bench_paths, or one like it.
        preload: the library, or None.
        prefix: count only paths with this prefix.
    """

    file: Path
    preload: Path | None = None
    prefix: str = ""


def find_valgrind() -> str | None:
    """Return the path of valgrind, or None."""
    return shutil.which("valgrind")


def programs_of(build: Path) -> list[Program]:
    """Return the programs of the library, with and without checks, and of the preloaded malloc.

    Raises:
        BenchError: a program was not built.
    """
    preload = build / "libspanwise-malloc.so"
    programs = [
        Program(build / "bench_paths"),
        Program(build / "bench_paths_bare", prefix="inline"),
        Program(build / "bench_paths_malloc", preload),
    ]
    for program in programs:
        for file in (program.file, program.preload):
            if file is not None and not file.is_file():
                raise BenchError(f"{file} is missing: build with -DSPANWISE_BENCH=ON")
    return programs


def parse_collected(stderr: str) -> dict[str, int]:
    """Parse callgrind's totals by event name from its last lines of output.

    Raises:
        BenchError: there are no totals, or nothing was collected.
    """
    names = re.search(r"^==\d+== Events    : (.+)$", stderr, re.MULTILINE)
    totals = re.search(r"^==\d+== Collected : ([\d ]+)$", stderr, re.MULTILINE)
    if names is None or totals is None:
        raise BenchError(f"callgrind gave no count: {last_line(stderr)}")
    found = dict(zip(names[1].split(), map(int, totals[1].split()), strict=False))
    if len(found) < len(names[1].split()):  # callgrind prints one 0 if measured() was never entered
        raise BenchError("callgrind collected nothing: measured() was never entered")
    return found


def parse_calls(profile: str) -> int:
    """Count the function calls in a callgrind profile."""
    return sum(int(text) for text in re.findall(r"^calls=(\d+) ", profile, re.MULTILINE))


def _collected(program: Program, runs: Sequence[tuple[str, int]]) -> list[list[int]]:
    """Count the events of runs, each (path, operations), as child processes of one valgrind."""
    valgrind = find_valgrind()
    if valgrind is None:
        raise BenchError("valgrind was not found: apt-get install valgrind")
    kept = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    if program.preload is not None:
        kept["LD_PRELOAD"] = str(program.preload)
    with tempfile.TemporaryDirectory(prefix="spanwise-bench-") as folder:
        words = [valgrind, *CALLGRIND, f"--callgrind-out-file={folder}/%p", str(program.file)]
        words += [str(word) for run in runs for word in run]
        done = captured(words, {**kept, "LC_ALL": "C"})
        if done.returncode != 0:
            said = re.sub(r"^==.*\n", "", done.stderr, flags=re.MULTILINE)
            what = " ".join(sorted({path for path, _ in runs}))
            raise BenchError(
                f"{program.file.name} {what} ended with {done.returncode}: {last_line(said)}"
            )
        return [_events(done.stderr, Path(folder), pid) for pid in done.stdout.split()]


def _events(said: str, folder: Path, pid: str) -> list[int]:
    """Return the totals that callgrind printed for a process, and its number of calls."""
    own = [line for line in said.splitlines() if line.startswith(f"=={pid}==")]
    found = parse_collected("\n".join(own))
    calls = parse_calls((folder / pid).read_text(encoding="utf-8"))
    return [*(found[event] for event in ("Ir", "Dr", "Dw", "Bc")), calls]


def _count(program: Program, paths: Sequence[str]) -> list[Counts]:
    """Count one operation of each path, including its loop."""
    weights = weights_of(program)
    lengths = [(LONG // weights[path], SHORT // weights[path]) for path in paths]
    runs = [(path, n) for path, pair in zip(paths, lengths, strict=True) for n in pair]
    events = _collected(program, runs)
    return [
        Counts(*((a - b) / (more - some) for a, b in zip(long, short, strict=True)))
        for (more, some), long, short in zip(lengths, events[::2], events[1::2], strict=True)
    ]


def count_all(wanted: Sequence[tuple[Program, str]]) -> list[Counts]:
    """Count (program, path) pairs in parallel, because load does not change counts.

    Raises:
        BenchError: valgrind is missing or a program failed.
    """
    workers = os.cpu_count() or 1
    shares = []
    for program in dict.fromkeys(program for program, _ in wanted):
        paths = [path for one, path in wanted if one == program]
        shares += [(program, paths[part::workers]) for part in range(min(workers, len(paths)))]
    with ThreadPoolExecutor(workers) as pool:
        counted = list(pool.map(lambda share: _count(*share), shares))
    found = {
        (program, path): counts
        for (program, paths), share in zip(shares, counted, strict=True)
        for path, counts in zip(paths, share, strict=True)
    }
    return [found[pair] for pair in wanted]


def _lines(program: Path, option: str) -> list[str]:
    done = captured([program, option])
    if done.returncode != 0:
        raise BenchError(f"{program} {option} ended with {done.returncode}")
    return done.stdout.splitlines()


def key_of(program: Program) -> str:
    """Return the baseline's key: compiler, version, architecture, check grade, build type."""
    return _lines(program.file, "--key")[0]


def weights_of(program: Program) -> dict[str, int]:
    """Return the program's paths, each with the weight of its operation."""
    pairs = (line.split() for line in _lines(program.file, "--list"))
    return {name: int(weight) for name, weight in pairs if name.startswith(program.prefix)}


def paths_of(program: Program) -> list[str]:
    """Return the names of the program's paths."""
    return list(weights_of(program))


def load_baseline(path: Path) -> Baseline:
    """Read counts by key and path; empty without a file.

    Raises:
        BenchError: the file is not a valid baseline.
    """
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {
            key: {
                name: Counts(**{k: float(counts[k]) for k in KINDS})
                for name, counts in rows.items()
            }
            for key, rows in data.items()
        }
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise BenchError(f"{path}: not a baseline of counts by key and path: {error!r}") from error


def save_baseline(path: Path, baseline: Baseline) -> None:
    """Write counts by key and path, one path per line."""
    keys = []
    for key, rows in sorted(baseline.items()):
        each = ((json.dumps(name), json.dumps(one.as_json())) for name, one in sorted(rows.items()))
        lines = [f"  {name}: {figures}" for name, figures in each]
        keys.append(f" {json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n }")
    write_atomically(path, "{\n" + ",\n".join(keys) + "\n}\n")


def growths(baseline: Mapping[str, Counts], now: Mapping[str, Counts]) -> list[Growth]:
    """Return the paths that grew by more than the slack, each with the first count that did."""
    grown = []
    for path, counts in now.items():
        if path not in baseline:
            continue
        for kind in KINDS:
            was, value = getattr(baseline[path], kind), getattr(counts, kind)
            if value > was + SLACK + SHARE * was:
                grown.append(Growth(path, kind, was, value))
                break
    return grown


def table(now: Mapping[str, Counts], baseline: Mapping[str, Counts]) -> list[list[str]]:
    """Return table rows: path, each count, and the baseline's instructions."""
    rows = []
    for path, counts in now.items():
        known = f"{baseline[path].instructions:.2f}" if path in baseline else "-"
        rows.append([path, *(f"{getattr(counts, kind):.2f}" for kind in KINDS), known])
    return rows
