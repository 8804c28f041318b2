# SPDX-License-Identifier: Apache-2.0
"""What bench/run.py prints and draws of a run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from runner.provenance import measured_on
from runner.runs import MemoryUse, Run

from scoreboard import report
from scoreboard.judge import Rules
from scoreboard.machine import UNKNOWN, this_machine
from scoreboard.plots import plot_figures, plot_scoreboard
from scoreboard.scores import Score


def say_rules(rules: Rules, repetitions: int) -> None:
    """The class of this machine, and whether a run of so many repetitions is judged."""
    print(f"\nmachine class: {rules.machine or 'unknown'} ({this_machine()})")
    if rules.machine == UNKNOWN:
        print("rows with weaker targets on known classes are reported, beside what was asked")
    if repetitions != rules.repetitions:
        fixed = f"fixed in the file of targets: {rules.repetitions}"
        print(f"not judged: repetitions made: {repetitions}, {fixed}")


def print_figures(run: Run, used: dict[tuple[str, str], MemoryUse]) -> None:
    """Times of each row, then ours beside each peer, then memory if it was measured."""
    benches = list(dict.fromkeys(job.bench for job in run.jobs))
    print(report.figures_table(run, benches))
    columns = report.columns_of(run)
    if any(c.name != "spanwise" for c in columns):
        print()
        print(report.comparison_table(run, benches))
    if used:
        print()
        print(report.memory_table(used))


def figures_json(run: Run, used: dict[tuple[str, str], MemoryUse]) -> list[dict[str, Any]]:
    """A row for each job: times in nanoseconds, one a repetition."""
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


def print_scoreboard(options: argparse.Namespace, scores: Sequence[Score]) -> None:
    """Verdicts, behind what was counted for them; with --json the verdicts alone."""
    if options.json:
        print(json.dumps([row.as_json() for row in scores], indent=1))
        return
    counted = report.counts_table(scores)
    if counted:
        print(counted + "\n")
    print(report.scoreboard_table(scores))


def draw(
    options: argparse.Namespace, run: Run, scores: Sequence[Score], about: Mapping[str, Any]
) -> None:
    """Draws what was asked for to --plot."""
    measured = measured_on(about)
    if scores:
        plot_scoreboard(scores, options.plot, measured)
    else:
        benches = list(dict.fromkeys(job.bench for job in run.jobs))
        plot_figures(run, benches, options.plot, measured)
