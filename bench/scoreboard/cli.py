# SPDX-License-Identifier: Apache-2.0
"""The command line of bench/run.py."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from runner import counts
from runner.command import (
    check_options,
    run_command,
)
from runner.counts import Counts
from runner.errors import BenchError
from runner.provenance import measured_on, provenance, write_results
from runner.runs import (
    Job,
    MemoryUse,
    memory_use,
    run_job,
)
from runner.say import say_missing, say_origins, say_run
from runner.session import QUICK_MIN_TIME_S, REPETITIONS, add_run_options, measure, origins_of
from runner.simulate import UNSIMULATED, simulate_all, tables
from runner.text import text_table, write_whole

from scoreboard import original_speed, report, scripted, show, targets_file
from scoreboard.judge import Rules
from scoreboard.machine import key_of, this_machine
from scoreboard.means import score_programs
from scoreboard.plots import plot_scoreboard
from scoreboard.scores import Score, free_gb, lacks_memory, races_of, score
from scoreboard.selection import asks_for_field, chosen_targets, plan
from scoreboard.targets import SCRIPTED, Target, TargetFile

BENCH = Path(__file__).resolve().parents[1]
TARGETS = Path(__file__).with_name("targets.toml")
ORIGINAL_ROUNDS = 5
ORIGINAL = ("range", "buffer")  # prefixes of rows that the Go library has, too
UNUSED_BESIDE_ORIGINAL = (
    *("json", "plot", "gobench", "simulate", "resume", "calm", "memory", "all"),
    *("peer", "linked", "linked_peers"),
)

EXAMPLE = """examples:
  ./dev bench                         first figures: ours beside glibc and the preloaded peers
  ./dev bench --rows 'pair/*' --linked-peers
  ./dev bench --scoreboard --quick    every row of scoreboard/targets.toml, 3 repetitions
  ./dev bench --peer mimalloc3=/opt/mimalloc/lib/libmimalloc.so
  ./dev bench --scoreboard --rows loop  optimiser, simulator, sweep, replay; some minutes
  ./dev bench --scoreboard --rows 'range*'  range allocators beside plain references
  ./dev bench --scoreboard --rows 'arena*'  arenas beside a loop that bumps and clears, and Go
  ./dev bench --scoreboard --rows 'gc*'     the collector beside Go's and Boehm's
  ./dev bench --scoreboard --rows 'buffer*' readers and multi-buffer memory beside plain ones
  ./dev bench --peer-go ~/src/gomem   ranges and buffers beside the Go library they follow
  ./dev bench --peer-go ~/src/gomem --scoreboard --rows 'range*'  verdicts, then beside the library
  ./dev bench --scoreboard --rows 'field*'  programs of bench/field beside seven allocators
  ./dev bench --scoreboard --resume   goes on where a scoreboard was cut short
  ./dev bench --scoreboard --calm     on a machine that others use too: waits for calm moments
  ./dev bench --gobench new.txt && benchstat -col /alloc new.txt"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="./dev bench",
        description="Allocation benches, ours and other allocators interleaved, each run its own "
        "process. Medians; ratios with order-statistic intervals.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run_options(made)
    add = made.add_argument
    add("--scoreboard", action="store_true", help="verdicts on the rows of the file of targets")
    add("--targets", type=Path, default=TARGETS, help="another file of targets")
    add("--all", action="store_true", help="every row, not only the first figures")
    add("--linked-peers", action="store_true", help="shows linked peers in the figures too")
    add("--memory", action="store_true", help="allocations and bytes an operation, in extra runs")
    add(
        "--simulate",
        action="store_true",
        help="with --rows 'field/*': instructions and mispredictions by cachegrind, no times",
    )
    add(
        "--peer-go",
        type=Path,
        metavar="DIR",
        help="ranges and buffers beside the Go library GoMem in DIR, and its own cases; with "
        "--rows those rows alone, with --scoreboard behind their verdicts",
    )
    add("--gobench", type=Path, metavar="FILE", help="also writes Go benchmark text for benchstat")
    return made


def _measure_memory(jobs: Sequence[Job]) -> dict[tuple[str, str], MemoryUse]:
    found: dict[tuple[str, str], MemoryUse] = {}
    for job in jobs:
        if job.contender.basis == "go":
            continue
        use = memory_use(run_job(job, QUICK_MIN_TIME_S / 10, memory=True))
        if use is not None:
            found[job.bench, job.contender.label] = use
    return found


def _counts(options: argparse.Namespace, targets: Sequence[Target]) -> dict[str, Counts]:
    """The counts of Target.paths: made now, or in a quick run the committed baseline's."""
    wanted = sorted({path for row in targets for path in row.paths})
    if not wanted or not (options.build / "bench_paths").is_file():
        return {}
    programs = counts.programs_of(options.build)
    found: dict[str, Counts] = {}
    pairs: list[tuple[counts.Program, str, str]] = []
    baseline = counts.load_baseline(BENCH / "instructions.json") if options.quick else {}
    for program in programs:
        mark = "bare " if program.prefix else ""
        known = baseline.get(counts.key_of(program), {})
        for path in counts.paths_of(program):
            if mark + path in wanted and path in known:
                found[mark + path] = known[path]
            elif mark + path in wanted:
                pairs.append((program, path, mark + path))
    if pairs and not options.quick and counts.find_valgrind() is not None:
        counted = counts.count_all([(program, path) for program, path, _ in pairs])
        found |= {name: each for (_, _, name), each in zip(pairs, counted, strict=True)}
    return found


def _rules(file: TargetFile, options: argparse.Namespace) -> Rules:
    """The rules that the file of targets fixes for this machine and the chosen rows."""
    repetitions = file.field_repetitions if asks_for_field(options) else file.repetitions
    return Rules(repetitions, key_of(this_machine(), file.machines))


def _execute_scripts(options: argparse.Namespace, file: TargetFile) -> int:
    """The rows that scripts measure; each script runs once, whichever of its rows are asked for."""
    targets, rules = chosen_targets(file, options, scripted=True), _rules(file, options)
    about = provenance(BENCH.parent, options.build)
    rounds = options.repetitions or rules.repetitions
    told, scores = scripted.measure_all(targets, rounds, rules, quick=options.quick)
    path = write_results(options.results, {**about, "scripts": told})
    show.print_scoreboard(options, scores)
    if not options.json:
        print(f"\nraw results: {path}")
    if options.plot is not None:
        plot_scoreboard(scores, options.plot, measured_on(about))
    return 0


def _simulate(options: argparse.Namespace, file: TargetFile) -> int:
    """Counts instead of times, for the programs of the field."""
    if options.scoreboard or not asks_for_field(options):
        raise BenchError("--simulate counts programs of the field: give --rows 'field/*' alone")
    _, field, jobs = plan(options, BENCH, file)
    wanted = [job for job in jobs if job.bench not in UNSIMULATED]
    for rows in tables(wanted, simulate_all(wanted)).values():
        print(text_table(rows[0], rows[1:]) + "\n")
    say_missing(field)
    return 0


def _refuse_beside_original(options: argparse.Namespace) -> None:
    """Refuses options that --peer-go would have to ignore.

    Raises:
        BenchError: such an option is given.
    """
    for word in UNUSED_BESIDE_ORIGINAL:
        if getattr(options, word) not in (None, False, []):
            name = word.replace("_", "-")
            raise BenchError(f"--peer-go prints tables of its own: leave out --{name}")
    if options.scoreboard and not (options.rows or "").startswith(ORIGINAL):
        raise BenchError("--peer-go with --scoreboard: give --rows 'range*' or --rows 'buffer*'")


def _beside_original(options: argparse.Namespace) -> int:
    """The verdicts of rows, if they are asked for, and the Go library's times."""
    _refuse_beside_original(options)
    original_speed.rows_of(options.rows)
    if options.scoreboard:
        _execute_scripts(options, targets_file.load(options.targets))
        print()
    rounds = options.repetitions or ORIGINAL_ROUNDS
    return original_speed.compare(
        options.peer_go,
        rounds=1 if options.quick else rounds,
        quick=options.quick,
        say=print,
        pattern=options.rows,
    )


def execute(options: argparse.Namespace) -> int:
    """Runs what the options ask for; returns the exit status."""
    if options.peer_go is not None:
        return _beside_original(options)
    file = targets_file.load(options.targets)
    if options.simulate:
        return _simulate(options, file)
    if options.scoreboard and (options.rows or "").startswith(SCRIPTED):
        return _execute_scripts(options, file)
    targets, field, jobs = plan(options, BENCH, file)
    rules = _rules(file, options)
    if not options.json:
        say_missing(field)
    about = provenance(BENCH.parent, options.build)
    made = origins_of(field, options)
    about["origins"] = [each.as_json() for each in made]
    free = free_gb()
    spared = {row.bench for row in targets if lacks_memory(row, free)}
    wanted = [job for job in jobs if job.bench not in spared]
    if options.scoreboard:
        about["rules"] = asdict(rules)
    usual = rules.repetitions if options.scoreboard else REPETITIONS
    races = races_of(targets, field)
    run, path = measure(options, field, wanted, about, races=races, usual=usual)
    used = _measure_memory(jobs) if options.memory and not run.interrupted else {}
    scores: list[Score] = []
    if options.scoreboard:
        counted = {} if run.interrupted else _counts(options, targets)
        scores = [
            score_programs(row, field, run, rules)
            if row.programs
            else score(row, field, run, rules, counts=counted, free=free)
            for row in targets
        ]
        show.print_scoreboard(options, scores)
    elif options.json:
        print(json.dumps(show.figures_json(run, used), indent=1))
    else:
        show.print_figures(run, used)
    if not options.json:
        if options.scoreboard:
            show.say_rules(rules, len(run.repetitions))
        say_origins(run, field, made)
        say_run(run, about, path)
    if options.gobench is not None:
        write_whole(options.gobench, report.go_benchmark_text(run, about))
    if options.plot is not None:
        show.draw(options, run, scores, about)
    return 130 if run.interrupted else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 when the output was cut off, 2 for bad input, 130 after Ctrl-C.

    With --peer-go also 1 when a row is slower than the original.
    """
    options = parser().parse_args(arguments)

    def work() -> int:
        check_options(options.repetitions, options.plot)
        return execute(options)

    return run_command("bench", work)
