#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prices the parts of an allocation: ours beside what could stand in its place.

Example: python3 bench/ablations.py --only division,hints --rows 'pair/*' --quick
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench_lib import ablation_report
from bench_lib.ablation_build import build_all, recipe_of
from bench_lib.ablation_measure import COLD, HOT, count, counter, time_ns
from bench_lib.ablation_plan import Ablation, Variant, plan, select
from bench_lib.ablation_report import Cell
from bench_lib.cli import matches
from bench_lib.errors import BenchError
from bench_lib.stats import order_rank

ROOT = Path(__file__).resolve().parent.parent
REPETITIONS, QUICK_REPETITIONS = 10, 3
MILLISECONDS, QUICK_MILLISECONDS = 40, 10
Job = tuple[Cell, Path, Variant]


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="./dev bench --ablations",
        description="Ours beside what could stand in its place: time with intervals, instructions, "
        "cache misses, mispredictions and code bytes, with a hot and a cold instruction cache.",
        epilog="example: ./dev bench --ablations --only division,hints --quick",
    )
    add = made.add_argument
    add("--list", action="store_true", help="names the ablations and their rows")
    add("--only", metavar="NAMES", help="these ablations, with commas between")
    add("--rows", metavar="PATTERN", help="only rows that match (shell pattern or part of a name)")
    add("--quick", action="store_true", help=f"{QUICK_REPETITIONS} short repetitions")
    add("--repetitions", type=int, metavar="N", help=f"default {REPETITIONS}")
    add("--no-counts", action="store_true", help="times and code bytes only")
    add("--json", action="store_true", help="machine-readable output")
    add("--build", type=Path, default=ROOT / "build/ablations", help="where programs are kept")
    return made


def make_jobs(ablations: Sequence[Ablation], pattern: str | None, build: Path) -> list[Job]:
    """Compiles what is missing; one job for each row, cache state and variant.

    Raises:
        BenchError: no row matches, or a build failed.
    """
    chosen = {each.name: [row for row in each.rows if matches(row, pattern)] for each in ablations}
    if not any(chosen.values()):
        rows = sorted({row for each in ablations for row in each.rows})
        raise BenchError(f"--rows '{pattern}' matches no row; there are {', '.join(rows)}")
    wanted = [each for each in ablations if chosen[each.name]]
    built = build_all(ROOT, build, [v for each in wanted for v in each.variants])
    jobs: list[Job] = []
    for each in wanted:
        for row in chosen[each.name]:
            for state in (HOT, COLD):
                for i, variant in enumerate(each.variants):
                    program = built[recipe_of(variant)]
                    size = program.code_bytes
                    cell = Cell(each.name, row, state, variant.name, i == 0, size, [])
                    jobs.append((cell, program.file, variant))
    return jobs


def measure(jobs: Sequence[Job], repetitions: int, milliseconds: int) -> None:
    """Times every job once a repetition, so that variants of a row follow each other."""
    for n in range(repetitions):
        for i, (cell, program, variant) in enumerate(jobs):
            if sys.stderr.isatty():
                print(f"\r{n + 1}/{repetitions} {i + 1}/{len(jobs)} ", end="", file=sys.stderr)
            cell.ns.append(time_ns(program, cell.row, cell.state, variant.options, milliseconds))


def count_all(jobs: Sequence[Job], how: str) -> None:
    """Counts every job; callgrind's counts do not mind what else runs, so several at once."""

    def one(job: Job) -> None:
        cell, program, variant = job
        cell.events = count(program, cell.row, cell.state, variant.options, how)

    workers = 1 if how == "perf" else os.cpu_count() or 1
    with ThreadPoolExecutor(max_workers=workers) as pool:
        list(pool.map(one, jobs))


def show(ablations: Sequence[Ablation], cells: Sequence[Cell], how: str | None) -> None:
    """Prints a table for each ablation and what the columns mean."""
    for each in ablations:
        mine = [cell for cell in cells if cell.ablation == each.name]
        if mine:
            print(f"{each.name}: {each.what}\n{ablation_report.table(mine)}\n")
    count_of = len(cells[0].ns)
    print(ablation_report.legend(how, count_of, order_rank(count_of)[1]))


def execute(options: argparse.Namespace) -> int:
    """Does what the options say; returns the exit status."""
    ablations = select(plan(ROOT), options.only)
    if options.list:
        for each in ablations:
            others = ", ".join(variant.name for variant in each.variants)
            print(f"{each.name}: {each.what}: {others}; rows {', '.join(each.rows)}")
        return 0
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    jobs = make_jobs(ablations, options.rows, options.build)
    measure(jobs, repetitions, QUICK_MILLISECONDS if options.quick else MILLISECONDS)
    how = None if options.no_counts else counter()
    if how is not None:
        count_all(jobs, how)
    cells = [cell for cell, _, _ in jobs]
    if options.json:
        print(json.dumps(ablation_report.as_json(cells), indent=1))
    else:
        show(ablations, cells, how)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 2 for bad input, 130 after Ctrl-C."""
    options = parser().parse_args(arguments)
    try:
        if options.repetitions is not None and options.repetitions < 1:
            raise BenchError(f"--repetitions is {options.repetitions}; use 1 or more")
        return execute(options)
    except BenchError as error:
        print(f"ablations: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ablations: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
