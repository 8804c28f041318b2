# SPDX-License-Identifier: Apache-2.0
"""The command line of bench/run_real.py."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.command import add_peer_option, check_options, run_command
from runner.contenders import SPANWISE
from runner.errors import BenchError
from runner.patterns import matches
from runner.provenance import measured_here, provenance, results_path
from runner.runs import terminal
from runner.stats import order_rank
from runner.text import write_whole

from real import report
from real.field import FACE, find_contenders
from real.launch import build_launcher
from real.measure import METRICS, Measured, Runner, measure, split_runnable
from real.plots import plot_real
from real.programs import Program, load_programs
from real.verdict import counting, missing_peers, stand

ROOT = Path(__file__).resolve().parents[2]
REPETITIONS, QUICK_REPETITIONS = 5, 2
EXAMPLE = """examples:
  ./dev real                              every program, 5 repetitions
  ./dev real --quick --programs 'python-*,redis'
  ./dev real --peer mimalloc3=/opt/mimalloc/lib/libmimalloc.so --json real.json --plot real.png

Exit status: 0 every output is glibc's, 1 one differs or a program failed, 2 wrong use."""


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="./dev real",
        description=f"Runs real programs under {FACE}, glibc and other allocators, interleaved: "
        "outputs compared byte by byte, time and peak RSS, geometric means, verdicts.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--programs", metavar="PATTERN[,PATTERN]", help="shell patterns or parts of names")
    add("--quick", action="store_true", help=f"small inputs, {QUICK_REPETITIONS} repetitions")
    add("--repetitions", type=int, metavar="N", help=f"default {REPETITIONS}")
    add_peer_option(made)
    add("--json", type=Path, metavar="FILE", help="also writes the raw results there")
    add("--plot", type=Path, metavar="FILE.png", help="also draws a picture")
    add("--build", type=Path, default=ROOT / "build/real", help=f"where {FACE} is")
    add("--results", type=Path, default=ROOT / "bench/results", help="where raw results go")
    add("--list", action="store_true", help="names the programs and what they allocate")
    add("--packages", action="store_true", help="names the Debian packages that are missing here")
    return made


def choose(programs: Sequence[Program], patterns: str | None) -> list[Program]:
    """The programs that a list of patterns, separated by commas, selects.

    Raises:
        BenchError: a pattern selects none.
    """
    if patterns is None:
        return list(programs)
    chosen: set[str] = set()
    names = [program.name for program in programs]
    for pattern in patterns.split(","):
        exact = [name for name in names if name == pattern]
        found = exact or [name for name in names if pattern and matches(name, pattern)]
        if not found:
            known = ", ".join(names)
            raise BenchError(f"--programs '{pattern}' matches none of {known}")
        chosen.update(found)
    return [program for program in programs if program.name in chosen]


def _print(measured: Measured, standings: Sequence[Any], options: argparse.Namespace) -> None:
    print(report.identity_table(measured))
    for metric in METRICS:
        print(f"\n{report.metric_table(measured, metric)}")
    names = [contender.name for contender in measured.contenders]
    print(f"\n{report.standing_table(standings, names)}")
    left_out = [p.name for p in measured.programs if p.name not in counting(measured)]
    if left_out:
        print(f"not in the means (not identical under every allocator): {', '.join(left_out)}")
    print(report.identity_line(measured))
    if options.quick or len(measured.repetitions) < REPETITIONS:
        print("provisional: a claim needs full inputs and 5 repetitions")


def _say_run(measured: Measured, about: dict[str, Any], path: Path) -> None:
    count = len(measured.repetitions)
    print(
        f"\n{count} interleaved repetitions; intervals hold the median with "
        f"{order_rank(count)[1]:.0%}; {about['machine']['cpu']}, {about['compiler']}, "
        f"load {about['machine']['load']:.1f}\nraw results: {path}"
    )


def _write(measured: Measured, standings: Sequence[Any], options: argparse.Namespace) -> None:
    about = provenance(ROOT, options.build)
    about["quick"] = options.quick
    text = json.dumps(report.as_json(measured, standings, about), indent=1) + "\n"
    path = results_path(options.results, about, "real-")
    write_whole(path, text)
    if options.json is not None:
        write_whole(options.json, text)
    _say_run(measured, about, path)


def execute(options: argparse.Namespace) -> int:
    """Runs what the options ask for; returns the exit status."""
    programs = choose(load_programs(), options.programs)
    if options.packages:
        print(" ".join(sorted({package for one in programs for package in one.lacking()})))
        return 0
    if options.list:
        for program in programs:
            print(f"{program.name:<16} {program.about}")
        return 0
    contenders, missing = find_contenders(options.build / FACE, options.peer)
    for name, mend in missing.items():
        print(f"not here: {name} ({mend})", file=sys.stderr)
    runnable, skipped = split_runnable(programs)
    measured = Measured(runnable, contenders, skipped)
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    with tempfile.TemporaryDirectory(prefix="spanwise-real-") as folder:
        scratch = Path(folder)
        runner = Runner(build_launcher(scratch), scratch, quick=options.quick)
        measure(runner, measured, repetitions, terminal())
    if not measured.repetitions:
        print("interrupted before the first repetition was done; nothing written", file=sys.stderr)
        return 130
    standings = [stand(measured, metric, missing_peers(measured)) for metric in METRICS]
    _print(measured, standings, options)
    _write(measured, standings, options)
    if options.plot is not None:
        plot_real(measured, options.plot, measured_here(options.build))
    if measured.interrupted:
        print(f"interrupted: {len(measured.repetitions)} of {repetitions}", file=sys.stderr)
        return 130
    return 1 if any(measured.problem(p.name, SPANWISE) for p in runnable) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 (an output differs, a program failed), 2 (bad input) or 130 (Ctrl-C)."""
    options = parser().parse_args(arguments)

    def work() -> int:
        check_options(options.repetitions, options.plot)
        return execute(options)

    return run_command("real", work)
