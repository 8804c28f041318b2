# SPDX-License-Identifier: Apache-2.0
"""One run of rows as a command's options want it: repetitions, journal, raw results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner import journal
from runner.calm import calm_if
from runner.command import (
    add_calm_option,
    add_flags_option,
    add_linked_option,
    add_peer_option,
)
from runner.contenders import Field
from runner.journal import Journal
from runner.origins import Origin, origins, parse_flags
from runner.provenance import cmake_cache, raw_results, results_path, write_results
from runner.runs import Job, Race, Repetition, Run, run_interleaved, terminal

BENCH = Path(__file__).resolve().parents[1]
REPETITIONS = 10
"""Fewer are provisional. What a scoreboard needs stands in bench/scoreboard/targets.toml."""
QUICK_REPETITIONS = 3
MIN_TIME_S, QUICK_MIN_TIME_S = 0.05, 0.02


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """The options that `measure` reads, and those that choose rows and contenders."""
    add = parser.add_argument
    add("--build", type=Path, default=BENCH.parent / "build/bench", help="where the programs are")
    add("--rows", metavar="PATTERN", help="only rows that match (shell pattern or part of a name)")
    add("--quick", action="store_true", help=f"{QUICK_REPETITIONS} short repetitions")
    add("--repetitions", type=int, metavar="N", help=f"default {REPETITIONS}")
    add_peer_option(parser)
    add_linked_option(parser)
    add_flags_option(parser)
    add_calm_option(parser)
    add(
        "--resume",
        nargs="?",
        const="",
        metavar="JOURNAL",
        help="goes on with a run that was cut short, the last one if none is named; give the "
        "other options as then",
    )
    add("--json", action="store_true", help="machine-readable output")
    add("--plot", type=Path, metavar="FILE.png", help="also draws a picture")
    add("--results", type=Path, default=BENCH / "results", help="where raw JSON goes")


def _journal(
    options: argparse.Namespace, about: dict[str, Any], min_time_s: float
) -> tuple[Journal, list[Repetition]]:
    """A new journal, or with --resume that of a run which was cut short, and what it holds."""
    now = journal.conditions(about, min_time_s)
    if options.resume is None:
        path = results_path(options.results, about).with_suffix(journal.SUFFIX)
        return Journal.start(path, now), []
    path = Path(options.resume) if options.resume else journal.newest(options.results)
    before = journal.load(path, now)
    return Journal.go_on(path), before


def origins_of(field: Field, options: argparse.Namespace) -> list[Origin]:
    """How each contender was made, as far as its file, CMake and --flags tell."""
    told = parse_flags(options.flags)
    return origins(field.contenders, cmake_cache(options.build), told)


def measure(
    options: argparse.Namespace,
    field: Field,
    jobs: Sequence[Job],
    about: dict[str, Any],
    *,
    races: Sequence[Race] = (),
    usual: int = REPETITIONS,
) -> tuple[Run, Path]:
    """Runs the jobs; returns what was measured and where the raw results are.

    Args:
        options: those of `add_run_options`.
        field: everyone who takes part.
        jobs: what is run in each repetition.
        about: how the run is made; what calm moments cost is added.
        races: who competes, so that the hopeless are spared (runner.runs).
        usual: the number of repetitions where the options say nothing of it.

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
    path = write_results(options.results, raw_results(run, field, about))
    if not run.interrupted:
        kept.remove()
    return run, path
