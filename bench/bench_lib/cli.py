# SPDX-License-Identifier: Apache-2.0
"""The command line of bench/run.py."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_lib import counts, journal, report, scripted
from bench_lib.contenders import Field, find_field
from bench_lib.counts import Counts
from bench_lib.errors import BenchError
from bench_lib.journal import Journal
from bench_lib.plots import plot_classes, plot_figures, plot_scoreboard
from bench_lib.runner import (
    Job,
    MemoryUse,
    Repetition,
    Run,
    memory_use,
    run_interleaved,
    run_job,
    terminal,
)
from bench_lib.scoreboard import Score, free_gb, jobs_of, lacks_memory, score
from bench_lib.stats import order_rank
from bench_lib.targets import LOOP, Target, load_targets

BENCH = Path(__file__).resolve().parents[1]
REPETITIONS, QUICK_REPETITIONS = 10, 3
MIN_TIME_S, QUICK_MIN_TIME_S = 0.05, 0.02

# The first figures: what a plain run shows. --all adds the rest.
FIGURES = (
    "pair/16",
    "pair/64",
    "pair/512",
    "zpair/16",
    "malloc/16x100k",
    "calloc/16x100k",
    "free/16x100k",
    "free_random/16x100k",
    "free_random/16x1M",
    "malloc_after/16x1M",
    "replace/8-1024",
)
MORE_FIGURES = (
    "pair/32",
    "zpair/32",
    "zpair/64",
    "zpair/512",
    "calloc/32x100k",
    "calloc/64x100k",
    "free_random/64x1M",
    "malloc_after/64x1M",
    "cold/16x1M",
    "producer_consumer/64",
    "cross_free/64",
    *(f"scaling_{row}/{n}" for row in ("pair", "replace", "cross") for n in (1, 2, 4, 8)),
    "false_sharing/handed",
    "false_sharing/reused",
    "growth/10M",
    "growth/100M",
    "seed/Alloc16",
    "seed/Alloc32",
    "seed/Alloc64",
    "seed/AllocWithPtr",
)
# Held back from --all: gigabytes, or ratios instead of times.
HEAVY_FIGURES = ("growth/1G", "growth/8G")
RATIO_ROWS = ("replace_rss/8-1024",)
EXAMPLE = """examples:
  ./dev bench                         first figures: ours beside glibc and the preloaded peers
  ./dev bench --rows 'pair/*' --linked-peers
  ./dev bench --scoreboard --quick    every target of bench/targets.toml, 3 repetitions
  ./dev bench --peer mimalloc3=/opt/mimalloc/lib/libmimalloc.so
  ./dev bench --scoreboard --rows loop  optimiser, simulator, sweep, replay; some minutes
  ./dev bench --scoreboard --resume   goes on where a scoreboard was cut short
  ./dev bench --classes --plot classes.png
  ./dev bench --anatomy --plot anatomy.png  one allocation taken apart; has its own --help
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
    add("--classes", action="store_true", help="a pair of each class, inline beside generic")
    add("--quick", action="store_true", help=f"{QUICK_REPETITIONS} short repetitions")
    add("--repetitions", type=int, metavar="N", help=f"default {REPETITIONS}")
    add(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PATH[@VERSION]",
        help="adds an allocator to preload (repeatable)",
    )
    add(
        "--linked",
        action="append",
        default=[],
        metavar="NAME=PROGRAM[@VERSION]",
        help="adds a bench_peer program that was built elsewhere (repeatable)",
    )
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
    add("--results", type=Path, default=BENCH / "results", help="where raw JSON goes")
    return made


def matches(name: str, pattern: str | None) -> bool:
    """Whether a row's name fits a shell pattern, or has the text in it when it is no pattern."""
    if pattern is None:
        return True
    if any(mark in pattern for mark in "*?["):
        return fnmatch.fnmatchcase(name, pattern)
    return pattern in name


def choose(names: Sequence[str], pattern: str | None) -> list[str]:
    """The names that a pattern selects; a name that it spells out is selected alone.

    Raises:
        BenchError: it selects none.
    """
    chosen = [name for name in names if name == pattern] or [
        name for name in names if matches(name, pattern)
    ]
    if not chosen:
        raise _none_match(pattern, names)
    return chosen


def _none_match(pattern: str | None, names: Sequence[str]) -> BenchError:
    shown = ", ".join(names[:4])
    return BenchError(f"--rows '{pattern}' matches no row; there are {len(names)}: {shown}, ...")


def figure_jobs(benches: Sequence[str], field: Field, *, linked: bool) -> list[Job]:
    """Ours in every way, and the preloaded peers, for each row."""
    left_out = ("bare", "special", "linked", "go")
    contenders = [c for c in field.contenders if c.basis not in left_out]
    if linked:
        contenders += field.peers("linked")
    return [Job(bench, contender) for bench in benches for contender in contenders]


def class_jobs(build: Path, field: Field) -> list[Job]:
    """Each class of c16 and go: the specialised path beside the generic one, and c16's inline.

    Raises:
        BenchError: the program does not list its rows.
    """
    listed = subprocess.run(
        [build / "bench_spanwise", "--benchmark_list_tests", "--benchmark_filter=/class_"],
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [line.partition("/") for line in listed.stdout.splitlines() if "/class_" in line]
    if listed.returncode != 0 or not rows:
        raise BenchError(f"{build / 'bench_spanwise'} lists no class; build it anew")
    jobs: dict[str, list[Job]] = {}
    for policy, _, bench in rows:
        ours = field.ours(policy)
        if ours is not None:
            jobs.setdefault(bench, []).append(Job(bench, ours))
    order = sorted(jobs, key=lambda bench: (bench.split("/")[0], int(bench.split("/")[1])))
    return [job for bench in order for job in jobs[bench]]


def _measure_memory(jobs: Sequence[Job]) -> dict[tuple[str, str], MemoryUse]:
    found: dict[tuple[str, str], MemoryUse] = {}
    for job in jobs:
        if job.contender.basis == "go":
            continue
        use = memory_use(run_job(job, QUICK_MIN_TIME_S / 10, memory=True))
        if use is not None:
            found[job.bench, job.contender.label] = use
    return found


def _say_missing(field: Field) -> None:
    for name, mend in field.missing.items():
        print(f"not here: {name} ({mend})", file=sys.stderr)


def _say_run(run: Run, about: dict[str, Any], path: Path) -> None:
    count = len(run.repetitions)
    _, coverage = order_rank(count)
    print(
        f"\n{count} interleaved repetitions; intervals hold the median with {coverage:.0%}; "
        f"{about['machine']['cpu']}, {about['compiler']}, load {about['machine']['load']:.1f}"
    )
    if count < REPETITIONS:
        print(f"provisional: a claim needs {REPETITIONS} repetitions")
    for line in run.failures():
        print(f"failed: {line}")
    print(f"raw results: {path}")


def _print_figures(run: Run, used: dict[tuple[str, str], MemoryUse]) -> None:
    benches = list(dict.fromkeys(job.bench for job in run.jobs))
    print(report.figures_table(run, benches))
    columns = report.columns_of(run)
    if any(c.name != "spanwise" for c in columns):
        print()
        print(report.comparison_table(run, benches))
    if used:
        print()
        print(report.memory_table(used))


def _figures_json(run: Run, used: dict[tuple[str, str], MemoryUse]) -> list[dict[str, Any]]:
    return [
        {
            "bench": job.bench,
            "allocator": job.contender.name,
            "basis": job.contender.basis,
            "version": job.contender.version,
            "ns": run.values(job.bench, job.contender, "op"),
            "allocs_per_op": used[key].allocs
            if (key := (job.bench, job.contender.label)) in used
            else None,
            "bytes_per_op": used[key].total_bytes if key in used else None,
        }
        for job in run.jobs
    ]


def _plan(options: argparse.Namespace) -> tuple[list[Target], Field, list[Job]]:
    """The targets (scoreboard only), everyone, and what is to be run."""
    targets: list[Target] = []
    if options.scoreboard:
        every = [row for row in load_targets(options.targets) if not row.script]
        chosen = choose([row.name for row in every], options.rows)
        targets = [row for row in every if row.name in chosen]
        field = find_field(
            options.build,
            BENCH,
            options.peer,
            options.linked,
            with_go=any(row.peers == "go" for row in targets),
        )
        return targets, field, jobs_of(targets, field)
    names = FIGURES if not (options.all or options.rows) else FIGURES + MORE_FIGURES
    if options.rows:
        names += HEAVY_FIGURES
    benches = [] if options.classes else choose(names, options.rows)
    field = find_field(options.build, BENCH, options.peer, options.linked, with_go=False)
    if options.classes:
        jobs = class_jobs(options.build, field)
        chosen = choose([job.bench for job in jobs], options.rows)
        return [], field, [job for job in jobs if job.bench in chosen]
    return [], field, figure_jobs(benches, field, linked=options.linked_peers)


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


def _print_scoreboard(options: argparse.Namespace, scores: Sequence[Score]) -> None:
    if options.json:
        print(json.dumps([row.as_json() for row in scores], indent=1))
        return
    counted = report.counts_table(scores)
    if counted:
        print(counted + "\n")
    print(report.scoreboard_table(scores))


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
    options: argparse.Namespace, field: Field, jobs: Sequence[Job], about: dict[str, Any]
) -> tuple[Run, Path]:
    """Runs the jobs; returns what was measured and where the raw results are.

    Raises:
        KeyboardInterrupt: before the first repetition was done.
    """
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    min_time_s = QUICK_MIN_TIME_S if options.quick else MIN_TIME_S
    kept, before = _journal(options, about, min_time_s)
    run = run_interleaved(
        jobs,
        repetitions,
        min_time_s,
        terminal(),
        before=before,
        keep=kept.keep,
        drop=options.scoreboard,
    )
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


def _execute_loop(options: argparse.Namespace) -> int:
    """The rows that scripts measure; each script runs once, whichever of its rows are asked for."""
    every = [row for row in load_targets(options.targets) if row.script]
    chosen = choose([row.name for row in every], options.rows)
    targets = [row for row in every if row.name in chosen]
    about = report.provenance(BENCH.parent, options.build)
    rounds = options.repetitions or REPETITIONS
    told, scores = scripted.measure_all(targets, rounds, quick=options.quick)
    path = report.write_results(options.results, {**about, "scripts": told})
    _print_scoreboard(options, scores)
    if not options.json:
        print(f"\nraw results: {path}")
    if options.plot is not None:
        plot_scoreboard(scores, options.plot)
    return 0


def execute(options: argparse.Namespace) -> int:
    """Runs what the options ask for; returns the exit status."""
    if options.scoreboard and (options.rows or "").startswith(LOOP):
        return _execute_loop(options)
    targets, field, jobs = _plan(options)
    if not options.json:
        _say_missing(field)
    about = report.provenance(BENCH.parent, options.build)
    free = free_gb()
    spared = {row.bench for row in targets if lacks_memory(row, free)}
    run, path = _measure(options, field, [job for job in jobs if job.bench not in spared], about)
    used = _measure_memory(jobs) if options.memory and not run.interrupted else {}
    scores: list[Score] = []
    if options.scoreboard:
        counted = {} if run.interrupted else _counts(options, targets)
        scores = [score(row, field, run, counted, free) for row in targets]
        _print_scoreboard(options, scores)
    elif options.json:
        print(json.dumps(_figures_json(run, used), indent=1))
    elif options.classes:
        print(report.class_table(run))
    else:
        _print_figures(run, used)
    if not options.json:
        _say_run(run, about, path)
    if options.gobench is not None:
        report.write_whole(options.gobench, report.go_benchmark_text(run, about))
    if options.plot is not None:
        _draw(options, run, scores)
    return 130 if run.interrupted else 0


def _draw(options: argparse.Namespace, run: Run, scores: Sequence[Score]) -> None:
    if scores:
        plot_scoreboard(scores, options.plot)
    elif options.classes:
        plot_classes(run, options.plot)
    else:
        plot_figures(run, list(dict.fromkeys(job.bench for job in run.jobs)), options.plot)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 when the output was cut off, 2 for bad input, 130 after Ctrl-C."""
    made = parser()
    options = made.parse_args(arguments)
    try:
        if options.repetitions is not None and options.repetitions < 1:
            raise BenchError(f"--repetitions is {options.repetitions}; use 1 or more")
        if options.plot is not None and options.plot.suffix != ".png":
            raise BenchError(f"--plot is '{options.plot}'; use a name that ends in .png")
        return execute(options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
