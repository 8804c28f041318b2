# SPDX-License-Identifier: Apache-2.0
"""Ledgers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spanwise import _format, errors
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Comparison:
    """Ledgers of the same operations under several tables, side by side.

    Attributes:
        ledgers: the ledgers, in the order given.
    """

    def __init__(self, ledgers: Sequence[Ledger]) -> None:
        if not ledgers:
            raise errors.InvalidError("nothing to compare; give at least one ledger")
        self.ledgers = tuple(ledgers)

    @property
    def best(self) -> Ledger:
        """The ledger that holds the fewest bytes; of equal ones the first."""
        return min(self.ledgers, key=lambda ledger: ledger.held_bytes)

    @property
    def head(self) -> tuple[str, ...]:
        """Titles of `rows`."""
        return ("", *(ledger.table for ledger in self.ledgers))

    def rows(self) -> list[tuple[str, ...]]:
        """One row a part, one column a ledger."""
        names = [*PARTS.items(), ("held_bytes", "held"), ("waste_bytes", "waste")]
        rows: list[tuple[str, ...]] = [
            (title, *(_format.number(getattr(ledger, name)) for ledger in self.ledgers))
            for name, title in names
        ]
        shares = (_format.share(one.waste_bytes, one.held_bytes) for one in self.ledgers)
        return [*rows, ("waste of held", *shares)]

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "best": self.best.table,
            "ledgers": [ledger.to_dict() for ledger in self.ledgers],
        }

    def __str__(self) -> str:
        rows: list[Sequence[str]] = list(self.rows())
        rows.insert(len(PARTS), ())
        first = self.ledgers[0]
        when = f"at {first.at}" if first.at in ("peak", "end") else f"({first.at})"
        what = f"{first.source} " if first.source else ""
        table = _format.table(rows, self.head, indent="  ")
        lines = [f"{what}{when}, bytes", table, first.remark, self.verdict()]
        return "\n".join(line for line in lines if line)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _format.html_table(self.rows(), self.head, self.verdict())

    def verdict(self) -> str:
        """One sentence: which table holds least."""
        if len(self.ledgers) == 1:
            only = self.best
            return f"{only.table} holds {_format.size(only.held_bytes)}."
        ranked = sorted(self.ledgers, key=lambda ledger: ledger.held_bytes)
        best, next_ = ranked[0], ranked[1]
        if best.held_bytes == next_.held_bytes:
            return f"{best.table} and {next_.table} hold equally much."
        saved = next_.held_bytes - best.held_bytes
        return (
            f"{best.table} holds least: {_format.size(saved)}"
            f" ({_format.share(saved, next_.held_bytes)}) less than {next_.table}."
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the ledgers as stacked bars; returns the matplotlib Axes."""
        from spanwise import plots  # noqa: PLC0415  pictures know models, not models pictures

        return plots.ledgers(self.ledgers, ax=ax)


def compare(ledgers: Sequence[Ledger]) -> Comparison:
    """Ledgers side by side."""
    return Comparison(ledgers)
