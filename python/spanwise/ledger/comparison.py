# SPDX-License-Identifier: Apache-2.0
"""Compare ledgers of several tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spanwise import _format, _lib, errors
from spanwise.ledger.ledger import Ledger, ledger_rows
from spanwise.ledger.parts import PARTS, PEAK_RESIDENT, at_moment
from spanwise.results.rows import Result, Rows, Tabular, Value, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(Result, Value, Tabular):
    """Ledgers of the same operations under several tables.

    Attributes:
        ledgers: the ledgers, in the order given; at least one.
    """

    ledgers: Sequence[Ledger]

    def __post_init__(self) -> None:
        if isinstance(self.ledgers, Ledger):
            raise TypeError("ledgers must be a list, not Ledger; for a single one pass [it]")
        for one in _lib.as_iterable(self.ledgers, "ledgers"):
            _lib.check_type(one, Ledger, "each of ledgers")
        if not self.ledgers:
            raise errors.InvalidError("nothing to compare; give at least one ledger")
        object.__setattr__(self, "ledgers", tuple(self.ledgers))

    @property
    def judged_by(self) -> str:
        """The field that ranks: the peak resident bytes if all ledgers know them, else held bytes.

        Real heaps do not know peak resident bytes, which need a simulation that records the
        written pages.
        """
        known = all(ledger.peak_resident_bytes is not None for ledger in self.ledgers)
        return "peak_resident_bytes" if known else "held_bytes"

    def best(self, by: str | None = None) -> Ledger:
        """Return the first ledger with the least value of a field (None: `judged_by`).

        Raises:
            InvalidError: a ledger has no such number.
        """
        values = self._values(self.judged_by if by is None else by)
        return self.ledgers[values.index(min(values))]

    def _values(self, by: str) -> list[Any]:
        values: list[Any] = [getattr(ledger, by, None) for ledger in self.ledgers]
        if not all(isinstance(value, int | float) for value in values):
            raise errors.InvalidError(f"field {by!r} is not a number of a ledger; use held_bytes")
        return values

    @property
    def array(self) -> Rows:
        """One row per ledger, with the columns of `Ledger.array`."""
        return ledger_rows(self.ledgers)

    @property
    def text_head(self) -> tuple[str, ...]:
        """Titles of `text_rows`."""
        return ("", *(ledger.table for ledger in self.ledgers))

    @property
    def when(self) -> str:
        """The moment of the ledgers, for titles: "at peak-resident under go"."""
        moments = {ledger.at: None for ledger in self.ledgers}
        others = [at for at in moments if at != PEAK_RESIDENT]
        if others:
            return at_moment(others[0])
        own = len(self.ledgers) > 1
        return f"each at its own {PEAK_RESIDENT}" if own else f"at {PEAK_RESIDENT}"

    def text_rows(self) -> list[tuple[str, ...]]:
        """Return one row per part, with one column per ledger; the last is of the whole run."""
        sums = {"resident_bytes": "resident", "held_bytes": "held", "waste_bytes": "waste"}
        if any(ledger.resident_bytes is None for ledger in self.ledgers):
            del sums["resident_bytes"]
        rows: list[tuple[str, ...]] = [
            (title, *(_format.number(getattr(ledger, name)) for ledger in self.ledgers))
            for name, title in (PARTS | sums).items()
        ]
        shares = (_format.share(one.waste_bytes, one.held_bytes) for one in self.ledgers)
        rows.append(("waste of held", *shares))
        if self.judged_by == "peak_resident_bytes":
            most = (_format.number(int(one.peak_resident_bytes or 0)) for one in self.ledgers)
            rows.append(("peak resident, own moment", *most))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "best": self.best().table,
            "judged_by": self.judged_by,
            "ledgers": [ledger.to_dict() for ledger in self.ledgers],
        }

    def __str__(self) -> str:
        rows: list[Sequence[str]] = list(self.text_rows())
        rows.insert(len(PARTS), ())
        first = self.ledgers[0]
        what = f"{first.source} " if first.source else ""
        table = _format.table(rows, self.text_head, indent="  ")
        lines = [f"{what}{self.when}, bytes", table, first.remark, self.verdict()]
        return "\n".join(line for line in lines if line)

    def __repr__(self) -> str:
        return _format.clipped(str(self))

    def _repr_html_(self) -> str:
        return _format.html_table(self.text_rows(), self.text_head, self.verdict())

    def verdict(self) -> str:
        """Say in one sentence which table has the least peak resident, and what it holds."""
        by = self.judged_by
        ranked = sorted(self.ledgers, key=lambda ledger: int(getattr(ledger, by)))
        said = f"{ranked[0].table} {_had(ranked[0], by)}"
        if len(ranked) == 1:
            return f"{said}."
        other = ranked[1]
        saved, before = _saved(ranked[0], other, by), int(getattr(other, by))
        if saved == 0:
            return f"{said}, and {other.table} as much."
        said += f", the least: {_format.size(saved)} ({_format.share(saved, before)}) less than"
        return f"{said} {other.table}{_held_beside(ranked[0], other, by, self.when)}."

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the ledgers as stacked bars; returns the matplotlib Axes."""
        return draw("ledgers", self.ledgers, ax=ax)


def _saved(best: Ledger, other: Ledger, by: str) -> int:
    return int(getattr(other, by)) - int(getattr(best, by))


def _had(ledger: Ledger, by: str) -> str:
    amount = _format.size(getattr(ledger, by))
    return f"holds {amount}" if by == "held_bytes" else f"has a peak resident of {amount}"


def _held_beside(best: Ledger, other: Ledger, by: str, when: str) -> str:
    """Describe the held bytes of the ledgers, if another field ranks them."""
    if by == "held_bytes":
        return ""
    saved = _saved(best, other, "held_bytes")
    amount = f"{_format.size(abs(saved))} {'less' if saved > 0 else 'more'}" if saved else "as much"
    return f"; it holds {amount}{',' if when.startswith('each') else ''} {when}"
