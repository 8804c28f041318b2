# SPDX-License-Identifier: Apache-2.0
"""The results of a run, a line each, so that a run that is cut short loses none.

The first line says how the run was made; `--resume` continues only under the same conditions. A
last line that was cut off is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import BenchError
from runner.runs import Job, Repetition, Result

SUFFIX = ".journal"
# The conditions that a resumed run must share.
SAME = ("commit", "compiler", "preset", "cpu", "min_time_s", "calm")


def conditions(about: Mapping[str, Any], min_time_s: float) -> dict[str, Any]:
    """What results depend on, apart from the row and the contender."""
    return {
        "commit": about["commit"],
        "compiler": about["compiler"],
        "preset": about["preset"],
        "cpu": about["machine"]["cpu"],
        "min_time_s": min_time_s,
        "calm": about.get("calm", False),
    }


@dataclass
class Journal:
    """An open journal."""

    path: Path

    @classmethod
    def start(cls, path: Path, made: Mapping[str, Any]) -> Journal:
        """Begins a new file.

        Raises:
            BenchError: it cannot be written.
        """
        journal = cls(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("", encoding="utf-8")
        except OSError as error:
            raise BenchError(f"{path}: {error.strerror}") from error
        journal._append(dict(made))
        return journal

    @classmethod
    def go_on(cls, path: Path) -> Journal:
        """Opens a file of a run that was cut short, without a last line that was cut off.

        Raises:
            BenchError: it cannot be written.
        """
        try:
            text = path.read_text(encoding="utf-8")
            if not text.endswith("\n"):
                path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
        except OSError as error:
            raise BenchError(f"{path}: {error.strerror}") from error
        return cls(path)

    def _append(self, row: dict[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise BenchError(f"{self.path}: {error.strerror}") from error

    def keep(self, number: int, job: Job, result: Result) -> None:
        """Adds the result of a job in a repetition (from 1)."""
        self._append(
            {
                "repetition": number,
                "key": job.key,
                "iterations": result.iterations,
                "values": result.values,
                "error": result.error,
            }
        )

    def remove(self) -> None:
        """Ends the journal: what it held is in the results."""
        self.path.unlink(missing_ok=True)


def newest(folder: Path) -> Path:
    """The journal that was written last.

    Raises:
        BenchError: there is none.
    """
    found = sorted(folder.glob("*" + SUFFIX), key=lambda path: path.stat().st_mtime)
    if not found:
        raise BenchError(f"--resume: no *{SUFFIX} in {folder}; start a run without it")
    return found[-1]


def load(path: Path, now: Mapping[str, Any]) -> list[Repetition]:
    """The results of a run that was cut short, by repetition.

    Args:
        path: the journal.
        now: the conditions of the run that is to go on.

    Raises:
        BenchError: the file is no journal, or its conditions were others.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        made = json.loads(lines[0])
        wrong = next((name for name in SAME if made[name] != now[name]), None)
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{path}: line 1: not a journal of bench/run.py: {error!r}") from error
    if wrong is not None:
        raise BenchError(
            f"{path}: made with {wrong} '{made[wrong]}', now it is '{now[wrong]}'; "
            "start a new run without --resume"
        )
    repetitions: list[Repetition] = []
    for number, line in enumerate(lines[1:-1], start=2):  # what follows the last newline is cut off
        try:
            row = json.loads(line)
            bench, name, basis, options = row["key"]
            while len(repetitions) < row["repetition"]:
                repetitions.append({})
            result = Result(row["values"], row["iterations"], row["error"])
            repetitions[row["repetition"] - 1][bench, name, basis, options] = result
        except (ValueError, KeyError, TypeError) as error:
            raise BenchError(f"{path}: line {number}: not a result: {error!r}") from error
    return repetitions
