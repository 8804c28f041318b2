# SPDX-License-Identifier: Apache-2.0
"""What policies beside size classes save of real programs' memory, and what they cost in time.

./dev study policies [--only NAME] [--quick] [--rounds 5] [--folder DIR] [-o FILE.md] [--plot P]
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import spanwise as sw
from spanwise.measure.field_cases import SPANWISE, policy_name

from studies import field_study
from studies.field_study import FieldStudy
from studies.policies import page, picture
from studies.policies.priced import price, priced_too
from studies.policies.settings import ALONE, LENGTHS, POLICIES, best_of_each, length_table

QUICK_POLICIES = ("lasting span", "up to 4 kept, by use", "all together")
BEST = "best of each"


def _built(study: FieldStudy) -> dict[str, Path]:
    """The preloaded malloc of each length of spans, by name; its file is called after the table."""
    folder, found = study.folder / "builds", {}
    folder.mkdir(exist_ok=True)
    for name in LENGTHS:
        table = length_table(name)
        place = folder / f"{table.name}.so"
        if not place.is_file():
            built = sw.build(table, folder / table.name, progress=False)
            shutil.copy(built.malloc_library, place)
            study.say(f"{name}: built")
        found[name] = place
    return found


def _page(study: FieldStudy) -> str:
    simulated = QUICK_POLICIES if study.quick else (*POLICIES, *LENGTHS)
    programs = []
    for name, own in study.programs.items():
        programs.append(price(name, own, study.folder / "recordings", simulated))
        study.say(f"{name}: simulated")
    wanted = {name: POLICIES[name] for name in simulated if name in POLICIES}
    best = None
    if not study.quick:
        saved = {name: [one.saved(name, 0) for one in programs] for name in ALONE}
        best = best_of_each(saved)
        if best is not None and best not in wanted.values():
            wanted[BEST] = best
            at = study.folder / "recordings"
            programs = [priced_too(one, BEST, best, at) for one in programs]
            study.say(f"{BEST}: simulated")
    builds = {} if study.quick else _built(study)
    found = study.measure((SPANWISE, *map(str, builds.values())), policies=wanted.values())
    called = {name: policy_name(one) for name, one in wanted.items()}
    called |= {name: place.name for name, place in builds.items()}
    chosen = next((name for name, one in wanted.items() if one == best), None)
    told = page.Policies(found, programs, called, chosen, judged=not study.quick)
    study.draw(lambda: picture.draw(told))
    return page.make(told, study.skipped, study.command, study.picture)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study."""
    example = "--folder build/policies -o policies.md --plot policies.png"
    return field_study.main("policies", __doc__, example, _page, arguments)
