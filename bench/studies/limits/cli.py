# SPDX-License-Identifier: Apache-2.0
"""./dev study limits: what each requirement of an allocator costs on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner import counts
from runner.calm import calm_if
from runner.command import (
    add_calm_option,
    add_linked_option,
    add_peer_option,
    check_options,
    check_picture,
    run_command,
)
from runner.contenders import Field, find_field
from runner.drawing import pyplot
from runner.errors import BenchError
from runner.patterns import choose
from runner.provenance import measured_on, provenance
from runner.runs import Run, run_interleaved, terminal
from runner.say import say_missing, say_run
from runner.session import MIN_TIME_S, QUICK_MIN_TIME_S, QUICK_REPETITIONS, REPETITIONS
from runner.text import write_whole
from scoreboard.prototypes import STEPS

from studies.limits import lines as limits
from studies.limits import page as limits_page
from studies.limits import plot as limits_plot
from studies.limits.lines import Line
from studies.limits.stored import stored_limits
from studies.pages import check_page

BENCH = Path(__file__).resolve().parents[2]
EXAMPLE = """examples:
  ./dev study limits                        everything: 10 repetitions, about 12 minutes
  ./dev study limits --quick                3 short ones, no instructions
  ./dev study limits --rows 'pair/*' --json limits.json --plot limits.png
  ./dev study limits --from limits.json --plot limits.png --plot-steps steps.png
  ./dev study limits --plot docs/limits.png --write docs/measurements/2026-11-21-limits.md
  ./dev study limits --rows 'called *'      prototypes that are called, beside preloaded peers
  ./dev study limits --rows 'seed/*'        Go's cases, beside Go
  ./dev study limits --rows '*replace/*'    several classes, beside preloaded allocators
  ./dev study limits --rows 'producer_consumer/*' --peer snmalloc=PATH
  ./dev study limits --rows 'cold/*'        first touches"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="./dev study limits",
        description="The price of each requirement: prototypes of malloc and free, each with one\n"
        "check more than the one before, beside ours and the peers. Medians with intervals,\n"
        "ratios to the best peer of the row, instructions.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--build", type=Path, default=BENCH.parent / "build/bench", help="where the programs are")
    add("--rows", metavar="PATTERN", help="only rows that match (shell pattern or part of a name)")
    add("--quick", action="store_true", help=f"{QUICK_REPETITIONS} short repetitions, no counts")
    add("--repetitions", type=int, metavar="N", help=f"default {REPETITIONS}")
    add("--no-counts", action="store_true", help="no instructions (they need valgrind)")
    add_peer_option(made)
    add_linked_option(made)
    add_calm_option(made)
    add("--json", type=Path, metavar="FILE", help="also writes everything, machine-readable")
    add("--plot", type=Path, metavar="FILE.png", help="also draws ours beside the best of each row")
    add("--plot-steps", type=Path, metavar="FILE.png", help="also draws every step, a long picture")
    add("--write", type=Path, metavar="PAGE.md", help="also puts tables between a page's markers")
    add(
        "--from",
        dest="stored",
        type=Path,
        metavar="FILE",
        help="measures nothing, draws and writes what --json wrote",
    )
    return made


def as_json(
    lines: Sequence[Line], run: Run, field: Field, about: Mapping[str, Any]
) -> dict[str, Any]:
    """What was measured, with machine, compiler and commit."""
    return {
        **about,
        "repetitions": len(run.repetitions),
        "interrupted": run.interrupted,
        "missing": field.missing,
        "failures": run.failures(),
        "steps": STEPS,
        "rows": [line.as_json() for line in lines],
    }


def _count(options: argparse.Namespace, run: Run) -> dict[limits.Key, counts.Counts]:
    if options.quick or options.no_counts or run.interrupted:
        return {}
    if counts.find_valgrind() is None:
        print("no instructions: valgrind was not found (apt-get install valgrind)", file=sys.stderr)
        return {}
    return limits.count_paths(options.build, run.jobs)


def publish(
    options: argparse.Namespace, lines: Sequence[Line], about: Mapping[str, Any], count: int
) -> None:
    """The pictures and the page that were asked for."""
    if options.plot is not None:
        limits_plot.plot(lines, options.plot, measured_on(about))
    if options.plot_steps is not None:
        limits_plot.plot_steps(lines, options.plot_steps, measured_on(about))
    if options.write is not None:
        limits_page.write_page(options.write, lines, about, count)


def execute(options: argparse.Namespace) -> int:
    """Does what the options say; returns the exit status."""
    program = options.build / "bench_limits"
    rows = choose(list(dict.fromkeys(row for row, _ in limits.listed(program))), options.rows)
    with_go = "go" in limits.peers_of(rows)
    found = find_field(options.build, BENCH, options.peer, options.linked, with_go=with_go)
    field = Field(found.contenders, limits.missing_of(found.missing, rows))
    say_missing(field)
    about = provenance(BENCH.parent, options.build)
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    calm = calm_if(options.calm)
    run = run_interleaved(
        limits.jobs_of(program, field, rows),
        repetitions,
        QUICK_MIN_TIME_S if options.quick else MIN_TIME_S,
        terminal(),
        execute=calm.run if calm else None,
    )
    if calm is not None:
        about["calm_runs"] = calm.as_json()
    if not run.repetitions:
        raise KeyboardInterrupt
    lines = limits.lines_of(run, _count(options, run))
    if options.json is not None:
        whole = as_json(lines, run, field, about)
        write_whole(options.json, json.dumps(whole, indent=1) + "\n")
    print(limits.tables(lines))
    say_run(run, about, options.json)
    done = len(run.repetitions)
    if run.interrupted:
        options.write = None  # a page keeps whole runs
    publish(options, lines, about, done)
    if run.interrupted:
        print(f"interrupted: {done} of {repetitions} repetitions, no instructions", file=sys.stderr)
        return 130
    return 1 if run.failures() else 0


def check(options: argparse.Namespace) -> None:
    """Raises BenchError for what can not be done, before anything is measured."""
    check_options(options.repetitions, options.plot)
    check_picture("--plot-steps", options.plot_steps)
    if options.json is not None and options.json.is_dir():
        raise BenchError(f"--json is '{options.json}', a folder; name a file in it")
    pictures = options.plot is not None or options.plot_steps is not None
    if pictures:
        pyplot()  # says now that matplotlib is missing, not after minutes
    if options.write is not None:
        if options.rows or options.quick:
            raise BenchError("--write keeps whole runs: leave --rows and --quick out")
        check_page(options.write)
    if options.stored is not None and not pictures and options.write is None:
        raise BenchError("--from draws or writes: it needs --plot, --plot-steps or --write")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 when a row failed, 2 for bad input or a missing program, 130 after Ctrl-C."""
    options = parser().parse_args(arguments)

    def work() -> int:
        check(options)
        if options.stored is None:
            return execute(options)
        stored = stored_limits(options.stored)
        publish(options, stored.lines, stored.about, stored.count)
        return 0

    return run_command("limits", work)
