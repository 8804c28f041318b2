# SPDX-License-Identifier: Apache-2.0
"""The command line of bench/run.py."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from driver import judge, report
from driver.contenders import BENCH, Machine
from driver.rows import Row, choose, load
from driver.tools import BenchError, run_command

DEFAULT_ROWS = ("inline *", "preload *")
EXAMPLES = """examples:
  ./dev bench                    malloc and free against each allocator found
  ./dev bench --rows 'gc *'      the collector against Boehm and Go
  ./dev bench --rows '*' --json all.json --plot all.png    every row; an hour
  ./dev bench --rows 'pattern *' --peer mimalloc3=/opt/lib/libmimalloc.so"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = argparse.ArgumentParser(
        prog="./dev bench",
        description="Run the rows of bench/targets.toml against other allocators, interleaved,\n"
        "and print ratios with 95 % intervals. Exit status: 1 if a target is missed.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    default = ", ".join(DEFAULT_ROWS)
    by_name = f"rows by name, as a shell pattern or a part of it; repeatable [{default}]"
    add("--rows", action="append", metavar="PATTERN", help=by_name)
    fewer = "repetitions; fewer than in the targets file give no verdicts [as in that file]"
    add("--repetitions", type=int, metavar="N", help=fewer)
    add("--quick", action="store_true", help="one short repetition: shows that everything runs")
    add("--list", action="store_true", help="print the names of the rows and exit")
    another = "another allocator to preload; repeatable"
    add("--peer", action="append", default=[], metavar="NAME=LIBRARY", help=another)
    add("--json", type=Path, metavar="FILE", help="write every figure as JSON")
    add("--plot", type=Path, metavar="FILE.png", help="draw ratios and targets")
    where = BENCH.parent / "build/bench"
    add("--build", type=Path, default=where, help="where the programs are [build/bench]")
    add("--targets", type=Path, default=BENCH / "targets.toml", help="[bench/targets.toml]")
    return made


def with_parts(chosen: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Return the chosen measured rows, and the rows that their means and bases need."""
    wanted = {row.name for row in chosen if row.ours}
    wanted |= {row.base for row in chosen if row.base}
    for mean in (row for row in chosen if row.rows):
        wanted |= {row.name for row in choose([r for r in rows if r.ours], mean.rows)}
    return [row for row in rows if row.name in wanted]


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    targets = load(options.targets)
    if options.list:
        print(*(row.name for row in targets.rows), sep="\n")
        return 0
    repetitions = 1 if options.quick else options.repetitions or targets.repetitions
    if repetitions < 1:
        raise BenchError(f"--repetitions is {repetitions}; use 1 or more")
    if options.plot is not None and options.plot.suffix != ".png":
        raise BenchError(f"--plot is '{options.plot}'; use a name that ends in .png")
    judged = not options.quick and repetitions >= targets.repetitions
    chosen = choose(targets.rows, options.rows or DEFAULT_ROWS)
    machine = Machine(options.build, options.peer, options.quick)
    plans = {row.name: judge.plan(row, machine) for row in with_parts(chosen, targets.rows)}
    values, failures = judge.execute(
        list(plans.values()), repetitions, quick=options.quick, say=progress
    )
    progress("")
    scores = [
        judge.score(plans[row.name], values, failures, plans, judged=judged)
        if row.ours
        else judge.score_mean(row, list(plans.values()), values, judged=judged)
        for row in chosen
    ]
    about = report.provenance(BENCH.parent, options.build)
    print(report.table(scores))
    for name, install in machine.missing.items():
        print(f"without {name}: {install}")
    if not judged:
        print(f"no verdicts: {repetitions} of {targets.repetitions} repetitions")
    print(report.one_line(about))
    if options.json is not None:
        report.write_json(options.json, report.to_json(scores, values, about))
    if options.plot is not None:
        report.plot(scores, options.plot, report.one_line(about))
    bad = (judge.MISSED, judge.FAILED)
    return 1 if any(score.verdict in bad for score in scores) else 0


def progress(line: str) -> None:
    """Overwrite the progress line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, 1 when a target is missed, 2 for bad input, 130 after Ctrl-C."""
    options = parser().parse_args(arguments)
    return run_command("bench", lambda: run(options))
