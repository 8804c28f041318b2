# SPDX-License-Identifier: Apache-2.0
"""What bench/run.py prints and draws of a run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_lib import calm, claim, claim_plot, report
from bench_lib.contenders import Field
from bench_lib.judge import Rules
from bench_lib.machine import UNKNOWN, this_machine
from bench_lib.origins import Origin
from bench_lib.plots import plot_figures, plot_scoreboard
from bench_lib.runner import MemoryUse, Run
from bench_lib.scoreboard import Score
from bench_lib.stats import order_rank

REPETITIONS = 10
"""Fewer are provisional. What a scoreboard needs stands in bench/targets.toml."""


def say_missing(field: Field) -> None:
    """A line for each contender that is not here."""
    for name, mend in field.missing.items():
        print(f"not here: {name} ({mend})", file=sys.stderr)


def say_rules(rules: Rules, repetitions: int) -> None:
    """The class of this machine, and whether a run of so many repetitions is judged."""
    print(f"\nmachine class: {rules.machine or 'unknown'} ({this_machine()})")
    if rules.machine == UNKNOWN:
        print("rows with weaker targets on known classes are reported, beside what was asked")
    if repetitions != rules.repetitions:
        fixed = f"fixed in the file of targets: {rules.repetitions}"
        print(f"not judged: repetitions made: {repetitions}, {fixed}")


def say_origins(run: Run, field: Field, made: Sequence[Origin]) -> None:
    """Version, package, compiler and flags of each contender that was measured."""
    ran = {(job.contender.name, job.contender.basis) for job in run.jobs}
    shown = [
        origin
        for who, origin in zip(field.contenders, made, strict=True)
        if (who.name, who.basis) in ran
    ]
    rows = [[o.label, o.basis, o.version, o.package, o.compiler, o.flags] for o in shown]
    header = ["made of", "called", "version", "package", "compiler", "flags"]
    print("\n" + report.text_table(header, [[cell or "-" for cell in row] for row in rows]))


def say_run(run: Run, about: dict[str, Any], path: Path | None) -> None:
    """How a run was made, what failed in it, and where its raw results are, if anywhere."""
    count = len(run.repetitions)
    _, coverage = order_rank(count)
    print(
        f"\n{count} interleaved repetitions; intervals hold the median with {coverage:.0%}; "
        f"{about['machine']['cpu']}, {about['compiler']}, load {about['machine']['load']:.1f}"
    )
    if count < REPETITIONS:
        print(f"provisional: a claim needs {REPETITIONS} repetitions")
    if "calm_runs" in about:
        print(calm.describe(about["calm_runs"]))
    for line in run.failures():
        print(f"failed: {line}")
    if path is not None:
        print(f"raw results: {path}")


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


def print_classes(run: Run) -> None:
    """What specialised paths save, class by class."""
    print("\n\n".join(table.as_text() for table in claim.tables(run)))


def draw(
    options: argparse.Namespace, run: Run, scores: Sequence[Score], about: dict[str, Any]
) -> None:
    """Draws what was asked for to --plot."""
    if scores:
        plot_scoreboard(scores, options.plot)
    elif options.classes:
        claim_plot.plot(run, claim.provenance(run, about), options.plot)
    else:
        plot_figures(run, list(dict.fromkeys(job.bench for job in run.jobs)), options.plot)
