#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of each path and compares them with the committed baseline.

Example: python3 bench/instructions.py --check --program build/bench/bench_paths
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench_lib import counts
from bench_lib.errors import BenchError
from bench_lib.report import text_table, write_whole

BENCH = Path(__file__).resolve().parent


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        description="Instructions an operation of each allocation path, by callgrind.",
        epilog="example: python3 bench/instructions.py --check",
    )
    add = made.add_argument
    add("--check", action="store_true", help="exit 1 when a path grew since the baseline")
    add("--update", action="store_true", help="writes the counts into the baseline")
    add("--program", type=Path, default=BENCH.parent / "build/bench/bench_paths")
    add("--baseline", type=Path, default=BENCH / "instructions.json")
    return made


def run(options: argparse.Namespace) -> int:
    """Counts, prints, compares or writes; returns the exit status."""
    if counts.find_valgrind() is None:
        if options.update:
            raise BenchError("valgrind was not found: apt-get install valgrind")
        print("skipped: valgrind was not found (apt-get install valgrind)")
        return 0
    key = counts.key_of(options.program)
    baseline = counts.load_baseline(options.baseline)
    if options.check and key not in baseline:
        print(f"skipped: no baseline for '{key}' in {options.baseline.name} (--update adds it)")
        return 0
    paths = counts.paths_of(options.program)
    now = {path: round(counts.count(options.program, path), 3) for path in paths}
    known = baseline.get(key, {})
    print(key)
    print(text_table(["path", "instructions", "baseline"], counts.table(now, known)))
    if options.update:
        baseline[key] = now
        write_whole(options.baseline, json.dumps(baseline, indent=1, sort_keys=True) + "\n")
        print(f"written: {options.baseline}")
        return 0
    grown = counts.growths(known, now) if options.check else []
    for growth in grown:
        print(f"grew: {growth}", file=sys.stderr)
    return 1 if grown else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 when a path grew, 2 for bad input."""
    try:
        return run(parser().parse_args(arguments))
    except BenchError as error:
        print(f"instructions: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
