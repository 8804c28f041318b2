# SPDX-License-Identifier: Apache-2.0
"""The peak resident bytes of a program's two inputs under many tables, simulated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import spanwise as sw
from spanwise.measure.field_fits import FieldFit
from spanwise.optimizer.scores import Scores
from spanwise.optimizer.search import FAMILIES, WASTE_PERCENT
from spanwise.optimizer.solver import Rules, fewest_classes
from spanwise.optimizer.trial import hold_trial
from spanwise.tables.table import STOCK

from studies.policies.settings import POLICIES, highest

COUNTS = (16, 24, 32, 67)
"""Most classes of the tables that are fitted; Go's table has 67."""


@dataclass(frozen=True)
class Simulated:
    """A program's figures; bytes.

    Attributes:
        resident: by table the peak resident bytes of the first input, and of the other.
        limit: what perfect packing would have.
        split: what the best table of 32 classes saves of each input, by cause.
        policies: by policy the peak resident bytes of both inputs, table c16.
    """

    resident: Mapping[str, tuple[int, int]]
    limit: tuple[int, int]
    split: tuple[Mapping[str, int], Mapping[str, int]]
    policies: Mapping[str, tuple[int, int]]


def least_bound(classes: int) -> int:
    """The least bound on waste, in percent, that so many classes keep; at least the default."""
    for percent in range(WASTE_PERCENT, 101):
        if fewest_classes(rules_of(classes, percent)) <= classes:
            return percent
    return 100


def rules_of(classes: int, waste_percent: int = WASTE_PERCENT) -> Rules:
    """The default rules of `optimize` for a number of classes and a bound on waste."""
    return Rules(classes, 16, 32768, 8192, 10, 0.5, 0.0, waste_percent)


def simulate(
    recordings: Sequence[sw.Recording], fit: FieldFit, candidates: int | None
) -> Simulated:
    """All figures of a program.

    Args:
        recordings: of the input that tables are fitted to, and of the other.
        fit: the table of 32 classes.
        candidates: as of `optimize`, for the tables of other numbers of classes.
    """
    tables = {name: sw.SizeClassTable.named(name) for name in (*STOCK, *FAMILIES)}
    for count in COUNTS:
        tables[f"best {count}"] = sw.optimize(
            recordings[0],
            count,
            waste_percent=least_bound(count),
            candidates=candidates,
            progress=False,
        ).proposal
    scores = [Scores([one]) for one in recordings]
    by_input = [one.of(tables.values()) for one in scores]
    stock = [sw.SizeClassTable.named(name) for name in STOCK]
    shown, rules = [*stock, fit.table], rules_of(32)
    trials = [hold_trial(one, shown, [], fit.table.name, rules) for one in scores]
    return Simulated(
        dict(zip(tables, zip(*by_input, strict=True), strict=True)),
        (trials[0].limit_bytes, trials[1].limit_bytes),
        (trials[0].split(), trials[1].split()),
        {
            name: (highest(recordings[0], "c16", options), highest(recordings[1], "c16", options))
            for name, options in POLICIES.items()
        },
    )


def kept(path: Path, made_of: Any) -> Simulated | None:
    """The figures that an earlier run wrote, if they were made from the same inputs."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value.pop("made_of") != made_of:
            return None
        value["resident"] = {name: tuple(pair) for name, pair in value["resident"].items()}
        return Simulated(**value)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(path: Path, made_of: Any, found: Simulated) -> None:
    """Writes the figures for a later run."""
    path.write_text(json.dumps({"made_of": made_of, **asdict(found)}), encoding="utf-8")
