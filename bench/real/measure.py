# SPDX-License-Identifier: Apache-2.0
"""Runs programs under contenders, interleaved, and compares what each run left with glibc's."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from runner.contenders import Contender
from runner.errors import BenchError
from runner.launch import Usage

from real import identity
from real.drivers import Outcome, Place, run_once
from real.field import GLIBC, served
from real.launch import environment
from real.programs import Program

METRICS = ("wall_s", "cpu_s", "peak_rss_bytes")
NOT_SERVED = "not served: "


@dataclass(frozen=True)
class Sample:
    """One run.

    Attributes:
        usage: time and memory.
        problem: "" when it ended well and left what glibc's run left; else what was wrong.
        digests: SHA-256 of what it left, masked, by name.
        extra: further figures of the driver.
    """

    usage: Usage
    problem: str
    digests: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Measured:
    """Everything that was run.

    Attributes:
        programs: those that ran, in order.
        contenders: glibc first.
        skipped: program to reason.
        repetitions: each a mapping from (program, contender) names to its sample.
        interrupted: True when Ctrl-C ended the run early.
    """

    programs: list[Program]
    contenders: list[Contender]
    skipped: dict[str, str]
    repetitions: list[dict[tuple[str, str], Sample]] = field(default_factory=list)
    interrupted: bool = False

    def samples(self, program: str, contender: str) -> list[Sample]:
        """One a repetition."""
        return [done[program, contender] for done in self.repetitions]

    def values(self, program: str, contender: str, metric: str) -> list[float]:
        """One value of METRICS a repetition; empty when a run of them failed or differed."""
        samples = self.samples(program, contender)
        if any(sample.problem for sample in samples):
            return []
        return [float(getattr(sample.usage, metric)) for sample in samples]

    def problem(self, program: str, contender: str) -> str:
        """The first thing that was wrong, or ""."""
        found = [sample.problem for sample in self.samples(program, contender) if sample.problem]
        return f"{found[0]} ({len(found)} of {len(self.repetitions)} runs)" if found else ""


def split_runnable(programs: Sequence[Program]) -> tuple[list[Program], dict[str, str]]:
    """The programs that this machine can run, and for the others the reason."""
    skipped = {
        program.name: f"lacks {' '.join(lacking)} (apt-get install {' '.join(lacking)})"
        for program in programs
        if (lacking := program.lacking())
    }
    return [program for program in programs if program.name not in skipped], skipped


def prepare(program: Program, folder: Path, size: str) -> Path:
    """Makes the inputs of a program in a folder of their own.

    Raises:
        BenchError: its `prepare` failed.
    """
    inputs = folder / program.name
    inputs.mkdir()
    if program.prepare:
        command = program.words([w.replace("{size}", size) for w in program.prepare], inputs)
        variables = environment(inputs, {})
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise BenchError(f"{program.name}: prepare ended with {done.returncode}: {said}")
    return inputs


class Runner:
    """Runs the programs and remembers what glibc's first run of each left."""

    def __init__(self, launcher: Path, scratch: Path, *, quick: bool) -> None:
        self._launcher = launcher
        self._scratch = scratch
        self._quick = quick
        self._places: dict[str, Place] = {}
        self._expected: dict[str, dict[str, bytes]] = {}
        self._served: dict[tuple[str, str], str] = {}

    def sample(self, program: Program, contender: Contender) -> Sample:
        """Runs a program once; glibc's first run is what all later ones are compared with.

        Raises:
            BenchError: the program's inputs cannot be made.
        """
        key = program.name, contender.name
        if key not in self._served:
            self._served[key] = served(program, contender)
        if self._served[key]:
            return Sample(Usage(0.0, 0.0, 0), NOT_SERVED + self._served[key])
        outcome = run_once(program, str(contender.preload), self._place(program))
        left = identity.comparable(outcome.left, program.mask)
        problem = self._judge(program, contender, outcome, left)
        return Sample(outcome.usage, problem, identity.digest(left), outcome.extra)

    def _place(self, program: Program) -> Place:
        if program.name not in self._places:
            size = program.quick if self._quick else program.size
            inputs = prepare(program, self._scratch, size)
            self._places[program.name] = Place(self._launcher, self._scratch, inputs, size)
        return self._places[program.name]

    def _judge(
        self, program: Program, contender: Contender, outcome: Outcome, left: dict[str, bytes]
    ) -> str:
        if outcome.usage.error:
            last = left.get("stderr", b"").decode(errors="replace").strip().splitlines()
            return outcome.usage.error + (f": {last[-1][:120]}" if last else "")
        if program.name in self._expected:
            found = identity.difference(self._expected[program.name], left)
            return f"differs: {found}" if found else ""
        if contender.name != GLIBC:
            return "glibc's run failed, so there is nothing to compare with"
        self._expected[program.name] = left
        return ""


def measure(
    runner: Runner, measured: Measured, repetitions: int, progress: TextIO | None = None
) -> None:
    """Fills measured.repetitions; Ctrl-C keeps the finished ones.

    In each repetition a program runs under every contender, one after the other, then the next
    program. The first contender changes from repetition to repetition, so that none is always the
    one after a pause; in the first it is glibc.
    """
    names = measured.contenders
    try:
        for number in range(repetitions):
            turn = number % len(names)
            finished: dict[tuple[str, str], Sample] = {}
            for program in measured.programs:
                for contender in (*names[turn:], *names[:turn]):
                    if progress is not None:
                        where = f"repetition {number + 1} of {repetitions}"
                        text = f"{where}: {program.name}, {contender.name}"
                        progress.write(f"\r{text:<78.78}")
                        progress.flush()
                    sample = runner.sample(program, contender)
                    finished[program.name, contender.name] = sample
            measured.repetitions.append(finished)
    except KeyboardInterrupt:
        measured.interrupted = True
    if progress is not None:
        progress.write("\r" + " " * 78 + "\r")
