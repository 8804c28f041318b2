#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs real programs under several allocators: CPU time and peak RSS, interleaved.

`spanwise bench` measures and compares the programs (docs/how-to).

Example: ./dev bench --programs --only 'sqlite3,redis' --rounds 5
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Before Python 3.11, use pip's copy of the same module.
tomllib: Any = importlib.import_module(
    "tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli"
)


def load() -> list[dict[str, Any]]:
    """Read the programs of programs.toml."""
    text = (HERE / "programs.toml").read_text(encoding="utf-8")
    programs: list[dict[str, Any]] = tomllib.loads(text)["program"]
    return programs


def lacking(program: Mapping[str, Any]) -> list[str]:
    """Return the Debian packages of missing commands."""
    return [package for name, package in program["needs"].items() if not shutil.which(name)]


def words_of(command: Sequence[str], inputs: Path, size: str) -> list[str]:
    """Fill in {here}, {inputs} and {size}."""
    known = {"{here}": str(HERE), "{inputs}": str(inputs), "{size}": size}
    found: list[str] = []
    for word in command:
        for name, value in known.items():
            word = word.replace(name, value)  # noqa: PLW2901
        found.append(shutil.which(word) or word if not found else word)
    return found


def prepared(program: Mapping[str, Any], folder: Path, quick: bool) -> dict[str, Any]:
    """Write a program's input and return the fields of its case."""
    size = str(program["quick" if quick else "size"])
    inputs = folder / program["name"].replace(" ", "-")
    inputs.mkdir()
    if "prepare" in program:
        subprocess.run(words_of(program["prepare"], inputs, size), check=True)
    return {
        "program": program["name"],
        "input": f"size {size}",
        "argv": tuple(words_of(program["command"], inputs, size)),
        "environment": program.get("environment", {}),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, 1 if a run failed, 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="./dev bench --programs", description=(__doc__ or "").partition("\n")[0]
    )
    add = parser.add_argument
    add("--only", default="*", metavar="NAME,...", help="programs by name or pattern [all]")
    add("--rounds", type=int, default=5, metavar="N", help="runs per allocator [5]")
    add("--quick", action="store_true", help="small inputs, one round")
    add("--packages", action="store_true", help="print the Debian packages that are missing")
    add("-o", "--output", metavar="FILE.jsonl", help="also write every run")
    options = parser.parse_args(arguments)
    patterns = options.only.split(",")
    chosen = [p for p in load() if any(fnmatchcase(p["name"], each) for each in patterns)]
    if not chosen:
        parser.error(f"--only {options.only}: no such program; see {HERE / 'programs.toml'}")
    if options.packages:
        print(*dict.fromkeys(package for program in chosen for package in lacking(program)))
        return 0
    for program in [p for p in chosen if lacking(p)]:
        chosen.remove(program)
        print(f"without {program['name']}: apt-get install {' '.join(lacking(program))}")
    import spanwise as sw  # noqa: PLC0415  --packages runs before the package is installed

    with tempfile.TemporaryDirectory(prefix="spanwise-programs-") as folder:
        cases = [sw.BenchCase(**prepared(p, Path(folder), options.quick)) for p in chosen]
        os.chdir(folder)
        rounds = 1 if options.quick else options.rounds
        found = sw.bench(cases, rounds=rounds, output=options.output)
    print(found)
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
