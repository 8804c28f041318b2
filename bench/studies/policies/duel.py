# SPDX-License-Identifier: Apache-2.0
"""Whether a setting takes the default's place: both in turns, in many rounds, and on bursts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spanwise.measure.field_cases import FieldCase
from spanwise.measure.field_result import Field
from spanwise.results.intervals import Interval, interval_of

from studies.resident.page import as_table
from studies.tables_save.answer import mean_interval

DUEL_ROUNDS = 25

COST_MAX = 1.0
"""Percent of peak RSS that any program may lose under a new default, and percent of processor time
that all together may."""

BURST_COST_MAX = 5.0
"""Percent of processor time that a program which works in bursts may lose."""

RSS, CPU, FAULTS = "rss_bytes", "cpu_ns", "page_faults"


@dataclass(frozen=True)
class Duel:
    """The default beside the settings that may take its place.

    Attributes:
        found: the runs.
        cases: the inputs that no setting was chosen by.
        bursts: programs that take memory and give all of it up again and again.
        called: by setting the name of its allocator in the runs.
    """

    found: Field
    cases: Sequence[FieldCase]
    bursts: Sequence[FieldCase]
    called: Mapping[str, str]

    def of_case(self, setting: str, case: FieldCase, field: str) -> Interval | None:
        """What a setting saves of a field of the runs of a case, percent, round by round."""
        name = self.called[setting]
        return self.found.saving(case.program, case.input, field, allocator=name)

    def medians(self, setting: str, field: str, *, bursts: bool = False) -> dict[str, float]:
        """By program the median of that."""
        every = {
            one.program: self.of_case(setting, one, field)
            for one in (self.bursts if bursts else self.cases)
        }
        return {name: inside.median for name, inside in every.items() if inside is not None}

    def over_all(self, setting: str, field: str) -> Interval | None:
        """The median of the programs' medians, and its interval."""
        medians = self.medians(setting, field)
        return interval_of(medians.values()) if medians else None

    def why_not(self, setting: str) -> list[str]:
        """The reasons against a setting as the default; without any it wins."""
        saved, spent = (self.over_all(setting, field) for field in (RSS, CPU))
        if saved is None or spent is None:
            return ["nothing was measured"]
        found = []
        if saved.low <= 0:
            found.append(f"of peak RSS it saves {percent(saved)}, which is not above 0")
        name, worst = least(self.medians(setting, RSS))
        if worst < -COST_MAX:
            found.append(f"{name} loses {-worst:.1f} % of peak RSS")
        if spent.low < -COST_MAX:
            found.append(
                f"of processor time it saves {percent(spent)}, so it may lose more than"
                f" {COST_MAX:.0f} %"
            )
        for name, lost in self.medians(setting, CPU, bursts=True).items():
            if lost < -BURST_COST_MAX:
                found.append(f"`{name}` loses {-lost:.0f} % of processor time")
        return found


def percent(inside: Interval | None) -> str:
    """A median with its interval."""
    if inside is None:
        return "-"
    return f"{inside.median:+.2f} % ({inside.low:+.2f} .. {inside.high:+.2f})"


def least(values: Mapping[str, float]) -> tuple[str, float]:
    """The name with the least value, and that."""
    name = min(values, key=lambda one: values[one])
    return name, values[name]


def rule() -> str:
    """When a setting becomes the default."""
    return (
        "A setting becomes the default if over the programs the interval of what it saves of peak"
        f" RSS lies above 0 and that of processor time above {-COST_MAX:.0f} %, no program loses"
        f" more than {COST_MAX:.0f} % of peak RSS, and none that works in bursts more than"
        f" {BURST_COST_MAX:.0f} % of processor time."
    )


def section(duel: Duel, rounds: int) -> list[str]:
    """The page's section: over all programs, and by program."""
    head = ("program", *(f"{name}: {what}" for name in duel.called for what in _WHAT))
    return [
        "## The default and what may take its place",
        "",
        f"{rounds} rounds in turns, on the inputs that were held out and on programs that take"
        " memory and give all of it up again and again, which is what free pages are kept for. What"
        " a setting saves of the default's, in percent: median and interval, and for means their"
        f" 90 % interval; below 0 it loses. Page faults hardly differ between runs. {rule()}",
        "",
        *as_table(
            (
                *("setting", "peak RSS", "mean of peak RSS", "processor time"),
                *("mean of processor time", "page faults"),
            ),
            [_overall(duel, name) for name in duel.called],
        ),
        "",
        *as_table(head, [_by_case(duel, one) for one in (*duel.cases, *duel.bursts)]),
        "",
    ]


_WHAT = ("peak RSS", "processor time", "page faults")


def _overall(duel: Duel, name: str) -> tuple[str, ...]:
    """Median of the programs with its interval; for two also the mean and its 90 % interval."""
    return (
        name,
        percent(duel.over_all(name, RSS)),
        _mean(duel, name, RSS),
        percent(duel.over_all(name, CPU)),
        _mean(duel, name, CPU),
        percent(duel.over_all(name, FAULTS)),
    )


def _mean(duel: Duel, name: str, field: str) -> str:
    values = list(duel.medians(name, field).values())
    return "{:+.2f} % ({:+.2f} .. {:+.2f})".format(*mean_interval(values)) if values else "-"


def _by_case(duel: Duel, case: FieldCase) -> tuple[str, ...]:
    cells = [
        percent(duel.of_case(name, case, field))
        for name in duel.called
        for field in (RSS, CPU, FAULTS)
    ]
    return (case.program, *cells)
