# SPDX-License-Identifier: Apache-2.0
"""The page: what each policy saves of memory, what it costs in time, and which stays."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.provenance import provenance
from spanwise.measure.field_result import Field
from spanwise.results.intervals import Interval, interval_of

from studies.policies.duel import CPU, FAULTS, RSS, Duel, percent, rule, section
from studies.policies.priced import Priced
from studies.policies.settings import KNOBS, LENGTHS
from studies.resident.page import as_table


@dataclass(frozen=True)
class Policies:
    """What was found.

    Attributes:
        found: the runs of all programs under the default and under each policy, held out.
        programs: what was simulated.
        called: by policy the name of its allocator in the runs.
        duel: the default beside what may take its place, the best setting first; None: on the first
            inputs nothing saves more than the default, simulated.
        judged: whether there are enough programs to choose a default by.
    """

    found: Field
    programs: Sequence[Priced]
    called: Mapping[str, str]
    duel: Duel | None
    judged: bool = True

    def simulated(self, policy: str, number: int) -> Interval:
        """What a policy saves of the simulated peak resident, percent: over the programs."""
        return interval_of(one.saved(policy, number) for one in self.programs)

    def of_program(self, policy: str, program: Priced, field: str) -> Interval | None:
        """What a policy saves of a field of the held-out runs, percent, round by round."""
        case, name = program.cases[1], self.called[policy]
        return self.found.saving(case.program, case.input, field, allocator=name)

    def measured(self, policy: str, field: str) -> Interval | None:
        """The medians of the programs: their median and its interval."""
        every = [self.of_program(policy, one, field) for one in self.programs]
        medians = [one.median for one in every if one is not None]
        return interval_of(medians) if medians else None


def answer(told: Policies) -> str:
    """Which default to take."""
    if not told.judged:
        return "No default is judged by one program."
    if told.duel is None:
        return "**The default stays**: on the first inputs no setting of a knob saves anything."
    said = [_outcome(told, name) for name in told.duel.called]
    winner = next((name for name in told.duel.called if not told.duel.why_not(name)), None)
    verdict = "The default stays" if winner is None else f"`{winner}` wins held out"
    return f"**{verdict}.** {' '.join(said)} {rule()}"


def _outcome(told: Policies, setting: str) -> str:
    """What a setting that may take the default's place saves, and what speaks against it."""
    assert told.duel is not None
    against = told.duel.why_not(setting)
    reasons = f" Against it: {'; '.join(against)}." if against else " Nothing speaks against it."
    return (
        f"`{setting}` ({told.duel.called[setting]}) saves {percent(told.simulated(setting, 0))} of"
        " the simulated peak resident of the inputs that it was chosen by (median of the programs"
        f" and interval). On the inputs held out it saves {percent(told.simulated(setting, 1))} of"
        f" them, {percent(told.duel.over_all(setting, RSS))} of the measured peak RSS, and"
        f" {percent(told.duel.over_all(setting, CPU))} of the processor time.{reasons}"
    )


def knob_of(policy: str) -> str:
    """The knob that a policy turns; several: more than one."""
    if policy in LENGTHS:
        return "span lengths"
    return next((knob for knob, settings in KNOBS.items() if policy in settings), "several")


def _summary(told: Policies) -> list[tuple[str, ...]]:
    """A policy a row: simulated on both inputs; peak RSS, time and page faults, held out."""
    return [
        (
            name,
            knob_of(name),
            *(percent(told.simulated(name, number)) for number in (0, 1)),
            *(percent(told.measured(name, field)) for field in (RSS, CPU, FAULTS)),
            _slowest(told, name),
        )
        for name in told.called
    ]


def _slowest(told: Policies, policy: str) -> str:
    """The program that loses most processor time, held out."""
    every = [(told.of_program(policy, one, CPU), one.name) for one in told.programs]
    known = [(inside.median, name) for inside, name in every if inside is not None]
    return "{1} {0:+.1f} %".format(*min(known)) if known else "-"


def _by_program(told: Policies, field: str) -> list[tuple[str, ...]]:
    """A program a row, held out, a policy a column."""
    return [
        (one.name, *(percent(told.of_program(name, one, field)) for name in told.called))
        for one in told.programs
    ]


def _simulated_rows(told: Policies) -> list[tuple[str, ...]]:
    """A program a row, held out, simulated; the mean last."""
    names = list(told.called)
    rows = [(one.name, *(f"{one.saved(n, 1):+.1f} %" for n in names)) for one in told.programs]
    means = (statistics.mean(one.saved(n, 1) for one in told.programs) for n in names)
    return [("program", *names), *rows, ("mean", *(f"{mean:+.1f} %" for mean in means))]


def _rounds(found: Field) -> int:
    return 1 + max((row["round"] for row in found), default=0)


def make(told: Policies, skipped: Mapping[str, str], command: str, picture: str | None) -> str:
    """The page of docs/measurements."""
    made = provenance(Path(__file__).resolve().parents[3], Path("build/bench"))
    machine = made["machine"]
    rounds = _rounds(told.found)
    simulated = _simulated_rows(told)
    return "\n".join(
        [
            "# What policies beside size classes save",
            "",
            f"Written by `{command}`, {time.strftime('%Y-%m-%d')}, commit {made['commit']},"
            f" {machine['cpu']}, {machine['cpus']} processors, {machine['system']}; load"
            f" {machine['load']:.1f} as it was written.",
            "",
            answer(told),
            "",
            *([f"![What each policy saves]({picture})", ""] if picture else []),
            *(section(told.duel, _rounds(told.duel.found)) if told.duel else []),
            "## Each alone, and together",
            "",
            "What a policy saves against the default, table c16, in percent; below 0 it loses. The"
            " default takes the partial span that was used last, keeps no empty span, and gives"
            " idle pages back after 500 ms; its spans grow from a first length. `lasting span`"
            " takes the one that will be empty last by the history of its class. Simulated is the"
            " peak resident of the heap; measured are the peak RSS, the processor time and the page"
            " faults of plain runs under the preloaded malloc, in turns, round by round,"
            f" {rounds} rounds. A cell is the median of the programs' and its interval. Each"
            " program has two inputs; the second one is held out: no setting was chosen by it.",
            "",
            *as_table(
                (
                    *("policy", "knob", "simulated, first input", "simulated, held out"),
                    *("peak RSS, held out", "processor time, held out"),
                    *("page faults, held out", "slowest program"),
                ),
                _summary(told),
            ),
            "",
            "## Simulated peak resident by program, held out",
            "",
            *as_table(simulated[0], simulated[1:]),
            "",
            "## Peak RSS by program, held out",
            "",
            *as_table(("program", *told.called), _by_program(told, RSS)),
            "",
            "## Processor time by program, held out",
            "",
            *as_table(("program", *told.called), _by_program(told, CPU)),
            "",
            "## Page faults by program, held out",
            "",
            *as_table(("program", *told.called), _by_program(told, FAULTS)),
            "",
            *(f"- {name}: {why}" for name, why in skipped.items()),
            *([""] if skipped else []),
        ]
    )
