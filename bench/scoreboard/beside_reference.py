# SPDX-License-Identifier: Apache-2.0
"""Ours over a plain reference in C, in one process of a bench that has both.

A value is the ratio of two CPU times of one run; the limit of targets.toml is the ratio asked for.
`range_speed.py`, `buffer_speed.py` and `arena_speed.py` say which rows there are.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from runner.errors import BenchError

from scoreboard import targets_file
from scoreboard.judge import MISSED
from scoreboard.loop_speed import Row, Setting, line_of, measured

BUILD = Path(__file__).resolve().parents[2] / "build/bench"
SECONDS, QUICK_SECONDS = 0.05, 0.001


@dataclass(frozen=True)
class Bench:
    """A program whose rows are CONTENDER/SUBJECT/ROW.

    Attributes:
        subject: the word in the middle; the program is bench_SUBJECTs.
    """

    subject: str

    @property
    def program(self) -> Path:
        """Where `./dev bench` builds it."""
        return BUILD / f"bench_{self.subject}s"

    def ratio(self, told: str, row: str, ours: tuple[str, ...], reference: str) -> float:
        """The least time of ours over the reference's.

        Args:
            told: output of the program as JSON.
            row: of the program, behind CONTENDER/SUBJECT/.
            ours: contenders, of which the quickest counts.
            reference: the contender that they are compared with.

        Raises:
            BenchError: a contender has no such row.
        """
        *mine, theirs = self._told_times(told, row, (*ours, reference))
        return min(mine) / theirs

    def _told_times(self, told: str, row: str, contenders: tuple[str, ...]) -> list[float]:
        times = {each["name"]: float(each["cpu_time"]) for each in json.loads(told)["benchmarks"]}
        wanted = [f"{name}/{self.subject}/{row}" for name in contenders]
        for name in wanted:
            if name not in times:
                raise BenchError(f"{self.program.name} has no row {name}; build it again")
        return [times[name] for name in wanted]

    def compare(self, row: str, ours: tuple[str, ...], reference: str, setting: Setting) -> float:
        """Runs the contenders of a row once, one after the other.

        Raises:
            BenchError: the program is not there, or failed.
        """
        return self.ratio(self._run(row, (*ours, reference), setting), row, ours, reference)

    def times(self, row: str, contenders: tuple[str, ...], setting: Setting) -> list[float]:
        """Nanoseconds an iteration of each contender of a row, run once.

        Raises:
            BenchError: the program is not there, or failed.
        """
        return self._told_times(self._run(row, contenders, setting), row, contenders)

    def _run(self, row: str, contenders: tuple[str, ...], setting: Setting) -> str:
        if not self.program.is_file():
            raise BenchError(f"{self.program}: not there; ./dev bench builds it")
        names = "|".join(contenders)
        seconds = SECONDS if setting.judged else QUICK_SECONDS
        words = [f"--benchmark_filter=^({names})/{self.subject}/{row}$"]
        words += [f"--benchmark_min_time={seconds}", "--benchmark_format=json"]
        done = subprocess.run(
            [self.program, *words], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode != 0:
            raise BenchError(f"{self.program.name} ended with {done.returncode}")
        return done.stdout

    def row(self, name: str, row: str, ours: tuple[str, ...], reference: str) -> Row:
        """A row of the scoreboard."""
        return Row(name, "x", functools.partial(self.compare, row, ours, reference))

    def main(self, rows: tuple[Row, ...], script: str, description: str) -> int:
        """Measures, prints. Exit 1: a limit is missed.

        Args:
            rows: all of the script.
            script: its file name, as targets.toml has it.
            description: its help.
        """
        parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.RawTextHelpFormatter
        )
        parser.add_argument("--rounds", type=int, default=10)
        parser.add_argument("--quick", action="store_true", help="short runs, one round")
        parser.add_argument("--rows", action="append", metavar="NAME", help="this row (repeatable)")
        parser.add_argument("--json", action="store_true")
        options = parser.parse_args()
        chosen = [row for row in rows if options.rows is None or row.name in options.rows]
        if not chosen:
            parser.error(f"--rows {options.rows} is none of: {', '.join(r.name for r in rows)}")
        file = targets_file.load(Path(__file__).with_name("targets.toml"))
        limits = {row.bench: row.limit for row in file.rows if row.script == script}
        rounds = 1 if options.quick else max(options.rounds, 1)
        setting = Setting(self.program, rounds, not options.quick)
        found = []
        for row in chosen:
            found.append(measured(row, setting, limits[row.name]))
            if not options.json:
                print(line_of(found[-1]), flush=True)
        if options.json:
            print(json.dumps({"rounds": rounds, "rows": found}, indent=1))
        return 1 if any(row["verdict"] in (MISSED, "failed") for row in found) else 0
