# SPDX-License-Identifier: Apache-2.0
"""Commands that measure real programs and allocators, and give advice: bench, replay, advise."""

from __future__ import annotations

import argparse
import sys

from spanwise import errors, plots
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    add_description,
    add_session_options,
    check_session,
    new_command,
    print_json,
    print_session,
    show,
    warn_gaps,
)
from spanwise.commands._options import add_option
from spanwise.errors import InvalidError
from spanwise.measure.bench import BenchFit, BenchInterrupted, bench, fit_cases
from spanwise.measure.bench_cases import EVERYBODY, ONE_ARENA, BenchCase, case_of, read_cases
from spanwise.measure.bench_result import BenchResult
from spanwise.measure.replay_result import describe
from spanwise.measure.replays import (
    DRAIN_SECONDS,
    TOUCHES,
    Allocator,
    allocator_named,
    check_ledger,
    replay_many,
)
from spanwise.optimizer.search import optimize
from spanwise.recordings.recording import Recording
from spanwise.tables.table import SizeClassTable

# --- bench ----------------------------------------------------------------------------------------


def add_bench(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(commands, "bench", "spanwise bench -- python3 job.py", run_bench)
    add_description(
        parser,
        "A round runs the program once under each allocator, in random order. 'plain' is the"
        " program as its users run it, with its own allocator. The others preload a malloc, and"
        " CPython gets PYTHONMALLOC=malloc. The first line says what spanwise saves compared with"
        " plain. The program runs in the current directory; files that one run leaves there"
        " remain for the next. A run fails if its exit status is not 0, if any command of its"
        " pipeline fails, or if its stdout differs from the plain run's. No table is fitted to a"
        " program that fails. The recordings of --fit are in DIR/PROGRAM; 'spanwise optimize'"
        " prints the lower bound on their peak, the row 'limit'.",
    )
    add_option(
        parser,
        "--cases FILE.json",
        "list of programs with their inputs: {program, input, argv, environment, folder}",
    )
    add_option(
        parser,
        "--allocator A",
        f"{', '.join(EVERYBODY)}, one-arena (plain with MALLOC_ARENA_MAX=1), hardened or"
        " paranoid (spanwise with SPANWISE_PROTECT), or the path of a library that defines malloc;"
        " repeatable [the first six that are installed]",
        action="append",
    )
    add_option(
        parser,
        "--fit DIR",
        "fit a table to the first input of each program, and also run its build; directory"
        " for recordings and builds",
    )
    add_option(parser, "--rounds N", "runs under each allocator [5]", type=int, default=5)
    add_option(
        parser, "--timeout S", "time limit of a run, seconds [120]", type=float, default=120.0
    )
    add_option(
        parser,
        "--ignore-output",
        "no comparison of stdout, for programs that print times or addresses",
    )
    add_session_options(parser, "run", "picture of the peak RSS")
    add_option(parser, "--wide", "print all columns even if the terminal is narrower")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- PROGRAM ARGS",
        help="program to run, instead of --cases",
    )


def run_bench(options: argparse.Namespace) -> int:
    """Prints the table; returns 1 if a run failed."""
    check_session(options)
    cases = _cases(options)
    fits: dict[str, BenchFit] = {}
    if options.fit:
        fits = fit_cases(cases, options.fit)
        for one in fits.values():
            print(f"spanwise: {one.program}: {one.verdict}", file=sys.stderr)
    try:
        found = bench(
            cases,
            options.allocator or EVERYBODY,
            fits=fits,
            rounds=options.rounds,
            timeout_s=options.timeout,
            ignore_output=options.ignore_output,
            output=options.output,
        )
    except BenchInterrupted as stop:
        print_session(stop.result, "run")
        _write(stop.result, options)
        raise
    print_session(found, "run")
    _write(found, options)
    return int(bool(found.failures))


def _cases(options: argparse.Namespace) -> list[BenchCase]:
    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    if bool(words) == bool(options.cases):
        raise InvalidError("give --cases FILE.json, or one program after --")
    return read_cases(options.cases) if options.cases else [case_of(words)]


def _write(found: BenchResult, options: argparse.Namespace) -> None:
    """Writes all requested forms of a benchmark, even of an interrupted one."""
    if options.plot and len(found) > len(found.failures):
        plots.save(found.plot(), options.plot)
    if options.json:
        print_json(found.to_dict())
    else:
        show(found.text(0) if options.wide else found)


# --- replay ---------------------------------------------------------------------------------------


def add_replay(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "replay",
        "spanwise replay json.swt --allocator spanwise --allocator jemalloc --repeat 5",
        run_replay,
    )
    parser.add_argument("file", metavar="FILE.swt", help="the recording")
    add_option(
        parser,
        "--allocator A",
        "spanwise, glibc, jemalloc, mimalloc, tcmalloc or the path of a library that defines"
        " malloc; repeatable (default spanwise)",
        action="append",
    )
    _options.add_tables_option(parser, "also replay on a heap made at run time with this table: {}")
    add_option(
        parser,
        "--lib DIR",
        "also replay on the preloaded malloc of an output directory of `spanwise build`",
        action="append",
    )
    add_option(
        parser,
        "--touch",
        "bytes to write in each new object (default pages: a byte every 4 KiB and the ends)",
        default="pages",
        choices=TOUCHES,
    )
    add_option(parser, "--repeat N", "replays of each, in fresh processes", type=int, default=1)
    add_option(
        parser,
        "--samples N",
        "approximate number of readings of resident memory (default 256)",
        type=int,
        default=256,
    )
    add_option(
        parser,
        "--drain S,S,...",
        "seconds after everything was freed to read memory again (default 0.1,1,5)",
        default=",".join(f"{at:g}" for at in DRAIN_SECONDS),
    )
    add_option(
        parser,
        "--ledger",
        "instead, replay in one thread on a tracked heap and compare its ledger with the"
        " simulator's; exit 1 if they differ (--table, default c16)",
    )
    _options.add_valid_prefix_option(parser)
    _options.add_plot_option(parser, "also draw resident memory")
    _options.add_force_option(parser)


def run_replay(options: argparse.Namespace) -> int:
    """Prints the measurements; returns 1 if an allocation failed or ledgers differ."""
    if options.plot:
        plots.check_place(options.plot)
    recording = Recording.open(options.file, options.valid_prefix)
    if len(recording) == 0:
        return int(warn_gaps([recording]))
    if options.ledger:
        return _run_ledger(options, recording) | warn_gaps([recording])
    allocators = _allocators(options)
    replays = replay_many(
        recording,
        allocators,
        touch=options.touch,
        repeat=options.repeat,
        samples=options.samples,
        drain=_seconds(options.drain),
    )
    if options.plot:
        plots.save(plots.replays(replays), options.plot)
    if options.json:
        print_json([one.to_dict() for one in replays])
    else:
        show(describe(replays))
    return int(warn_gaps([recording]) or any(one.failed for one in replays))


def _run_ledger(options: argparse.Namespace, recording: Recording) -> int:
    if options.allocator or options.lib:
        raise errors.InvalidError("--ledger is for spanwise's heap: give --table only")
    tables = [SizeClassTable.named(name) for name in options.table or ("c16",)]
    checks = [check_ledger(recording, table) for table in tables]
    if options.json:
        print_json([one.to_dict() for one in checks])
    else:
        show("\n\n".join(str(one) for one in checks))
    return int(any(one.different for one in checks))


def _allocators(options: argparse.Namespace) -> list[Allocator]:
    tables = [SizeClassTable.named(name) for name in options.table or ()]
    libs = options.lib or ()
    names = options.allocator or (() if tables or libs else ("spanwise",))
    return [
        *(allocator_named(name) for name in names),
        *(allocator_named("spanwise", table=table) for table in tables),
        *(allocator_named("spanwise", lib=lib) for lib in libs),
    ]


def _seconds(words: str) -> list[float]:
    try:
        return [float(word) for word in words.split(",") if word]
    except ValueError:
        raise errors.InvalidError(f"--drain {words!r}: give seconds such as 0.1,1,5") from None


# --- advise ---------------------------------------------------------------------------------------


def add_advise(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(commands, "advise", "spanwise advise json.swt", run_advise)
    parser.add_argument("file", metavar="FILE.swt", help="the recording")
    _options.add_table_option(parser)
    add_option(parser, "--fit", "also fit a table, as spanwise optimize does")
    add_option(
        parser,
        "--bench",
        "also run the recorded command again, here, under each installed allocator",
    )
    add_option(parser, "--ignore-output", "with --bench: the output may differ from run to run")
    _options.add_valid_prefix_option(parser)
    _options.add_placement_options(parser.add_argument_group("placement"))


def _bench_recorded(recording: Recording, ignore_output: bool) -> BenchResult:
    """Run the recorded command under each installed allocator, in five rounds."""
    if not recording.arguments:
        raise InvalidError(f"{recording.name}: --bench: the recording has no command; omit it")
    allocators = list(EVERYBODY)
    if recording.allocator == "glibc" and recording.summary.threads > 1:
        allocators.append(ONE_ARENA)
    return bench([case_of(recording.arguments)], allocators, ignore_output=ignore_output)


def run_advise(options: argparse.Namespace) -> int:
    """Prints the verdict and the advice."""
    table = SizeClassTable.named(options.table)
    heap = _options.heap_options_of(options)
    recording = Recording.open(options.file, options.valid_prefix)
    fitted = optimize(recording) if options.fit and recording.events else None
    runs = _bench_recorded(recording, options.ignore_output) if options.bench else None
    found = recording.advice(table, fitted=fitted, runs=runs, options=heap)
    if options.json:
        print_json(found.to_dict())
    else:
        show(found)
    return int(warn_gaps([recording]))
