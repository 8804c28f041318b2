# SPDX-License-Identifier: Apache-2.0
"""Instructions an operation of the paths of bench/paths.c, counted by callgrind.

callgrind collects inside measured() only. Two runs of different length are subtracted, so that
entering the loop costs nothing, and what is left is exact: instructions of an operation and its
loop, with refills and span transitions spread over the operations between the two lengths.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_lib.errors import BenchError

SHORT, LONG = 16384, 81920  # operations; whole spans of 16 B objects
SLACK = 0.005  # a count may grow by this share of itself: span placement varies with addresses

Baseline = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Growth:
    """A path that needs more instructions than the baseline allows."""

    path: str
    was: float
    now: float

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.was:.2f} -> {self.now:.2f} instructions an operation; mend the "
            "path, or run bench/instructions.py --update and say why in the commit"
        )


def find_valgrind() -> str | None:
    """The valgrind command, or None."""
    return shutil.which("valgrind")


def parse_collected(stderr: str) -> int:
    """Callgrind's total from its closing lines.

    Raises:
        BenchError: there is none.
    """
    match = re.search(r"^==\d+== Collected : (\d+)", stderr, re.MULTILINE)
    if match is None:
        last = (stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchError(f"callgrind gave no count: {last}")
    return int(match[1])


def _collected(program: Path, path: str, operations: int) -> int:
    valgrind = find_valgrind()
    if valgrind is None:
        raise BenchError("valgrind was not found: apt-get install valgrind")
    done = subprocess.run(
        [
            valgrind,
            "--tool=callgrind",
            "--toggle-collect=measured",
            "--callgrind-out-file=/dev/null",
            str(program),
            path,
            str(operations),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchError(f"{program.name} {path} ended with {done.returncode}: {last}")
    return parse_collected(done.stderr)


def count(program: Path, path: str) -> float:
    """Instructions an operation of one path, its loop included.

    Raises:
        BenchError: valgrind is missing or the program failed.
    """
    difference = _collected(program, path, LONG) - _collected(program, path, SHORT)
    return difference / (LONG - SHORT)


def _lines(program: Path, option: str) -> list[str]:
    try:
        done = subprocess.run([program, option], capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchError(f"{program}: {error.strerror}; build with -DSPANWISE_BENCH=ON") from error
    if done.returncode != 0:
        raise BenchError(f"{program} {option} ended with {done.returncode}")
    return done.stdout.splitlines()


def key_of(program: Path) -> str:
    """What counts depend on: compiler, version, architecture, assertion grade, build type."""
    return _lines(program, "--key")[0]


def paths_of(program: Path) -> list[str]:
    """The names of its paths."""
    return _lines(program, "--list")


def load_baseline(path: Path) -> Baseline:
    """Counts by key and path; empty without a file.

    Raises:
        BenchError: the file is no such JSON.
    """
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {key: {p: float(n) for p, n in rows.items()} for key, rows in data.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise BenchError(f"{path}: not a baseline of counts by key and path: {error}") from error


def growths(baseline: Mapping[str, float], now: Mapping[str, float]) -> list[Growth]:
    """The paths of the baseline that grew by more than the slack."""
    return [
        Growth(path, baseline[path], value)
        for path, value in now.items()
        if path in baseline and value > baseline[path] * (1 + SLACK)
    ]


def table(now: Mapping[str, float], baseline: Mapping[str, float]) -> Sequence[Sequence[str]]:
    """Rows for a table: path, count, baseline."""
    return [
        [path, f"{value:.2f}", f"{baseline[path]:.2f}" if path in baseline else "-"]
        for path, value in now.items()
    ]
