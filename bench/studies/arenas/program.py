# SPDX-License-Identifier: Apache-2.0
"""The program of the studies of arenas (tasks.c), and what it tells."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from runner import children
from runner.errors import BenchError
from runner.provenance import measured_here

BUILD = Path(__file__).resolve().parents[3] / "build/bench"
STRATEGIES = ("heap", "arena", "pool", "arena_pool")


def parser_of(name: str, doc: str | None, example: str) -> argparse.ArgumentParser:
    """A parser with --quick, --rounds, --build, -o and --plot.

    Args:
        name: of the study.
        doc: of its module; the first line is said.
        example: the words behind the study's name.
    """
    made = argparse.ArgumentParser(
        prog=f"./dev study {name}",
        description=(doc or "").split("\n", 1)[0],
        epilog=f"example: ./dev study {name} {example}",
    )
    made.add_argument("--quick", action="store_true", help="few points, once, as a test")
    made.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each point (5)")
    made.add_argument("--build", type=Path, default=BUILD, help="where bench_study_arenas is")
    made.add_argument("-o", "--output", type=Path, metavar="FILE.md", help="the page")
    made.add_argument("--plot", type=Path, metavar="FILE.png", help="the picture")
    return made


def run(build: Path, *words: str | int) -> list[list[str]]:
    """The words of each line that the program prints.

    Raises:
        BenchError: it failed.
    """
    command = [str(build / "bench_study_arenas"), *map(str, words)]
    done = children.run(command)
    if done.returncode:
        raise BenchError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr[-300:]}")
    return [line.split() for line in done.stdout.splitlines()]


def where_and_when(command: str, rounds: int) -> str:
    """The line of a page that says how it was measured, and the machine's load at the time."""
    load = os.getloadavg()[0]
    count = f"medians of {rounds} interleaved rounds" if rounds > 1 else "one round"
    where = measured_here(BUILD)
    return f"`{command}`; {where}; {count}; load average at the end {load:.1f}."


def picture_of(options: argparse.Namespace, said: str) -> str:
    """The lines of a page that show its picture; "" without a page or a picture."""
    if not (options.plot and options.output):
        return ""
    return f"\n\n![{said}]({os.path.relpath(options.plot, options.output.parent)})"


def command_of(name: str, options: argparse.Namespace) -> str:
    """The command as the page tells it."""
    words = [f"./dev study {name}"]
    words += ["--quick"] if options.quick else [f"--rounds {options.rounds}"]
    words += [f"-o {options.output}"] if options.output else []
    words += [f"--plot {options.plot}"] if options.plot else []
    return " ".join(words)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of markdown: the first column flush left."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *rows))


def tell(text: str, output: Path | None) -> None:
    """Writes the page where it is to be, and prints it."""
    if output is not None:
        output.write_text(text, encoding="utf-8")
    print(text, end="")
