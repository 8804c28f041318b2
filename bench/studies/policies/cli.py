# SPDX-License-Identifier: Apache-2.0
"""What policies beside size classes save of real programs' memory, and what they cost in time.

./dev study policies [--only NAME] [--quick] [--rounds 5] [--folder DIR] [-o FILE.md] [--plot P]
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import spanwise as sw
from spanwise.measure.field_cases import SPANWISE, policy_name

from studies import field_study
from studies.field_study import FieldStudy
from studies.policies import page, picture
from studies.policies.bursts import burst_cases
from studies.policies.duel import DUEL_ROUNDS, Duel
from studies.policies.priced import Priced, price, priced_too
from studies.policies.settings import (
    ALONE,
    LENGTHS,
    POLICIES,
    best_alone,
    best_of_each,
    length_table,
)

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


def _priced(study: FieldStudy, policies: Sequence[str]) -> list[Priced]:
    programs = []
    for name, own in study.programs.items():
        programs.append(price(name, own, study.folder / "recordings", policies))
        study.say(f"{name}: simulated")
    return programs


def _contenders(programs: Sequence[Priced]) -> dict[str, sw.HeapOptions]:
    """What may become the default: the best of each knob together, and the best of one knob."""
    saved = {name: [one.saved(name, 0) for one in programs] for name in ALONE}
    found: dict[str, sw.HeapOptions] = {}
    together, alone = best_of_each(saved), best_alone(saved)
    if together is not None:
        found[next((name for name, one in POLICIES.items() if one == together), BEST)] = together
    if alone is not None:
        found[alone] = ALONE[alone]
    return found


def _duel(study: FieldStudy, contenders: Mapping[str, sw.HeapOptions]) -> Duel:
    """The default and those that may take its place, on the inputs held out and on bursts."""
    bursts, skipped = ([], {}) if study.quick else burst_cases()
    study.skipped.update(skipped)
    held_out = [second for _, second in study.programs.values()]
    found = study.measure(
        (SPANWISE,),
        cases=[*held_out, *bursts],
        rounds=DUEL_ROUNDS,
        kept="duel",
        policies=contenders.values(),
    )
    called = {name: policy_name(one) for name, one in contenders.items()}
    return Duel(found, held_out, bursts, called)


def _page(study: FieldStudy) -> str:
    simulated = QUICK_POLICIES if study.quick else (*POLICIES, *LENGTHS)
    programs = _priced(study, simulated)
    wanted = {name: POLICIES[name] for name in simulated if name in POLICIES}
    if study.quick:
        contenders = {QUICK_POLICIES[-1]: wanted[QUICK_POLICIES[-1]]}
    else:
        contenders = _contenders(programs)
    if BEST in contenders:
        wanted[BEST] = contenders[BEST]
        at = study.folder / "recordings"
        programs = [priced_too(one, BEST, contenders[BEST], at) for one in programs]
        study.say(f"{BEST}: simulated")
    builds = {} if study.quick else _built(study)
    duel = _duel(study, contenders) if contenders else None
    found = study.measure(
        (SPANWISE, *map(str, builds.values())),
        cases=[second for _, second in study.programs.values()],
        policies=wanted.values(),
    )
    called = {name: policy_name(one) for name, one in wanted.items()}
    called |= {name: place.name for name, place in builds.items()}
    told = page.Policies(found, programs, called, duel, judged=not study.quick)
    study.draw(lambda: picture.draw(told))
    return page.make(told, study.skipped, study.command, study.picture)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study."""
    example = "--folder build/policies -o policies.md --plot policies.png"
    return field_study.main("policies", __doc__, example, _page, arguments)
