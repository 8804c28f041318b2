# SPDX-License-Identifier: Apache-2.0
"""The command line of bench/run.py."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench_lib import claim, counts, journal, origins, report, scripted, show, targets_file
from bench_lib.calm import calm_if
from bench_lib.command import (
    add_calm_option,
    add_flags_option,
    add_linked_option,
    add_peer_option,
    check_options,
    run_command,
)
from bench_lib.contenders import Field
from bench_lib.counts import Counts
from bench_lib.errors import BenchError
from bench_lib.journal import Journal
from bench_lib.judge import Rules
from bench_lib.machine import key_of, this_machine
from bench_lib.pages import check_page
from bench_lib.plots import plot_scoreboard
from bench_lib.runner import (
    Job,
    MemoryUse,
    Race,
    Repetition,
    Run,
    memory_use,
    run_interleaved,
    run_job,
    terminal,
)
from bench_lib.scoreboard import Score, free_gb, lacks_memory, races_of, score
from bench_lib.selection import chosen_targets, plan
from bench_lib.show import REPETITIONS
from bench_lib.targets import LOOP, Target, TargetFile

BENCH = Path(__file__).resolve().parents[1]
QUICK_REPETITIONS = 3
MIN_TIME_S, QUICK_MIN_TIME_S = 0.05, 0.02

EXAMPLE = """examples:
  ./dev bench                         first figures: ours beside glibc and the preloaded peers
  ./dev bench --rows 'pair/*' --linked-peers
  ./dev bench --scoreboard --quick    every target of bench/targets.toml, 3 repetitions
  ./dev bench --peer mimalloc3=/opt/mimalloc/lib/libmimalloc.so
  ./dev bench --scoreboard --rows loop  optimiser, simulator, sweep, replay; some minutes
  ./dev bench --scoreboard --resume   goes on where a scoreboard was cut short
  ./dev bench --scoreboard --calm     on a machine that others use too: waits for calm moments
  ./dev bench --classes --plot docs/seed-claim.png --write docs/design/seed-claim.md
  ./dev bench --anatomy --plot anatomy.png  one allocation taken apart; has its own --help
  ./dev bench --limits --quick        what each requirement costs; has its own --help
  ./dev bench --ablations --quick     each part beside its alternative; --ablations --help-options
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
    add = made.add_argument
    add("--build", type=Path, default=BENCH.parent / "build/bench", help="where the programs are")
    add("--scoreboard", action="store_true", help="verdicts on the rows of bench/targets.toml")
    add("--targets", type=Path, default=BENCH / "targets.toml", help="another file of targets")
    add("--rows", metavar="PATTERN", help="only rows that match (shell pattern or part of a name)")
    add("--all", action="store_true", help="every row, not only the first figures")
    add(
        "--classes",
        action="store_true",
        help="each class, specialised beside generic, and Go's own when there is a toolchain",
    )
    add("--quick", action="store_true", help=f"{QUICK_REPETITIONS} short repetitions")
    add("--repetitions", type=int, metavar="N", help=f"default {REPETITIONS}")
    add_peer_option(made)
    add_linked_option(made)
    add_flags_option(made)
    add_calm_option(made)
    add("--linked-peers", action="store_true", help="shows linked peers in the figures too")
    add("--memory", action="store_true", help="allocations and bytes an operation, in extra runs")
    add(
        "--resume",
        nargs="?",
        const="",
        metavar="JOURNAL",
        help="goes on with a run that was cut short, the last one if none is named; give the "
        "other options as then",
    )
    add("--json", action="store_true", help="machine-readable output")
    add("--gobench", type=Path, metavar="FILE", help="also writes Go benchmark text for benchstat")
    add("--plot", type=Path, metavar="FILE.png", help="also draws a picture")
    add("--write", type=Path, metavar="PAGE.md", help="also puts the tables of --classes there")
    add("--results", type=Path, default=BENCH / "results", help="where raw JSON goes")
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
    """What Target.paths execute: counted now, or in a quick run from the committed baseline."""
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


def _journal(
    options: argparse.Namespace, about: dict[str, Any], min_time_s: float
) -> tuple[Journal, list[Repetition]]:
    """A new journal, or with --resume that of a run which was cut short, and what it holds."""
    now = journal.conditions(about, min_time_s)
    if options.resume is None:
        path = report.results_path(options.results, about).with_suffix(journal.SUFFIX)
        return Journal.start(path, now), []
    path = Path(options.resume) if options.resume else journal.newest(options.results)
    before = journal.load(path, now)
    return Journal.go_on(path), before


def _measure(
    options: argparse.Namespace,
    field: Field,
    jobs: Sequence[Job],
    races: Sequence[Race],
    about: dict[str, Any],
    *,
    usual: int,
) -> tuple[Run, Path]:
    """Runs the jobs; returns what was measured and where the raw results are.

    `usual` is the number of repetitions where the options say nothing of it.

    Raises:
        KeyboardInterrupt: before the first repetition was done.
    """
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else usual)
    min_time_s = QUICK_MIN_TIME_S if options.quick else MIN_TIME_S
    about["calm"] = options.calm
    kept, before = _journal(options, about, min_time_s)
    calm = calm_if(options.calm)
    run = run_interleaved(
        jobs,
        repetitions,
        min_time_s,
        terminal(),
        before=before,
        keep=kept.keep,
        races=races,
        execute=calm.run if calm else None,
    )
    if calm is not None:
        about["calm_runs"] = calm.as_json()
    if run.interrupted:
        print(
            f"interrupted: {len(run.repetitions)} of {repetitions} repetitions; the same command "
            f"with --resume goes on ({kept.path})",
            file=sys.stderr,
        )
        if not run.repetitions:
            raise KeyboardInterrupt
    path = report.write_results(options.results, report.raw_results(run, field, about))
    if not run.interrupted:
        kept.remove()
    return run, path


def _rules(file: TargetFile) -> Rules:
    """What the file fixes for this machine."""
    return Rules(file.repetitions, key_of(this_machine(), file.machines))


def _execute_loop(options: argparse.Namespace, file: TargetFile) -> int:
    """The rows that scripts measure; each script runs once, whichever of its rows are asked for."""
    targets, rules = chosen_targets(file, options, scripted=True), _rules(file)
    about = report.provenance(BENCH.parent, options.build)
    rounds = options.repetitions or rules.repetitions
    told, scores = scripted.measure_all(targets, rounds, rules, quick=options.quick)
    path = report.write_results(options.results, {**about, "scripts": told})
    show.print_scoreboard(options, scores)
    if not options.json:
        print(f"\nraw results: {path}")
    if options.plot is not None:
        plot_scoreboard(scores, options.plot)
    return 0


def execute(options: argparse.Namespace) -> int:
    """Runs what the options ask for; returns the exit status."""
    file = targets_file.load(options.targets)
    if options.scoreboard and (options.rows or "").startswith(LOOP):
        return _execute_loop(options, file)
    targets, field, jobs = plan(options, BENCH, file)
    rules = _rules(file)
    if not options.json:
        show.say_missing(field)
    about = report.provenance(BENCH.parent, options.build)
    cache = report.cmake_cache(options.build)
    made = origins.origins(field.contenders, cache, origins.parse_flags(options.flags))
    about["origins"] = [each.as_json() for each in made]
    free = free_gb()
    spared = {row.bench for row in targets if lacks_memory(row, free)}
    wanted = [job for job in jobs if job.bench not in spared]
    if options.scoreboard:
        about["rules"] = asdict(rules)
    usual = rules.repetitions if options.scoreboard else REPETITIONS
    run, path = _measure(options, field, wanted, races_of(targets, field), about, usual=usual)
    used = _measure_memory(jobs) if options.memory and not run.interrupted else {}
    scores: list[Score] = []
    if options.scoreboard:
        counted = {} if run.interrupted else _counts(options, targets)
        scores = [score(row, field, run, rules, counts=counted, free=free) for row in targets]
        show.print_scoreboard(options, scores)
    elif options.json:
        print(json.dumps(show.figures_json(run, used), indent=1))
    elif options.classes:
        show.print_classes(run)
    else:
        show.print_figures(run, used)
    if not options.json:
        if options.scoreboard:
            show.say_rules(rules, len(run.repetitions))
        show.say_origins(run, field, made)
        show.say_run(run, about, path)
    if options.gobench is not None:
        report.write_whole(options.gobench, report.go_benchmark_text(run, about))
    if options.write is not None:
        claim.write_page(options.write, run, about)
    if options.plot is not None:
        show.draw(options, run, scores, about)
    return 130 if run.interrupted else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 when the output was cut off, 2 for bad input, 130 after Ctrl-C."""
    options = parser().parse_args(arguments)

    def work() -> int:
        check_options(options.repetitions, options.plot)
        if options.write is not None:
            if not options.classes:
                raise BenchError("--write belongs to --classes")
            check_page(options.write)
        return execute(options)

    return run_command("bench", work)
