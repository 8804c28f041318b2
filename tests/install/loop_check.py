#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the loop on a small program and checks that the measurements match the predictions.

Records the program (hash seeds fixed), finds its best table (32 classes, multiples of 16, objective
peak), builds library and preloaded malloc with it, and checks

- the simulator against a tracked heap that replays the recording by one thread: every part of the
  ledger, at the peak and at the end, equal to the byte;
- the most that the heap of real runs under the preloaded malloc holds, median of 3, against the
  simulator's: within 2 %;

both for the stock table and for the best one. Exit 1: one of them does not hold. The decay is off,
in the simulator and in the runs, because it depends on the clock.

Example: python tests/install/loop_check.py      with an installed wheel, and cc
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

import spanwise as sw
from spanwise.builds.build import BuildOptions, build_with
from spanwise.measure import closed_loop
from spanwise.measure.running import PRELOAD_TABLE
from spanwise.recordings.recorder import RecordOptions, run_recorded

TOLERANCE = 0.02
RUNS = 3
JOB = """\
import json
rows = [{"id": i, "name": f"name {i}", "tags": [f"t{i % 7}", i * 0.5]} for i in range(3_000)]
again = json.loads(json.dumps(rows))
assert again == rows
"""


def close(argv: list[str], folder: Path) -> tuple[closed_loop.Loop, list[sw.LedgerCheck]]:
    """Run the loop on a program, with its files in a folder, and check the simulator."""
    env = closed_loop.same_environment()
    env["SPANWISE_DECAY_MS"] = "never"
    outcome = run_recorded(argv, folder / "program.swt", RecordOptions(stacks=0, env=env))
    _say(outcome.lines()[-1])
    recording = sw.Recording.open(outcome.path)
    found = sw.optimize(
        recording, closed_loop.CLASSES, closed_loop.OBJECTIVE, align=closed_loop.ALIGN
    )
    best = found.table
    options = sw.HeapOptions(decay_ms=math.inf)
    made = build_with(best, folder / "best", BuildOptions(anyway=True), _say)
    _say(f"{RUNS} runs under each preloaded malloc")
    measured = [
        closed_loop.measure(argv, recording.ledger(table, options=options), RUNS, lib=lib, env=env)
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
    """Return whether the median of the runs is close enough to the prediction."""
    return measured.error is not None and abs(measured.error) <= TOLERANCE


def lines_of(loop: closed_loop.Loop, checks: list[sw.LedgerCheck]) -> list[str]:
    """Return a line per check."""
    lines = []
    for check in checks:
        parts = ", ".join(
            f"{name} {real:,} / {model:,}" for name, (real, model) in check.different.items()
        )
        what = f"simulator, {check.model.table} at {check.model.at}"
        total = check.model.held_bytes
        lines.append(f"{what}: {parts or f'{total:,} bytes held, equal to the byte'}")
    for one in (loop.stock, loop.best):
        held = sorted(run.peak_held_bytes for run in one.runs)
        lines.append(
            f"peak held, {one.predicted.table}: {one.measured_bytes:,} bytes measured (median of"
            f" {len(held)}, {held[0]:,} to {held[-1]:,}), {one.predicted_bytes:,} predicted:"
            f" {100 * (one.error or 0):+.2f} %"
        )
    return lines


def main() -> int:
    """Run the loop, print the checks, and return the exit status."""
    try:
        with tempfile.TemporaryDirectory(prefix="spanwise-loop-") as folder:
            loop, checks = close([sys.executable, "-c", JOB], Path(folder))
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
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
