# SPDX-License-Identifier: Apache-2.0
"""The lines of every command on a run: absent contenders, their builds, failures, results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner import calm
from runner.contenders import Field
from runner.origins import Origin
from runner.runs import Run
from runner.session import REPETITIONS
from runner.stats import order_rank
from runner.text import text_table


def say_missing(field: Field) -> None:
    """A line for each contender that is not here."""
    for name, mend in field.missing.items():
        print(f"not here: {name} ({mend})", file=sys.stderr)


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
    print("\n" + text_table(header, [[cell or "-" for cell in row] for row in rows]))


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
