# SPDX-License-Identifier: Apache-2.0
"""The programs of the study of resident bytes, as cases of a field: each with two inputs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import spanwise as sw
from spanwise.measure.field_cases import case_of

from studies.resident.programs import PROGRAMS, argv_of


def field_cases(folder: Path, names: Sequence[str]) -> tuple[list[sw.FieldCase], dict[str, str]]:
    """The programs that this machine can run, with their inputs made; and why others cannot run.

    Args:
        folder: where files that programs read are written, in `inputs`.
        names: of the programs; none: all.
    """
    cases, skipped = [], {}
    inputs = folder / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        if names and program.name not in names:
            continue
        if shutil.which(program.argv[0]) is None:
            skipped[program.name] = f"{program.argv[0]} is not installed"
            continue
        for size in program.inputs:
            argv = argv_of(program, size, inputs)
            cases.append(case_of(argv, program.name, f"{size:,}"))
    return cases, skipped


def by_program(cases: Sequence[sw.FieldCase]) -> dict[str, tuple[sw.FieldCase, sw.FieldCase]]:
    """The two cases of each program."""
    found = {}
    for name in dict.fromkeys(case.program for case in cases):
        first, second = (case for case in cases if case.program == name)
        found[name] = (first, second)
    return found
