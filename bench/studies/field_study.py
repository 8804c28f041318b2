# SPDX-License-Identifier: Apache-2.0
"""What studies of a field have in common: options, folder, runs in turns, the page that is told.

A study first simulates each program, and keeps the results in its folder. Then it measures every
program and input under every allocator in turns. Results that lie in the folder are not made again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import spanwise as sw
from runner import drawing
from runner.provenance import measured_here
from spanwise.measure import fields

from studies import command_line, two_inputs

QUICK = ("mawk",)
"""The programs of a quick run."""

TOLD_SECONDS = 20.0
"""How often a study tells how many runs are done."""


@dataclass(frozen=True)
class FieldStudy:
    """One run of a study.

    Attributes:
        name: of the study.
        options: of its command line.
        folder: where inputs, recordings, builds and runs are kept.
        cases: programs with their inputs.
        skipped: what could not be run, and why.
    """

    name: str
    options: argparse.Namespace
    folder: Path
    cases: list[sw.FieldCase]
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def quick(self) -> bool:
        """Whether it is one program, once, as a test."""
        return bool(self.options.quick)

    @property
    def programs(self) -> dict[str, tuple[sw.FieldCase, sw.FieldCase]]:
        """The input that is chosen by and the one held out, by program."""
        return two_inputs.by_program(self.cases)

    @property
    def command(self) -> str:
        """The command as the page tells it."""
        return command_line.command_of(self.name, self.options, f"--rounds {self.options.rounds}")

    @property
    def picture(self) -> str | None:
        """The picture's name as the page refers to it."""
        return command_line.picture_from(self.options)

    def say(self, text: str) -> None:
        """Tells what was done."""
        print(f"{self.name}: {text}", file=sys.stderr, flush=True)

    def measure(
        self,
        allocators: Iterable[str],
        *,
        cases: Iterable[sw.FieldCase] | None = None,
        rounds: int | None = None,
        kept: str = "field",
        **more: Any,
    ) -> sw.Field:
        """Runs cases under allocators, in turns.

        Args:
            allocators: as of `spanwise.field`.
            cases: None: every case of the study.
            rounds: None: as many as are asked for; a quick run has one.
            kept: what the file of the runs is called.
            more: further arguments of `spanwise.field`.
        """
        found = fields.field(
            self.cases if cases is None else cases,
            allocators,
            rounds=1 if self.quick else rounds or self.options.rounds,
            output=self.folder / f"{kept}.jsonl",
            progress=Counted(lambda text: self.say(f"{text} measured")),
            **more,
        )
        for row in found.failures:
            self.skipped[f"{row['program']}, {row['input']}, {row['allocator']}"] = row["error"]
        return found

    def draw(self, drawn: Callable[[], Any]) -> None:
        """Writes the picture, a figure, if one is asked for."""
        if self.options.plot:
            measured = measured_here(Path("build/bench"))
            drawing.save(drawn(), Path(self.options.plot), measured)


class Counted:
    """Counts finished runs and prints the count at intervals, also without a terminal."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._begun = self._told = clock()
        self._done = 0

    def __call__(self, runs: int) -> None:
        """Adds `runs` finished runs."""
        self._done += runs
        now = self._clock()
        if now - self._told >= TOLD_SECONDS:
            self._told = now
            self._say(f"{self._done} runs in {now - self._begun:.0f} s")


def main(
    name: str,
    doc: str | None,
    example: str,
    study: Callable[[FieldStudy], str],
    arguments: Sequence[str] | None = None,
) -> int:
    """Runs a study and tells its page.

    Args:
        name: of the study.
        doc: of its module.
        example: the words behind the study's name.
        study: gives the page.
        arguments: of the command line; None: the process's.
    """
    parser = command_line.parser_of(name, doc, example)
    command_line.add_field_options(parser)
    options = parser.parse_args(arguments)
    if options.folder:
        return _run(name, options, Path(options.folder).absolute(), study)
    with tempfile.TemporaryDirectory(prefix=f"spanwise-{name}-") as folder:
        return _run(name, options, Path(folder), study)


def _run(
    name: str, options: argparse.Namespace, folder: Path, study: Callable[[FieldStudy], str]
) -> int:
    names = options.only or (QUICK if options.quick else ())
    cases, skipped = two_inputs.field_cases(folder, names)
    if not cases:
        print(f"{name}: no program to run: {', '.join(names)}", file=sys.stderr)
        return 2
    command_line.tell(study(FieldStudy(name, options, folder, cases, skipped)), options)
    return 0
