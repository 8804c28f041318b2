# SPDX-License-Identifier: Apache-2.0
"""The page: what each policy saves of resident bytes, what it costs in time, and which stays."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.provenance import provenance
from spanwise.measure.field_result import Field
from spanwise.results.intervals import Interval, interval_of

from studies.policies.priced import Priced
from studies.policies.settings import KNOBS, LENGTHS
from studies.resident.page import as_table

COST_MAX = 1.0
"""Percent of peak RSS that a program may lose, and of processor time, under a new default."""

RSS, CPU = "rss_bytes", "cpu_ns"


@dataclass(frozen=True)
class Policies:
    """What was found.

    Attributes:
        found: the runs of all programs under the default and under each policy.
        programs: what was simulated.
        called: by policy the name of its allocator in the runs.
        chosen: the policy that saves most on the first inputs, simulated; None: the default does.
        judged: whether there are enough programs to choose a default by.
    """

    found: Field
    programs: Sequence[Priced]
    called: Mapping[str, str]
    chosen: str | None
    judged: bool = True

    def simulated(self, policy: str, number: int) -> Interval:
        """What a policy saves of simulated resident bytes, percent: over the programs."""
        return interval_of(one.saved(policy, number) for one in self.programs)

    def of_program(self, policy: str, program: Priced, number: int, field: str) -> Interval | None:
        """What a policy saves of a field of the runs of one input, percent, round by round."""
        case, name = program.cases[number], self.called[policy]
        return self.found.saving(case.program, case.input, field, allocator=name)

    def measured(self, policy: str, number: int, field: str) -> Interval | None:
        """The medians of the programs: their median and its interval."""
        every = [self.of_program(policy, one, number, field) for one in self.programs]
        medians = [one.median for one in every if one is not None]
        return interval_of(medians) if medians else None


def wins(told: Policies, policy: str) -> bool:
    """Whether a policy is better than the default on the inputs that were held out.

    The interval of what it saves of peak RSS, over the programs, lies above 0; no program loses
    more than COST_MAX of peak RSS; and the interval of processor time lies above a loss of it.
    """
    saved, spent = (told.measured(policy, 1, field) for field in (RSS, CPU))
    if saved is None or spent is None:
        return False
    losses = [told.of_program(policy, one, 1, RSS) for one in told.programs]
    worst = min(one.median for one in losses if one is not None)
    return saved.low > 0 and worst >= -COST_MAX and spent.low >= -COST_MAX


def answer(told: Policies) -> str:
    """Which default to take."""
    if not told.judged:
        return "No default is judged by one program."
    if told.chosen is None:
        return "**The default stays**: on the first inputs no setting of a knob saves anything."
    policy = told.chosen
    verdict = f"`{policy}` wins held out" if wins(told, policy) else "The default stays"
    return (
        f"**{verdict}.** On the first inputs `{policy}` ({told.called[policy]}) saves most of the"
        f" simulated resident bytes, {_cell(told.simulated(policy, 0))} (median of the programs and"
        f" interval). On the inputs held out it saves {_cell(told.simulated(policy, 1))} of them,"
        f" {_cell(told.measured(policy, 1, RSS))} of the measured peak RSS, and"
        f" {_cell(told.measured(policy, 1, CPU))} of the processor time. A new default must have an"
        " interval above 0 for peak RSS, lose at most"
        f" {COST_MAX:.0f} % of any program's, and at most {COST_MAX:.0f} % of the processor time."
    )


def knob_of(policy: str) -> str:
    """The knob that a policy turns; several: more than one."""
    if policy in LENGTHS:
        return "span lengths"
    return next((knob for knob, settings in KNOBS.items() if policy in settings), "several")


def _cell(inside: Interval | None) -> str:
    if inside is None:
        return "-"
    return f"{inside.median:+.2f} % ({inside.low:+.2f} .. {inside.high:+.2f})"


def _summary(told: Policies) -> list[tuple[str, ...]]:
    """A policy a row: simulated on both inputs; peak RSS and processor time, held out."""
    return [
        (
            name,
            knob_of(name),
            *(_cell(told.simulated(name, number)) for number in (0, 1)),
            *(_cell(told.measured(name, 1, field)) for field in (RSS, CPU)),
            _slowest(told, name),
        )
        for name in told.called
    ]


def _slowest(told: Policies, policy: str) -> str:
    """The program that loses most processor time, held out."""
    every = [(told.of_program(policy, one, 1, CPU), one.name) for one in told.programs]
    known = [(inside.median, name) for inside, name in every if inside is not None]
    return "{1} {0:+.1f} %".format(*min(known)) if known else "-"


def _by_program(told: Policies, field: str) -> list[tuple[str, ...]]:
    """A program a row, held out, a policy a column."""
    return [
        (one.name, *(_cell(told.of_program(name, one, 1, field)) for name in told.called))
        for one in told.programs
    ]


def _simulated_rows(told: Policies) -> list[tuple[str, ...]]:
    """A program a row, held out, simulated; the mean last."""
    names = list(told.called)
    rows = [(one.name, *(f"{one.saved(n, 1):+.1f} %" for n in names)) for one in told.programs]
    means = (statistics.mean(one.saved(n, 1) for one in told.programs) for n in names)
    return [("program", *names), *rows, ("mean", *(f"{mean:+.1f} %" for mean in means))]


def make(told: Policies, skipped: Mapping[str, str], command: str, picture: str | None) -> str:
    """The page of docs/measurements."""
    made = provenance(Path(__file__).resolve().parents[3], Path("build/bench"))
    machine = made["machine"]
    rounds = 1 + max((row["round"] for row in told.found), default=0)
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
            "## Each alone, and together",
            "",
            "What a policy saves against the default, table c16, in percent; below 0 it loses. The"
            " default takes the partial span that was used last, keeps no empty span, and gives"
            " idle pages back after 500 ms; its spans grow from a first length. `lasting span`"
            " takes the one that will be empty last by the history of its class. Simulated are the"
            " highest resident bytes of the heap; measured the peak RSS and the processor time of"
            " plain runs under the preloaded malloc, in turns, round by round,"
            f" {rounds} rounds. A cell is the median of the programs' and its interval. Each"
            " program has two inputs; the second one is held out: no setting was chosen by it.",
            "",
            *as_table(
                (
                    *("policy", "knob", "simulated, first input", "simulated, held out"),
                    *("peak RSS, held out", "processor time, held out", "slowest program"),
                ),
                _summary(told),
            ),
            "",
            "## Simulated resident bytes by program, held out",
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
            *(f"- {name}: {why}" for name, why in skipped.items()),
            *([""] if skipped else []),
        ]
    )
