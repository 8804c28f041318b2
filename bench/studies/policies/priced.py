# SPDX-License-Identifier: Apache-2.0
"""What each policy has resident of a program's two inputs, simulated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import spanwise as sw
from spanwise.heap.options import DEFAULT
from spanwise.measure.field_fits import record_case, recording_path
from spanwise.sweeps.plans import made_by

from studies.policies.settings import LENGTHS, POLICIES, highest, length_table

DEFAULTS = "default"


@dataclass(frozen=True)
class Priced:
    """A program's figures; bytes.

    Attributes:
        name: of the program.
        cases: the input that a default is chosen by, and the one held out.
        resident: by policy, the default among them, the peak resident bytes of both, table c16.
    """

    name: str
    cases: tuple[sw.FieldCase, sw.FieldCase]
    resident: Mapping[str, tuple[int, int]]

    def saved(self, policy: str, number: int) -> float:
        """What a policy saves of what the default has, percent; below 0 it loses."""
        usual = self.resident[DEFAULTS][number]
        return 100 * (usual - self.resident[policy][number]) / usual


def price(
    name: str,
    cases: tuple[sw.FieldCase, sw.FieldCase],
    folder: Path,
    policies: Sequence[str] = (*POLICIES, *LENGTHS),
) -> Priced:
    """Records both inputs and simulates every policy, unless the folder has it of the same."""
    place = recording_path(folder, name, 0).parent
    place.mkdir(parents=True, exist_ok=True)
    made_of = [made_by(), [one.hash for one in cases], list(policies)]
    found = _kept(place / "priced.json", made_of)
    if found is None:
        recordings = [
            record_case(case, recording_path(folder, name, number))
            for number, case in enumerate(cases)
        ]
        found = {policy: _pair(recordings, policy) for policy in (DEFAULTS, *policies)}
        text = json.dumps({"made_of": made_of, "resident": found})
        (place / "priced.json").write_text(text, encoding="utf-8")
    return Priced(name, cases, found)


def priced_too(one: Priced, policy: str, options: sw.HeapOptions, folder: Path) -> Priced:
    """Adds a policy, simulated on the recordings that `price` made."""
    paths = [recording_path(folder, one.name, number) for number in (0, 1)]
    recordings = [sw.Recording.open(path) for path in paths]
    pair = _both(recordings, sw.SizeClassTable.c16(), options)
    return replace(one, resident={**one.resident, policy: pair})


def _pair(recordings: Sequence[sw.Recording], policy: str) -> tuple[int, int]:
    if policy in LENGTHS:
        return _both(recordings, length_table(policy), DEFAULT)
    return _both(recordings, sw.SizeClassTable.c16(), POLICIES.get(policy, DEFAULT))


def _both(
    recordings: Sequence[sw.Recording], table: sw.SizeClassTable, options: sw.HeapOptions
) -> tuple[int, int]:
    """Simulates both inputs in two threads; most of the work is C without Python's lock."""
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda one: highest(one, table, options), recordings)
    return first, second


def _kept(path: Path, made_of: Any) -> dict[str, tuple[int, int]] | None:
    """The figures that an earlier run wrote, if they were made from the same inputs."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["made_of"] != made_of:
            return None
        return {name: (int(pair[0]), int(pair[1])) for name, pair in value["resident"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return None
