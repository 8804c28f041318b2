#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts instructions, loads, stores, branches and calls per path against a committed baseline.

Example: python3 bench/instructions.py --check --build build/bench
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from driver import counts
from driver.tools import BenchError, run_command, text_table

BENCH = Path(__file__).resolve().parent
SKIPPED = 77  # ctest reports this exit status as skipped


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = argparse.ArgumentParser(
        description="Count what an operation of each allocation path executes, with callgrind.",
        epilog="example: python3 bench/instructions.py --check --build build/bench",
    )
    add = made.add_argument
    add("--check", action="store_true", help="exit 1 if a path grew since the baseline")
    add("--update", action="store_true", help="write the counts to the baseline")
    add("--build", type=Path, default=BENCH.parent / "build/bench", help="build directory")
    add("--baseline", type=Path, default=BENCH / "instructions.json")
    add("--preload", type=Path, help="count only malloc of this library, without a baseline")
    return made


def skip(why: str) -> int:
    """Print why nothing was compared; return the status."""
    print(f"skipped: {why}")
    return SKIPPED


def count_program(program: counts.Program) -> dict[str, counts.Counts]:
    """Count all paths of a program."""
    paths = counts.paths_of(program)
    found = counts.count_all([(program, path) for path in paths])
    return dict(zip(paths, found, strict=True))


def show(title: str, now: dict[str, counts.Counts], known: dict[str, counts.Counts]) -> None:
    """Print a table of counts."""
    print(f"{title}, one operation and its loop")
    print(text_table(["path", *counts.KINDS, "baseline"], counts.table(now, known)))


def run(options: argparse.Namespace) -> int:
    """Count, print, and compare or write; return the exit status."""
    if counts.find_valgrind() is None:
        if options.update:
            raise BenchError("valgrind was not found: apt-get install valgrind")
        return skip("valgrind was not found (apt-get install valgrind)")
    if options.preload is not None:
        program = counts.Program(options.build / "bench_paths_malloc", options.preload)
        show(options.preload.name, count_program(program), {})
        return 0
    programs = counts.programs_of(options.build)
    baseline = counts.load_baseline(options.baseline)
    keys = sorted({counts.key_of(program) for program in programs})
    unknown = [key for key in keys if key not in baseline]
    if options.check and unknown:
        return skip(f"no baseline for '{unknown[0]}' in {options.baseline.name} (--update adds it)")
    now: dict[str, dict[str, counts.Counts]] = {key: {} for key in keys}
    for program in programs:
        now[counts.key_of(program)].update(count_program(program))
    for key, found in now.items():
        show(key, found, baseline.get(key, {}))
    if options.update:
        baseline.update(now)
        counts.save_baseline(options.baseline, baseline)
        print(f"written: {options.baseline}")
        return 0
    problems: list[str] = []
    if options.check:
        count_again(programs, baseline, now)
        problems = complaints(baseline, now)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def count_again(
    programs: Sequence[counts.Program], baseline: counts.Baseline, now: counts.Baseline
) -> None:
    """Count grown paths again, because on a busy machine decay may have run during one of them."""
    for program in programs:
        key = counts.key_of(program)
        rows = {p: now[key][p] for p in counts.paths_of(program)}
        grown = sorted({growth.path for growth in counts.growths(baseline[key], rows)})
        again = counts.count_all([(program, path) for path in grown])
        now[key].update(zip(grown, again, strict=True))


def complaints(baseline: counts.Baseline, now: counts.Baseline) -> list[str]:
    """Return the failures of a check: paths that grew, and paths without a baseline."""
    found = []
    for key, rows in now.items():
        found += [f"grew: {growth} ({key})" for growth in counts.growths(baseline[key], rows)]
        found += [
            f"no baseline: {path} ({key}); run bench/instructions.py --update"
            for path in rows
            if path not in baseline[key]
        ]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, 1 if a path grew, 2 for bad input, 77 if nothing was compared, 130 for Ctrl-C."""
    options = parser().parse_args(arguments)
    return run_command("instructions", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
