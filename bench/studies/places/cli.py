# SPDX-License-Identifier: Apache-2.0
"""./dev study places: how often a pair is slow because of where its pages lie."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path

from runner.command import run_command
from runner.errors import BenchError
from runner.session import BENCH

MOVES = 400


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="./dev study places",
        description="Moves the pages of the cache and of an object to other frames of memory, "
        "times pairs after each move, and tells the share of moves whose pairs take a fifth more.",
        epilog="example: ./dev study places --moves 50",
    )
    build = BENCH.parent / "build/bench"
    made.add_argument("--build", type=Path, default=build, help="where the program is")
    made.add_argument("--moves", type=int, default=MOVES, metavar="N", help=f"default {MOVES}")
    made.add_argument(
        "--word", type=int, default=0, choices=(0, 1), help="which word of its object a pair writes"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the program's exit status, 2 when it was not built, 130 after Ctrl-C."""
    options = parser().parse_args(arguments)

    program = options.build / "bench_same_place"

    def work() -> int:
        try:
            words = [str(program), str(options.moves), str(options.word)]
            status = subprocess.run(words, check=False).returncode
        except OSError as error:
            raise BenchError(f"{program}: {error.strerror}; ./dev study places builds it") from None
        return 2 if status else 0

    return run_command("places", work)
