# SPDX-License-Identifier: Apache-2.0
"""What size-class tables save of real programs' memory, on inputs that they were not fitted to.

./dev study tables-save [--only NAME] [--quick] [--rounds 5] [--folder DIR] [-o FILE.md] [--plot P]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import spanwise as sw
from spanwise.measure.field_cases import EVERYBODY
from spanwise.measure.field_fits import fit_cases, recording_path
from spanwise.optimizer.trial import CAUSES
from spanwise.sweeps.plans import made_by

from studies import field_study
from studies.field_study import FieldStudy
from studies.policies.settings import POLICIES
from studies.tables_save import page, picture, saved, simulated

CANDIDATES = 32
"""Tables that the searches for 16, 24 and 67 classes simulate at most."""


def _simulated(
    program: str, cases: Sequence[sw.FieldCase], fit: sw.FieldFit, fits: Path, candidates: int
) -> simulated.Simulated:
    """The figures of a program: simulated now, or an earlier run's for the same inputs."""
    place = recording_path(fits, program, 0).with_name("simulated.json")
    made_of = [made_by(), [one.hash for one in cases], fit.table.hash, candidates]
    made_of += [list(POLICIES), list(CAUSES)]
    found = simulated.kept(place, made_of)
    if found is None:
        paths = [recording_path(fits, program, number) for number in range(len(cases))]
        recordings = [sw.Recording.open(path) for path in paths]
        found = simulated.simulate(recordings, fit, candidates)
        simulated.keep(place, made_of, found)
    return found


def _page(study: FieldStudy) -> str:
    candidates = 4 if study.quick else CANDIDATES
    rules: dict[str, Any] = {"candidates": 4} if study.quick else {}
    at = study.folder / "fits"
    fits = fit_cases(study.cases, at, built=not study.quick, **rules)
    programs = []
    for name, own in study.programs.items():
        fit = fits[name]
        study.say(f"{name}: {fit.verdict}")
        programs.append(saved.Program(name, own, fit, _simulated(name, own, fit, at, candidates)))
    found = study.measure(EVERYBODY[:2] if study.quick else EVERYBODY, fits=fits)
    study.draw(lambda: picture.draw(found, programs))
    return page.make(found, programs, study.skipped, study.command, study.picture)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study."""
    example = "--folder build/tables-save -o what-tables-save.md"
    return field_study.main("tables-save", __doc__, example, _page, arguments)
