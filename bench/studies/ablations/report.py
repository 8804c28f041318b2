# SPDX-License-Identifier: Apache-2.0
"""What an ablation has shown: as a table, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runner.stats import describe, interval, order_rank, ratio
from runner.text import number, text_table

from studies.ablations.measure import CALLGRIND, NONE, PERF, Events

_HEADER = (
    *("row", "cache", "variant", "ns [interval]", "over ours [interval]", "instr"),
    *("I1 miss", "D1 miss", "mispred", "code B"),
)


@dataclass
class Cell:
    """One row of one variant, instruction cache hot or cold.

    Attributes:
        ablation: its name.
        row: of bench/studies/ablations/ablation.c.
        state: hot or cold.
        variant: its name.
        ours: whether it is the one that the others are compared with.
        code_bytes: of the whole program.
        ns: one value a repetition.
        events: None where nothing counts.
    """

    ablation: str
    row: str
    state: str
    variant: str
    ours: bool
    code_bytes: int
    ns: list[float]
    events: Events | None = None


def _against(cell: Cell, cells: Sequence[Cell]) -> Cell:
    """The cell of ours with the same ablation, row and state."""
    return next(
        each
        for each in cells
        if each.ours
        and (each.ablation, each.row, each.state) == (cell.ablation, cell.row, cell.state)
    )


def _may_divide(cell: Cell, ours: Cell) -> bool:
    """A cold time is a difference: where noise made it 0 or less there is no ratio."""
    return not cell.ours and min(*cell.ns, *ours.ns) > 0


def _line(cell: Cell, cells: Sequence[Cell]) -> list[str]:
    ours = _against(cell, cells)
    ns = interval(cell.ns)
    against = "ours" if cell.ours else "-"
    if _may_divide(cell, ours):
        found = ratio(cell.ns, ours.ns)
        against = f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]"
    events = ["-"] * 4
    if cell.events is not None:
        e = cell.events
        events = [f"{e.instructions:.1f}", f"{e.i1:.3f}", f"{e.d1:.3f}", f"{e.mispredicts:.3f}"]
    more = cell.code_bytes - ours.code_bytes
    code = str(cell.code_bytes) if cell.ours else f"{more:+d}"
    spread = f"{number(ns.median)} [{number(ns.low)}, {number(ns.high)}]"
    return [cell.row, cell.state, cell.variant, spread, against, *events, code]


def table(cells: Sequence[Cell]) -> str:
    """One ablation: each row hot, then cold, ours first."""
    return text_table(_HEADER, [_line(cell, cells) for cell in cells])


def as_json(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Every cell with its values, ratio and counts; null where there is none."""
    found = []
    for cell in cells:
        ours = _against(cell, cells)
        ns = interval(cell.ns)
        over = ratio(cell.ns, ours.ns) if _may_divide(cell, ours) else None
        found.append(
            {
                "ablation": cell.ablation,
                "row": cell.row,
                "cache": cell.state,
                "variant": cell.variant,
                "ours": cell.ours,
                "ns": ns.median,
                "ns_low": ns.low,
                "ns_high": ns.high,
                "coverage": ns.coverage,
                "values": cell.ns,
                "over_ours": over.median if over else None,
                "over_low": over.low if over else None,
                "over_high": over.high if over else None,
                "verdict": describe(over) if over else None,
                "instructions": cell.events.instructions if cell.events else None,
                "i1_misses": cell.events.i1 if cell.events else None,
                "d1_misses": cell.events.d1 if cell.events else None,
                "mispredicts": cell.events.mispredicts if cell.events else None,
                "code_bytes": cell.code_bytes,
            }
        )
    return found


def legend(how: str, count: int, *, full: bool) -> str:
    """What the columns mean, in lines.

    Args:
        how: PERF, CALLGRIND or NONE.
        count: repetitions.
        full: whether they are enough for a claim.
    """
    counted = {
        PERF: "counts: the processor's, by perf; D1 reads only",
        CALLGRIND: "counts: simulated by callgrind",
        NONE: "no counts: none wanted, or neither perf nor valgrind counts here",
    }[how]
    provisional = "" if full else " (provisional: too few for a claim)"
    return (
        f"{count} interleaved repetitions{provisional}, intervals hold the median with "
        f"{order_rank(count)[1]:.0%}; {counted}, less those of an empty loop\n"
        "hot: operations in a loop; cold: a typical operation after 128 KiB of other code, less an "
        "empty one\n"
        "code B: .text of the program, and what others differ by (+0: the same program, run "
        "otherwise)"
    )
