# SPDX-License-Identifier: Apache-2.0
"""Fit a size-class table to the first input of each program, build it, predict its peak."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanwise import errors
from spanwise.builds.build import build
from spanwise.builds.steps import BuildError
from spanwise.measure.bench_cases import BenchCase, check_cases, variables_of
from spanwise.measure.launching import dropped_output
from spanwise.measure.running import PRELOAD_TABLE
from spanwise.optimizer.search import optimize
from spanwise.recordings.launch import PIPE_CLOSED, with_pipefail
from spanwise.recordings.recorder import RecordOptions, run_recorded
from spanwise.recordings.recording import Recording
from spanwise.results.jobs import Progress, progress_bar
from spanwise.results.rows import Result
from spanwise.tables.table import SizeClassTable


@dataclass(frozen=True)
class BenchFit(Result):
    """The table fitted to the first input of a program.

    Attributes:
        program: its name.
        table: the fitted table; the stock table if the first input failed.
        holds: whether it beats the stock table; if not, nothing is built.
        verdict: of the optimiser, or how the first input failed.
        folder: of the build; None: there is none.
        why_not: why there is no build; "" if there is one.
        predicted: peak resident bytes of a simulated heap under the stock table and under this one,
            by hash of the case; without failed cases.
    """

    program: str
    table: SizeClassTable
    holds: bool
    verdict: str
    folder: Path | None
    why_not: str = ""
    predicted: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "program": self.program,
            "table": self.table.to_dict(),
            "holds": self.holds,
            "verdict": self.verdict,
            "folder": None if self.folder is None else str(self.folder),
            "why_not": self.why_not,
            "predicted": {case: list(pair) for case, pair in self.predicted.items()},
        }


def fit_cases(
    cases: Iterable[BenchCase],
    folder: str | os.PathLike[str],
    *,
    progress: Progress = None,
    **rules: Any,
) -> dict[str, BenchFit]:
    """Record each case, fit a table to the first input of each program, and build it.

    The other inputs do not influence the table. Nothing is fitted to a run that fails; the result
    has the reason.

    Args:
        cases: programs with their inputs; the table is fitted to a program's first input.
        folder: for recordings (`PROGRAM/N.swt`) and builds (`PROGRAM/build`); it is created.
        progress: as of `Recording.ledger`; the steps are programs.
        rules: arguments of `optimize`.

    Returns:
        The fit of each program.

    Raises:
        SpanwiseError: a program cannot be recorded, or no table can be fitted.
        OSError: the system refused to write.
    """
    wanted = list(cases)
    check_cases(wanted)
    programs: dict[str, list[BenchCase]] = {}
    for case in wanted:
        programs.setdefault(case.program, []).append(case)
    found = {}
    with progress_bar(progress, len(programs), "fits", "programs") as step:
        for name, own in programs.items():
            found[name] = _fit(name, own, Path(folder), rules)
            step(1)
    return found


def recording_path(folder: Path, program: str, number: int) -> Path:
    """Return the path of the recording of a program's input, counted from 0."""
    name = "".join(one if one.isalnum() or one in "+-._" else "-" for one in program)
    return folder / name / f"{number}.swt"


def _fit(program: str, cases: Sequence[BenchCase], folder: Path, rules: dict[str, Any]) -> BenchFit:
    place = recording_path(folder, program, 0).parent
    place.mkdir(parents=True, exist_ok=True)
    stock = SizeClassTable.named(PRELOAD_TABLE)
    try:
        first = record_case(cases[0], place / "0.swt")
    except errors.ProgramError as error:
        why = f"not fitted: {error}"
        return BenchFit(program, stock, False, why, None, why)
    recordings = {cases[0].hash: first, **_others(cases[1:], place)}
    found = optimize(first, progress=False, **rules)
    built, why_not = None, "" if found.holds else "no table beats the stock table"
    if found.holds:
        try:
            built = build(found.table, place / "build", progress=False).folder
        except BuildError as error:
            why_not = str(error)
    predicted = {
        case: (_highest(recording, stock), _highest(recording, found.table))
        for case, recording in recordings.items()
    }
    return BenchFit(program, found.table, found.holds, found.verdict(), built, why_not, predicted)


def _others(cases: Sequence[BenchCase], place: Path) -> dict[str, Recording]:
    """Return the recordings of the inputs after the first by hash, without failed ones."""
    found = {}
    for number, case in enumerate(cases, 1):
        with suppress(errors.ProgramError):
            found[case.hash] = record_case(case, place / f"{number}.swt")
    return found


def _highest(recording: Recording, table: SizeClassTable) -> int:
    return recording.ledger(table, "peak-resident", progress=False).resident_bytes or 0


def record_case(case: BenchCase, path: Path) -> Recording:
    """Record a case; of several processes keep the largest."""
    path.unlink(missing_ok=True)  # a failed case leaves no recording
    with (
        tempfile.TemporaryDirectory(prefix="spanwise-bench-", dir=path.parent) as scratch,
        dropped_output() as stdout,
    ):
        env = variables_of(case.environment)
        words = with_pipefail(case.argv, env.get("PATH"), case.folder)
        outcome = run_recorded(
            words,
            Path(scratch, "run.swt"),
            RecordOptions(children=True, stacks=0, env=env, cwd=case.folder, stdout=stdout),
        )
        if outcome.status not in ((0, PIPE_CLOSED) if words != list(case.argv) else (0,)):
            raise errors.ProgramError(
                f"{case.argv[0]}: {_how(outcome.status)} while it was recorded"
            )
        highest = outcome.recordings().highest()
        if highest.path is None:
            name = ", ".join(filter(None, (case.program, case.input)))
            raise errors.StateError(f"{name}: nothing was recorded")
        Path(highest.path).replace(path)
    return Recording.open(path)


def _how(status: int) -> str:
    return f"signal {-status} ended it" if status < 0 else f"ended with {status}"
