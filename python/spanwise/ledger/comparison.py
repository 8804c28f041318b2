# SPDX-License-Identifier: Apache-2.0
"""Ledgers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spanwise import _format, errors
from spanwise.ledger.ledger import Ledger, ledger_rows
from spanwise.ledger.parts import MOMENTS, PARTS
from spanwise.results.rows import Rows, Tabular
from spanwise.results.values import Result, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(Result, Value, Tabular):
    """Ledgers of the same operations under several tables, side by side.

    Attributes:
        ledgers: the ledgers, in the order given; at least one.
    """

    ledgers: Sequence[Ledger]

    def __post_init__(self) -> None:
        if not self.ledgers:
            raise errors.InvalidError("nothing to compare; give at least one ledger")
        object.__setattr__(self, "ledgers", tuple(self.ledgers))

    def best(self, by: str = "held_bytes") -> Ledger:
        """The ledger with the least of a field of it; of equal ones the first.

        Raises:
            InvalidError: a ledger has no such number.
        """
        values: list[Any] = [getattr(ledger, by, None) for ledger in self.ledgers]
        if not all(isinstance(value, int | float) for value in values):
            raise errors.InvalidError(f"field {by!r} is no number of a ledger; use held_bytes")
        return self.ledgers[values.index(min(values))]

    @property
    def array(self) -> Rows:
        """One row a ledger, with the columns of `Ledger.array`."""
        return ledger_rows(self.ledgers)

    @property
    def text_head(self) -> tuple[str, ...]:
        """Titles of `text_rows`."""
        return ("", *(ledger.table for ledger in self.ledgers))

    def text_rows(self) -> list[tuple[str, ...]]:
        """One row a part, one column a ledger."""
        names = [*PARTS.items(), ("held_bytes", "held"), ("waste_bytes", "waste")]
        rows: list[tuple[str, ...]] = [
            (title, *(_format.number(getattr(ledger, name)) for ledger in self.ledgers))
            for name, title in names
        ]
        shares = (_format.share(one.waste_bytes, one.held_bytes) for one in self.ledgers)
        rows.append(("waste of held", *shares))
        resident = [one.resident_bytes for one in self.ledgers]
        known = [_format.number(count) for count in resident if count is not None]
        return [*rows, ("resident", *known)] if len(known) == len(resident) else rows

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "best": self.best().table,
            "ledgers": [ledger.to_dict() for ledger in self.ledgers],
        }

    def __str__(self) -> str:
        rows: list[Sequence[str]] = list(self.text_rows())
        rows.insert(len(PARTS), ())
        first = self.ledgers[0]
        when = f"at {first.at}" if first.at in MOMENTS else f"({first.at})"
        what = f"{first.source} " if first.source else ""
        table = _format.table(rows, self.text_head, indent="  ")
        lines = [f"{what}{when}, bytes", table, first.remark, self.verdict()]
        return "\n".join(line for line in lines if line)

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def _repr_html_(self) -> str:
        return _format.html_table(self.text_rows(), self.text_head, self.verdict())

    def verdict(self) -> str:
        """One sentence: which table holds least."""
        if len(self.ledgers) == 1:
            only = self.best()
            return f"{only.table} holds {_format.size(only.held_bytes)}."
        ranked = sorted(self.ledgers, key=lambda ledger: ledger.held_bytes)
        best, next_ = ranked[0], ranked[1]
        if best.held_bytes == next_.held_bytes:
            return f"{best.table} and {next_.table} hold equally much."
        saved = next_.held_bytes - best.held_bytes
        return (
            f"{best.table} holds least: {_format.size(saved)}"
            f" ({_format.share(saved, next_.held_bytes)}) less than {next_.table}"
            f"{resident_clause(best, next_)}."
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the ledgers as stacked bars; returns the matplotlib Axes."""
        from spanwise import plots  # noqa: PLC0415  pictures know models, not models pictures

        return plots.ledgers(self.ledgers, ax=ax)


def resident_clause(best: Ledger, other: Ledger) -> str:
    """How much less of the one that holds less is resident; "" where that is not known."""
    if best.resident_bytes is None or other.resident_bytes is None:
        return ""
    saved = other.resident_bytes - best.resident_bytes
    if saved == 0:
        return ", and as much is resident"
    word = "less" if saved > 0 else "more"
    return f", and {_format.size(abs(saved))} {word} is resident"
