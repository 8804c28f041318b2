# SPDX-License-Identifier: Apache-2.0
"""What each grade of checks costs: instructions of every path at SW_CHECK 0 to 3, and code bytes.

The library is compiled four times as a release is, with nothing but the grade changed.
Example: ./dev study check-grades --paths pair
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from runner import counts
from runner.command import run_command
from runner.errors import BenchError
from runner.text import text_table

ROOT = Path(__file__).resolve().parents[2]
GRADES = (0, 1, 2, 3)
ROOMS = ("base", "os/linux", "ds", "size", "gen", "page", "span", "heap", "watch")
PROGRAM = ("bench/rows/paths.c", "bench/rows/paths_spanwise.c")
FLAGS = (
    *("-std=gnu11", "-O3", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-pthread"),
    *("-fno-semantic-interposition", "-fno-builtin-malloc", "-fno-builtin-free"),
    *("-Iinclude", "-Isrc", "-Ibench/rows", '-DBENCH_BUILD_TYPE="Release"'),
)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="./dev study check-grades",
        description="What each grade of checks costs: instructions an operation, by callgrind.",
        epilog="example: ./dev study check-grades --paths pair",
    )
    made.add_argument("--paths", default="", metavar="TEXT", help="only paths whose names begin so")
    made.add_argument("--grades", type=int, nargs="+", choices=GRADES, default=GRADES)
    made.add_argument("--json", action="store_true", help="the figures for machines")
    return made


def build(grade: int, folder: Path) -> tuple[Path, int]:
    """Compiles the library and the program of paths; returns the program and the library's code.

    Raises:
        BenchError: the compiler failed.
    """
    sources = sorted(file for room in ROOMS for file in (ROOT / "src" / room).glob("*.c"))
    flags = (*FLAGS, f"-DSW_CHECK={grade}", f"-DSW_FAST_CHECKED={int(grade > 0)}")
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    library, program = folder / f"grade{grade}.o", folder / f"paths{grade}"
    _run([*compiler, *flags, "-r", "-nostdlib", *map(str, sources), "-o", str(library)])
    _run([*compiler, *flags, *PROGRAM, str(library), "-o", str(program)])
    code = _run(["size", "-A", str(library)])
    sections = [line.split() for line in code.splitlines() if line.startswith(".text")]
    return program, sum(int(words[1]) for words in sections)


def _run(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    except OSError as error:
        raise BenchError(f"{words[0]}: {error.strerror}") from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise BenchError(f"{words[0]} ended with {done.returncode}: {said}")
    return done.stdout


def run(options: argparse.Namespace) -> int:
    """Builds, counts and prints."""
    instructions: dict[str, list[float]] = {}
    code_bytes = []
    with tempfile.TemporaryDirectory(prefix="spanwise-grades-") as folder:
        for grade in options.grades:
            file, code = build(grade, Path(folder))
            program = counts.Program(file, prefix=options.paths)
            paths = counts.paths_of(program)
            for path, count in zip(
                paths, counts.count_all([(program, path) for path in paths]), strict=True
            ):
                instructions.setdefault(path, []).append(round(count.instructions, 2))
            code_bytes.append(code)
    if options.json:
        print(json.dumps({"code_bytes": code_bytes, "instructions": instructions}))
        return 0
    header = ["path", *(f"grade {grade}" for grade in options.grades)]
    rows = [[path, *(f"{n:.2f}" for n in row)] for path, row in instructions.items()]
    rows.append(["code, bytes", *map(str, code_bytes)])
    print(text_table(header, rows))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 2 for bad input, 130 for Ctrl-C."""
    options = parser().parse_args(arguments)
    return run_command("study", lambda: run(options))
