# SPDX-License-Identifier: Apache-2.0
"""A program's figures in percent of what the stock table c16 has: measured and simulated."""

from __future__ import annotations

from dataclasses import dataclass

import spanwise as sw
from spanwise.measure.field_fits import FieldFit
from spanwise.measure.field_result import Field

from studies.tables_save.simulated import Simulated


@dataclass(frozen=True)
class Program:
    """A program's cases and what was found of it.

    Attributes:
        name: of the program.
        cases: the one that tables are fitted to, and the one held out.
        fit: its table.
        simulated: figures of many tables.
    """

    name: str
    cases: tuple[sw.FieldCase, sw.FieldCase]
    fit: FieldFit
    simulated: Simulated


def saved_of(found: Field, program: Program, number: int) -> tuple[float, float, float]:
    """What the found table saves of peak RSS, percent: median and ends; 0 where c16 stays."""
    case = program.cases[number]
    saving = found.saving(case.program, case.input)
    return (0.0, 0.0, 0.0) if saving is None else (saving.median, saving.low, saving.high)


def share(program: Program, number: int, table: str) -> float:
    """What a table saves of what is resident under c16, simulated, percent; below 0 it loses."""
    stock = program.simulated.resident["c16"][number]
    return 100 * (stock - program.simulated.resident[table][number]) / stock


def split_share(program: Program, number: int, cause: str) -> float:
    """The part of a cause in what the table of 32 classes saves, percent of what c16 has."""
    stock = program.simulated.resident["c16"][number]
    return 100 * program.simulated.split[number][cause] / stock


def limit_share(program: Program) -> float:
    """What perfect packing would save of what is resident under c16, held out, percent."""
    stock = program.simulated.resident["c16"][1]
    return 100 * (stock - program.simulated.limit[1]) / stock


def signed(value: float) -> str:
    """Percent, with its sign."""
    return f"{value:+.1f} %"
