# SPDX-License-Identifier: Apache-2.0
"""spanwise bench: run a program under several allocators; compare CPU time and peak RSS."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from spanwise import plots
from spanwise.commands._common import SubParsers, add_told, new_command, print_json
from spanwise.commands._executors import executor_of
from spanwise.commands._sessions import add_session_options, check_session, tell_session
from spanwise.errors import InvalidError
from spanwise.measure.bench import BenchInterrupted, bench
from spanwise.measure.bench_cases import EVERYBODY, BenchCase, case_of, read_cases
from spanwise.measure.bench_fits import BenchFit, fit_cases
from spanwise.measure.bench_result import BenchResult


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "bench",
        "run a program under several allocators and compare CPU time and peak RSS",
        "spanwise bench -- python3 job.py",
        run,
    )
    add_told(
        parser,
        "A round runs the program once under each allocator, in random order. 'plain' is the"
        " program as its users run it, with its own allocator. The others preload a malloc, and"
        " CPython gets PYTHONMALLOC=malloc. The first line says what spanwise saves compared with"
        " plain. The program runs in the current directory; files that one run leaves there are"
        " there in the next. A run fails if its exit status is not 0, if any command of its"
        " pipeline fails, or if its stdout differs from the plain run's. No table is fitted to a"
        " program that fails. The recordings of --fit are in DIR/PROGRAM; 'spanwise optimize'"
        " prints the lower bound on their peak, the row 'limit'.",
    )
    parser.add_argument(
        "--cases",
        metavar="FILE.json",
        help="list of programs with their inputs: {program, input, argv, environment, folder}",
    )
    parser.add_argument(
        "--allocator",
        action="append",
        metavar="A",
        help=f"{', '.join(EVERYBODY)}, or the path of a library that defines malloc; repeatable"
        " [all that are installed]",
    )
    parser.add_argument(
        "--fit",
        metavar="DIR",
        help="directory for a table fitted to the first input of each program: its recordings,"
        " and a build, which also runs; reused if it is there",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="runs under each allocator [5]"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="S",
        help="time limit of a run, seconds [120]",
    )
    parser.add_argument(
        "--ignore-output",
        action="store_true",
        help="no comparison of stdout, for programs that print times or addresses",
    )
    add_session_options(parser, "run", "here", "picture of the peak RSS")
    parser.add_argument("--csv", metavar="FILE.csv", help="table of all runs")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- PROGRAM ARGS",
        help="program to run, in place of --cases",
    )


def run(options: argparse.Namespace) -> int:
    """Prints the table; 1 when a run failed."""
    check_session(options, "here", [options.csv])
    cases = _cases(options)
    fits: dict[str, BenchFit] = {}
    if options.fit:
        fits = fit_cases(cases, options.fit)
        for one in fits.values():
            print(f"spanwise: {one.program}: {one.verdict}", file=sys.stderr)
    try:
        with executor_of(options.executor, options.workers) as executor:
            found = bench(
                cases,
                options.allocator or EVERYBODY,
                fits=fits,
                rounds=options.rounds,
                timeout_s=options.timeout,
                ignore_output=options.ignore_output,
                executor=executor,
                output=options.output,
            )
    except BenchInterrupted as stop:
        tell_session(stop.result, "run")
        _write(stop.result, options)
        raise
    tell_session(found, "run")
    _write(found, options)
    return int(bool(found.failures))


def _cases(options: argparse.Namespace) -> list[BenchCase]:
    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    if bool(words) == bool(options.cases):
        raise InvalidError("give --cases FILE.json, or one program after --")
    return read_cases(options.cases) if options.cases else [case_of(words)]


def _write(found: BenchResult, options: argparse.Namespace) -> None:
    """Writes every requested form, also of an interrupted benchmark."""
    if options.csv:
        found.to_csv(Path(options.csv))
    if options.plot and len(found) > len(found.failures):
        plots.save(found.plot(), options.plot)
    if options.json:
        print_json(found.to_dict())
    else:
        print(found)
