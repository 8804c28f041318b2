# SPDX-License-Identifier: Apache-2.0
"""The programs of bench/real/programs.toml: what is run, and whether this machine has it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from runner.errors import BenchError
from scoreboard.targets_file import tomllib

HERE = Path(__file__).resolve().parent
DRIVERS = ("process", "redis")
DEBIAN_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Program:
    """One program, as programs.toml describes each key.

    Attributes:
        name: row of the tables.
        about: what it allocates.
        command: what is measured; {python}, {here}, {inputs} and {size} stand for words.
        probe: a short run of the same processes.
        size: {size} of a full run.
        quick: {size} of a quick run.
        needs: program to Debian package.
        check: must succeed, else `package` is missing.
        package: Debian package that mends a failing check.
        prepare: run once before all runs.
        environment: variables added to the few that a program gets.
        artefacts: files compared byte by byte.
        mask: (pattern, replacement) for text that differs between any two runs.
        driver: "process", or "redis" (server and clients).
    """

    name: str
    about: str
    probe: Sequence[str]
    size: str
    quick: str
    command: Sequence[str] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    check: Sequence[str] = ()
    package: str = ""
    prepare: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    artefacts: Sequence[str] = ()
    mask: Sequence[tuple[str, str]] = ()
    driver: str = "process"

    def lacking(self) -> list[str]:
        """Debian packages without which it cannot run here; empty when it can."""
        found = [package for program, package in self.needs.items() if not shutil.which(program)]
        if self.check and not succeeds(tuple(self.words(self.check))):
            found.append(self.package)
        return found

    def words(self, command: Sequence[str], inputs: Path = HERE, size: str = "") -> list[str]:
        """A command with the names in braces replaced; {size} may become several words."""
        known = {"python": find_python(), "here": str(HERE), "inputs": str(inputs)}
        found: list[str] = []
        for word in command:
            if word == "{size}":
                found += size.split()
            else:
                found.append(re.sub(r"\{(\w+)\}", lambda m: known.get(m[1], m[0]), word))
        return found


@cache
def succeeds(command: tuple[str, ...]) -> bool:
    """Whether a command runs and ends with 0."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@cache
def find_python() -> str:
    """A python3 that has CPython's own tests: Debian's, else the one that runs this, else Debian's.

    A script that stands for python3 is never taken, because what it starts would be measured as
    well.
    """
    own = str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
    for python in (DEBIAN_PYTHON, own):
        if succeeds((python, "-c", "import test.test_json")):
            return python
    return DEBIAN_PYTHON if Path(DEBIAN_PYTHON).exists() else own


def _parse(row: Mapping[str, Any], place: str) -> Program:
    known = {f.name for f in fields(Program)}
    for key in row:
        if key not in known:
            raise BenchError(f"{place}: unknown key '{key}'")
    for key in ("name", "about", "probe", "size", "quick"):
        if key not in row:
            raise BenchError(f"{place}: {key} is missing")
    driver = row.get("driver", "process")
    if driver not in DRIVERS:
        raise BenchError(f"{place}: driver is '{driver}'; use one of {', '.join(DRIVERS)}")
    if driver == "process" and not row.get("command"):
        raise BenchError(f"{place}: command is missing")
    masks = [(str(pattern), str(text)) for pattern, text in row.get("mask", [])]
    for pattern, _ in masks:
        try:
            re.compile(pattern)
        except re.error as error:
            raise BenchError(f"{place}: mask '{pattern}': {error}") from error
    return Program(**{**row, "size": str(row["size"]), "quick": str(row["quick"]), "mask": masks})


def load_programs(path: Path = HERE / "programs.toml") -> list[Program]:
    """Reads the programs.

    Raises:
        BenchError: no such file, not TOML, or a row that is wrong; names the row and the key.
    """
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("program", [])
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BenchError(f"{path}: not TOML: {error}") from error
    if not rows:
        raise BenchError(f"{path}: no [[program]] in it")
    return [
        _parse(row, f"{path}: program {number} ({row.get('name', 'without a name')})")
        for number, row in enumerate(rows, 1)
    ]
