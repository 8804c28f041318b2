# SPDX-License-Identifier: Apache-2.0
"""What the optimiser takes: recordings of one program, tables of different names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from spanwise import errors
from spanwise.optimizer.profile import check_allocates
from spanwise.recordings.recording import Recording
from spanwise.tables.table import STOCK, SizeClassTable, as_table


def check_held_out(held_out: Iterable[Recording], fitted: Iterable[Recording]) -> None:
    """Refuses a held-out recording without allocations, and one that is also fitted to."""
    for one in held_out:
        check_allocates(one)
        if any(one is other or _same_file(one, other) for other in fitted):
            raise errors.InvalidError(
                f"{one.name}: cannot be held out, because the table is fitted to it"
            )


def check_programs(recordings: Iterable[Recording]) -> None:
    """Refuses recordings of different programs: a table is fitted to one, and tried on the same."""
    first: tuple[str, str] | None = None
    for one in recordings:
        if "program" not in dict(one.meta):
            continue
        name = Path(one.program).name
        if first is not None and name != first[1]:
            raise errors.InvalidError(
                f"{one.name}: is of {name}, and {first[0]} of {first[1]}; give recordings of one"
                " program, or ask for them together with mixed=True (--mixed)"
            )
        first = first or (one.name, name)


def _same_file(one: Recording, other: Recording) -> bool:
    """Whether both were opened from one file."""
    if one.path is None or other.path is None:
        return False
    try:
        return Path(one.path).samefile(other.path)
    except OSError:
        return False


def given_tables(tables: Iterable[SizeClassTable | str]) -> list[SizeClassTable]:
    """The stock tables and the given ones without copies; refuses two tables of one name."""
    found = [SizeClassTable.named(name) for name in STOCK]
    for table in map(as_table, tables):
        if table in found:
            continue
        if table.name in {one.name for one in found}:
            raise errors.InvalidError(f"two different tables have the name {table.name!r}")
        found.append(table)
    return found


__all__ = ["check_held_out", "check_programs", "given_tables"]
