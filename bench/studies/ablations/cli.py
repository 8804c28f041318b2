#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prices the parts of an allocation: ours beside what could stand in its place.

Example: ./dev study ablations --only division,hints --rows 'pair/*' --quick
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.calm import Calm, calm_if, describe
from runner.command import add_calm_option, check_options, run_command
from runner.drawing import pyplot
from runner.errors import BenchError
from runner.patterns import matches
from runner.provenance import measured_on, provenance

from studies.ablations import plot as ablation_plot
from studies.ablations import report as ablation_report
from studies.ablations.build import build_all, recipe_of, survey
from studies.ablations.measure import (
    AUTO,
    CALLGRIND,
    COLD,
    HOT,
    NONE,
    PERF,
    Probe,
    count_all,
    counter,
    time_ns,
)
from studies.ablations.plan import Ablation, plan, select
from studies.ablations.report import Cell

ROOT = Path(__file__).resolve().parents[3]
REPETITIONS, QUICK_REPETITIONS = 10, 3
MILLISECONDS, QUICK_MILLISECONDS = 40, 10
Job = tuple[Cell, Probe]


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="./dev study ablations",
        description="Ours beside what could stand in its place: time with intervals, instructions, "
        "cache misses, mispredictions and code bytes, with a hot and a cold instruction cache.",
        epilog="example: ./dev study ablations --only division,hints --quick",
    )
    add = made.add_argument
    add("--list", action="store_true", help="names the ablations and their rows")
    add("--only", metavar="NAMES", help="these ablations, with commas between")
    add("--rows", metavar="PATTERN", help="only rows that match (shell pattern or part of a name)")
    add("--quick", action="store_true", help=f"{QUICK_REPETITIONS} short repetitions")
    add("--repetitions", type=int, metavar="N", help=f"default {REPETITIONS}")
    add_calm_option(made)
    add(
        "--counter",
        choices=(AUTO, PERF, CALLGRIND, NONE),
        default=AUTO,
        help="auto: the processor's counters by perf, else simulated by callgrind, else none",
    )
    add("--json", action="store_true", help="machine-readable output")
    add("--plot", type=Path, metavar="FILE.png", help="also draws a picture")
    add("--build", type=Path, default=ROOT / "build/ablations", help="where programs are kept")
    return made


def choose(ablations: Sequence[Ablation], pattern: str | None) -> dict[Ablation, list[str]]:
    """The rows of each ablation that a pattern selects; ablations without one are left out.

    Raises:
        BenchError: no row matches.
    """
    chosen = {each: [row for row in each.rows if matches(row, pattern)] for each in ablations}
    if not any(chosen.values()):
        rows = sorted({row for each in ablations for row in each.rows})
        raise BenchError(f"--rows '{pattern}' matches no row; there are {', '.join(rows)}")
    return {each: rows for each, rows in chosen.items() if rows}


def make_jobs(chosen: dict[Ablation, list[str]], build: Path) -> tuple[list[Job], str]:
    """Compiles what is missing; one job for each row, cache state and variant; the compiler.

    Raises:
        BenchError: a build failed.
    """
    site = survey(ROOT, build)
    built = build_all(site, [variant for each in chosen for variant in each.variants])
    jobs: list[Job] = []
    for each, rows in chosen.items():
        for row in rows:
            for state in (HOT, COLD):
                for i, variant in enumerate(each.variants):
                    program = built[recipe_of(variant)]
                    cell = Cell(each.name, row, state, variant.name, i == 0, program.code_bytes, [])
                    jobs.append((cell, Probe(program.file, row, state, variant.options)))
    return jobs, site.version


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<40}", end="" if text else "\r", file=sys.stderr, flush=True)


def measure(
    jobs: Sequence[Job], repetitions: int, milliseconds: int, calm: Calm | None = None
) -> None:
    """Times every job once a repetition, so that variants of a row follow each other."""
    for n in range(repetitions):
        for i, (cell, probe) in enumerate(jobs):
            _progress(f"times: {n + 1}/{repetitions}, {i + 1}/{len(jobs)}")
            time_it = functools.partial(time_ns, probe, milliseconds)
            cell.ns.append(calm.measure(time_it) if calm else time_it())


def add_counts(jobs: Sequence[Job], how: str) -> None:
    """Counts every job."""
    _progress(f"counts, by {how}")
    found = count_all([probe for _, probe in jobs], how)
    for cell, probe in jobs:
        cell.events = found[probe]


def show(ablations: Sequence[Ablation], cells: Sequence[Cell], how: str) -> None:
    """Prints a table for each ablation and what the columns mean."""
    for each in ablations:
        mine = [cell for cell in cells if cell.ablation == each.name]
        print(f"{each.name}: {each.what}\n{ablation_report.table(mine)}\n")
    print(ablation_report.legend(how, len(cells[0].ns), full=len(cells[0].ns) >= REPETITIONS))


def execute(options: argparse.Namespace) -> int:
    """Does what the options say; returns the exit status."""
    ablations = select(plan(ROOT), options.only)
    if options.list:
        for each in ablations:
            others = ", ".join(variant.name for variant in each.variants)
            print(f"{each.name}: {each.what}: {others}; rows {', '.join(each.rows)}")
        return 0
    chosen = choose(ablations, options.rows)
    if options.plot is not None:
        pyplot()  # fails now, not after minutes, if matplotlib is missing
    how = counter(options.counter)
    jobs, compiler = make_jobs(chosen, options.build)
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    calm = calm_if(options.calm)
    measure(jobs, repetitions, QUICK_MILLISECONDS if options.quick else MILLISECONDS, calm)
    if how != NONE:
        add_counts(jobs, how)
    _progress("")
    cells = [cell for cell, _ in jobs]
    about = {**provenance(ROOT, options.build), "compiler": compiler, "counter": how}
    if calm is not None:
        about["calm_runs"] = calm.as_json()
    if options.json:
        print(json.dumps({**about, "cells": ablation_report.as_json(cells)}, indent=1))
    else:
        show(list(chosen), cells, how)
        machine = about["machine"]
        print(f"{machine['cpu']}, {compiler}, {about['commit']}, load {machine['load']:.1f}")
        if calm is not None:
            print(describe(about["calm_runs"]))
    if options.plot is not None:
        picture = ablation_plot.plot(cells, options.plot, measured_on(about))
        print(f"picture: {picture}", file=sys.stderr)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 2 for bad input or a failed build, 130 after Ctrl-C."""
    options = parser().parse_args(arguments)

    def work() -> int:
        check_options(options.repetitions, options.plot)
        return execute(options)

    return run_command("ablations", work)


if __name__ == "__main__":
    sys.exit(main())
