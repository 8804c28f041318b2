# SPDX-License-Identifier: Apache-2.0
"""What `./dev study limits` measured as tables of a page: rows side by side, a step a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.stats import interval
from runner.text import number

from studies.limits.lines import CALLED, Line
from studies.pages import Table, provenance_line, write_figures

REST = "In line, beside linked peers"
# Rows that stand side by side, by the prefixes of their names; REST has all others.
GROUPS = {
    REST: (),
    "Called, beside preloaded peers": (CALLED,),
    "Go's cases": ("seed/",),
    "Several classes, two threads, first touches, beside preloaded peers": (
        *("replace/", "scaling_replace/", "producer_consumer/", "cold/"),
    ),
}
MISPREDICTED = 0.1  # an operation; lower figures are not shown


def group_of(row: str) -> str:
    """The title of the table that has the row."""
    fits = (title for title, prefixes in GROUPS.items() if row.startswith(prefixes))
    return next(fits, REST)


def _label(line: Line) -> str:
    return f"{line.who} (ours)" if line.kind == "ours" else line.who


def _table(
    title: str, lines: Sequence[Line], columns: Mapping[tuple[str, str], Callable[[Line], str]]
) -> Table:
    """A line for each prototype, ours and peer; columns by (row, heading)."""
    cells = {(line.bench, _label(line)): line for line in lines}
    kinds = ("prototype", "ours", "peer")
    labels = dict.fromkeys(_label(line) for kind in kinds for line in lines if line.kind == kind)
    rows = [
        [
            f"`{label}`",
            *(
                show(cells[row, label]) if (row, label) in cells else ""
                for (row, _), show in columns.items()
            ),
        ]
        for label in labels
    ]
    return Table(title, ["step", *(heading for _, heading in columns)], rows)


def _heading(row: str) -> str:
    return row.removeprefix(CALLED).removeprefix("seed/")


def _ns(line: Line) -> str:
    if not line.values:
        return "failed"
    found = interval(line.values)
    return f"{number(found.median)} [{number(found.low)}, {number(found.high)}]"


def time_table(title: str, lines: Sequence[Line]) -> Table:
    """Nanoseconds with their intervals."""
    rows = dict.fromkeys(line.bench for line in lines)
    return _table(f"{title}: ns", lines, {(row, _heading(row)): _ns for row in rows})


def _instructions(line: Line) -> str:
    return f"{line.counted.instructions:.1f}" if line.counted else ""


def _mispredicted(line: Line) -> str:
    return f"{line.counted.mispredicted:.2f}" if line.counted else ""


def _missed(line: Line) -> str:
    return f"{line.counted.missed:.2f}" if line.counted else ""


def count_table(title: str, lines: Sequence[Line]) -> Table | None:
    """Instructions of an operation and its loop; None when nothing was counted.

    Where branches are mispredicted, those and the first-level misses as well.
    """
    counted = [line for line in lines if line.counted is not None]
    columns: dict[tuple[str, str], Callable[[Line], str]] = {}
    for row in dict.fromkeys(line.bench for line in counted):
        columns[row, _heading(row)] = _instructions
        of_row = [line.counted for line in counted if line.bench == row and line.counted]
        if max(each.mispredicted for each in of_row) >= MISPREDICTED:
            columns[row, "mispredicted"] = _mispredicted
            columns[row, "first-level misses"] = _missed
    if not columns:
        return None
    return _table(f"{title}: instructions of an operation and its loop", counted, columns)


def tables(lines: Sequence[Line]) -> list[Table]:
    """Times of each group, then what was counted of it."""
    made: list[Table | None] = []
    for title in GROUPS:
        of_group = [line for line in lines if group_of(line.bench) == title]
        if of_group:
            made += [time_table(title, of_group), count_table(title, of_group)]
    return [table for table in made if table is not None]


def write_page(path: Path, lines: Sequence[Line], about: Mapping[str, Any], count: int) -> None:
    """Puts the tables between the page's markers.

    Args:
        path: of the page.
        lines: what was measured.
        about: machine, compiler and commit.
        count: repetitions.

    Raises:
        BenchError: the page is not there, has no markers, or cannot be written.
    """
    peers = [line for line in lines if line.kind == "peer" and line.version]
    versions = dict.fromkeys(f"{line.who.split(' (')[0]} {line.version}" for line in peers)
    where = provenance_line(about, count, *versions)
    write_figures(path, [where, *(table.as_markdown() for table in tables(lines))])
