# SPDX-License-Identifier: Apache-2.0
"""What the benchmark cases of the Go library GoMem take on ours, beside its figures on record.

All of its cases, by the names that it gives them, on every back end of ours where a case has a
range. The figures on record are of another machine and printed, never scored; `./dev bench
--peer-go DIR` runs the original beside them.

    ./dev study original-cases --rounds 5      2 minutes
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from runner.command import run_command
from runner.provenance import measured_here
from scoreboard.original_cases import cases_table, own_times

BUILD = Path(__file__).resolve().parents[2] / "build/bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases, prints the table."""
    parser = argparse.ArgumentParser(
        prog="./dev study original-cases",
        description=(__doc__ or "").split("\n", 1)[0],
        epilog="example: ./dev study original-cases --rounds 5",
    )
    parser.add_argument("--quick", action="store_true", help="short runs, as a test")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each case (3)")
    parser.add_argument("--build", type=Path, default=BUILD, help="where bench_gomem is")
    options = parser.parse_args(arguments)

    def work() -> int:
        rounds = 1 if options.quick else max(options.rounds, 1)
        times = own_times(options.build, rounds=rounds, quick=options.quick)
        print(cases_table(times))
        print(f"\n{measured_here(options.build)}; medians of {rounds}")
        return 0

    return run_command("study original-cases", work)
