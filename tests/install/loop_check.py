#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Closes the loop on a program and judges it: is what was predicted what is measured?

Records the program (hash seeds fixed), finds its best table (32 classes, multiples of 16, objective
peak), builds library and preloaded malloc with it, and checks

- the simulator against a tracked heap that replays the recording by one thread: every part of the
  ledger, at the peak and at the end, equal to the byte;
- the most that the heap of real runs under the preloaded malloc holds, median of 5, against the
  simulator's: within 2 %;

both for the stock table and for the best one. Exit 1: one of them does not hold.

What is held depends on the clock, too: the decay gives idle spans and pages back, at other moments
on a busy machine. --quick switches the decay off, in the simulator and in the runs.

Example: python tests/install/loop_check.py --quick      with an installed wheel, and cc
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import spanwise as sw
from spanwise.builds.build import build_telling
from spanwise.measure import closed_loop
from spanwise.measure.running import PRELOAD_TABLE
from spanwise.recordings.recorder import run_recorded

TOLERANCE = 0.02
RUNS, QUICK_RUNS = 5, 3
JOB = """\
import json
rows = [{"id": i, "name": f"name {i}", "tags": [f"t{i % 7}", i * 0.5]} for i in range(COUNT)]
again = json.loads(json.dumps(rows))
assert again == rows
"""
ROWS, QUICK_ROWS = 40_000, 3_000


def close(
    argv: list[str], folder: Path, runs: int, decay_ms: float | None
) -> tuple[closed_loop.Loop, list[sw.LedgerCheck]]:
    """The loop on a program, with its files in a folder; and the checks of the simulator.

    Args:
        argv: program and arguments.
        folder: where recording and build go.
        runs: of the program under each preloaded malloc.
        decay_ms: of simulated heaps and preloaded mallocs: None the default, `math.inf` never.

    Raises:
        SpanwiseError: a step failed; the message names it.
    """
    env = closed_loop.same_environment()
    if decay_ms is not None:
        env["SPANWISE_DECAY_MS"] = "never" if math.isinf(decay_ms) else str(decay_ms)
    outcome = run_recorded(argv, folder / "program.swt", stacks=0, env=env)
    _say(outcome.lines()[-1])
    recording = sw.Recording.open(outcome.path)
    found = sw.optimize(
        recording, closed_loop.CLASSES, closed_loop.OBJECTIVE, align=closed_loop.ALIGN
    )
    best = found.table
    options = sw.HeapOptions(decay_ms=decay_ms)
    made = build_telling(best, folder / "best", _say, anyway=True)
    _say(f"{runs} runs under each preloaded malloc")
    measured = [
        closed_loop.measure(argv, recording.ledger(table, options=options), runs, lib=lib, env=env)
        for table, lib in ((PRELOAD_TABLE, None), (best, made.folder))
    ]
    _say("replays by one thread on tracked heaps")
    checks = [
        sw.check_ledger(recording, table, at)
        for table in (PRELOAD_TABLE, best)
        for at in ("peak", "end")
    ]
    name = Path(recording.program).name
    verdict = found.holds, found.verdict()
    return closed_loop.Loop(name, measured[0], measured[1], len(best), *verdict), checks


def _say(line: str) -> None:
    print(f"loop: {line}", file=sys.stderr, flush=True)


def within(measured: closed_loop.Measured) -> bool:
    """Whether the median of the runs is near enough to the prediction."""
    return measured.error is not None and abs(measured.error) <= TOLERANCE


def lines_of(loop: closed_loop.Loop, checks: list[sw.LedgerCheck]) -> list[str]:
    """A line for each thing that is checked."""
    lines = []
    for check in checks:
        parts = ", ".join(
            f"{name} {real:,} / {model:,}" for name, (real, model) in check.different.items()
        )
        what = f"simulator, {check.model.table} at {check.model.at}"
        held = check.model.held_bytes
        lines.append(f"{what}: {parts or f'{held:,} bytes held, equal to the byte'}")
    for one in (loop.stock, loop.best):
        told = sorted(run.peak_held_bytes for run in one.runs)
        lines.append(
            f"peak held, {one.predicted.table}: {one.measured_bytes:,} bytes measured (median of"
            f" {len(told)}, {told[0]:,} to {told[-1]:,}), {one.predicted_bytes:,} predicted:"
            f" {100 * (one.error or 0):+.2f} %"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the loop, prints, judges."""
    parser = argparse.ArgumentParser(
        prog="loop_check.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"default {RUNS}")
    parser.add_argument(
        "--quick", action="store_true", help=f"a small program, {QUICK_RUNS} runs of it, no decay"
    )
    parser.add_argument("-o", "--output", metavar="FILE.json", help="all figures")
    parser.add_argument("command", nargs="*", metavar="PROGRAM ARGS", help="after --")
    options = parser.parse_args(arguments)
    if options.runs < 1:
        parser.error(f"--runs {options.runs}: give 1 or more")
    job = JOB.replace("COUNT", str(QUICK_ROWS if options.quick else ROWS))
    argv = options.command or [sys.executable, "-c", job]
    runs, decay_ms = (QUICK_RUNS, math.inf) if options.quick else (options.runs, None)
    try:
        with tempfile.TemporaryDirectory(prefix="spanwise-loop-") as folder:
            loop, checks = close(argv, Path(folder), runs, decay_ms)
    except sw.SpanwiseError as error:
        print(f"loop_check: {error}", file=sys.stderr)
        return 2
    holds = all(not check.different for check in checks) and within(loop.stock)
    holds = holds and within(loop.best)
    print(loop, *lines_of(loop, checks), loop.sentence(), sep="\n")
    print(
        f"the loop {'holds' if holds else 'does NOT hold'}: equal to the byte, within"
        f" {TOLERANCE:.0%}"
    )
    if options.output:
        figures: dict[str, Any] = {"holds": holds, **loop.to_dict()}
        figures["simulator"] = [check.to_dict() for check in checks]
        Path(options.output).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
