# SPDX-License-Identifier: Apache-2.0
"""spanwise bench: real programs under several allocators, memory and time of each, in one table."""

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
        "run programs under several allocators in turns; memory and time of each in one table",
        "spanwise bench --fit fits -o bench.jsonl --plot bench.png -- python3 -c 'print(1)'",
        run,
    )
    add_told(
        parser,
        "Peak RSS is printed first. The program runs in the current directory, as it does by hand:"
        " files that one run leaves there are there in the next. A run that fails, or a pipeline"
        " of sh -c of which any command fails, is a failed row, and nothing is fitted to it."
        " 'plain' is the program without spanwise; the others run CPython with"
        " PYTHONMALLOC=malloc. With --fit DIR the recordings are in DIR/PROGRAM, from which"
        " spanwise optimize prints the row 'limit': what perfect packing would have resident.",
    )
    parser.add_argument(
        "--cases",
        metavar="FILE.json",
        help="programs with their inputs: a list of {program, input, argv, environment, folder}",
    )
    parser.add_argument(
        "--allocator",
        action="append",
        metavar="A",
        help=f"{', '.join(EVERYBODY)}, or the path of a library that defines malloc; repeat"
        " for each (default: all of these that are installed)",
    )
    parser.add_argument(
        "--fit",
        metavar="DIR",
        help="record each case, fit a table to the first input of each program, build it, and run"
        " it, too; what lies in DIR from the last time is taken",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="runs of each (default 5)"
    )
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="S", help="of a run, seconds (default 120)"
    )
    parser.add_argument(
        "--ignore-output",
        action="store_true",
        help="accept a stdout that differs from the plain run's, as of times or addresses",
    )
    add_session_options(parser, "run", "here", "also draw the peak RSS")
    parser.add_argument("--csv", metavar="FILE.csv", help="also write the runs there")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- PROGRAM ARGS",
        help="one case, in place of --cases",
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
