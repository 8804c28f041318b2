# SPDX-License-Identifier: Apache-2.0
"""Runs one program of bench/field: its CPU time, elapsed time, peak RSS and what it prints.

A row `field/NAME` is the program NAME of bench_field, or bench_field_NAME if it is one by itself,
under whatever library is preloaded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.launch import read_usage

FIELD = "field/"  # prefix of rows that are programs of bench/field
FULL_TIME_S = 0.05  # runs with a lower least time do a proportional share of the work
MIB = float(1 << 20)


def percent_of(min_time_s: float) -> int:
    """The share of a program's work for a least measured time, 1 to 100."""
    return max(1, min(100, round(100 * min_time_s / FULL_TIME_S)))


def program_words(build: Path, bench: str, percent: int) -> list[str]:
    """The command of a row.

    Args:
        build: where the programs are.
        bench: `field/NAME`.
        percent: of the full work.
    """
    name = bench.removeprefix(FIELD)
    own = build / f"bench_field_{name}"
    if own.is_file():
        return [str(own), str(percent)]
    return [str(build / "bench_field"), name, str(percent)]


def parse_lines(told: str) -> dict[str, float]:
    """The figures that a program prints, `NAME VALUE` a line.

    Raises:
        ValueError: a line is none, or `ops` or `check` is missing.
    """
    values: dict[str, float] = {}
    for line in told.splitlines():
        name, value = line.split()
        values[name] = float(value)
    if not values.keys() >= {"ops", "check"}:
        raise ValueError(f"no ops and check in '{told.strip()}'")
    return values


def _finish(words: Sequence[str], env: Mapping[str, str], timeout_s: float) -> str:
    """What a command prints; it and its children end before this returns or raises."""
    with subprocess.Popen(
        words,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            told, said = child.communicate(timeout=timeout_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.killpg(child.pid, signal.SIGKILL)
            raise
    if child.returncode != 0:
        raise ValueError((said.strip().splitlines() or ["the launcher failed"])[-1])
    return told


def run_program(
    build: Path, bench: str, percent: int, environment: Mapping[str, str], timeout_s: float
) -> dict[str, float]:
    """Runs a program once.

    Args:
        build: where the programs and bench_launch are.
        bench: `field/NAME`.
        percent: of the full work.
        environment: with LD_PRELOAD, which only the program gets.
        timeout_s: after which it is killed.

    Returns:
        `op` (CPU seconds an operation), `cpu` and `elapsed` (seconds), `peak` (MiB resident), and
        what the program printed.

    Raises:
        ValueError: it failed; the message says how.
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it took too long.
    """
    preload = environment.get("LD_PRELOAD", "")
    bare = {name: value for name, value in environment.items() if name != "LD_PRELOAD"}
    with tempfile.TemporaryDirectory(prefix="spanwise-field-") as folder:
        report = Path(folder) / "report"
        launch = [str(build / "bench_launch"), str(report), preload]
        words = [*launch, *program_words(build, bench, percent)]
        told = _finish(words, bare, timeout_s)
        usage = read_usage(report)
    if usage.error:
        raise ValueError(usage.error)
    values = parse_lines(told)
    own = {"cpu": usage.cpu_s, "elapsed": usage.wall_s, "peak": usage.peak_rss_bytes / MIB}
    return {**values, **own, "op": usage.cpu_s / values["ops"]}
