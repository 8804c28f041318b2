# SPDX-License-Identifier: Apache-2.0
"""Tables on trial: what each would hold at the peak of a recording; whether one beats the stock.

Every figure is that of a dry heap which runs the recording, as `spanwise ledger` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spanwise import _format
from spanwise.ledger.comparison import Comparison, resident_clause
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.optimizer.frontier import peak_ledger
from spanwise.recordings.recording import Recording
from spanwise.results.progress import Step
from spanwise.results.rows import Rows, Tabular
from spanwise.results.values import Result, Value
from spanwise.tables.table import STOCK, SizeClassTable


@dataclass(frozen=True, repr=False, eq=False)
class Trial(Result, Value, Tabular):
    """What tables would hold at the peak of live bytes of a recording, or of several together.

    Attributes:
        name: of the recording, or of what was added up.
        comparison: the ledger of each table.
        found: name of the table that is to beat the stock tables.
        align: what classes must be multiples of, from that size up.
        barred: names of tables that are shown only, since their classes are not so aligned.
    """

    name: str
    comparison: Comparison
    found: str
    align: int
    barred: tuple[str, ...] = ()

    @property
    def stock_ledger(self) -> Ledger:
        """Of the stock table that holds least among those that are aligned as is asked for."""
        allowed = [name for name in STOCK if name not in self.barred]
        return min((self._ledger(name) for name in allowed), key=lambda one: one.held_bytes)

    @property
    def found_ledger(self) -> Ledger:
        """Of the found table."""
        return self._ledger(self.found)

    @property
    def held_bytes(self) -> dict[str, int]:
        """Held bytes by table."""
        return {ledger.table: ledger.held_bytes for ledger in self.comparison.ledgers}

    @property
    def saved_bytes(self) -> int:
        """What the found table holds less than the stock table; negative where it loses."""
        return self.stock_ledger.held_bytes - self.found_ledger.held_bytes

    @property
    def beats_stock(self) -> bool:
        """Whether the found table holds less."""
        return self.saved_bytes > 0

    def _ledger(self, table: str) -> Ledger:
        return next(one for one in self.comparison.ledgers if one.table == table)

    # --- other forms ---

    @property
    def array(self) -> Rows:
        """One row a table, with the columns of `Ledger.array`."""
        return self.comparison.array

    def __repr__(self) -> str:
        return _format.clipped(str(self.comparison))

    def verdict(self) -> str:
        """Which table holds least, without a full stop."""
        stock, found, least = self.stock_ledger, self.found_ledger, self.comparison.best()
        # This is told when a barred table would hold less than all that may win.
        barred = least.table in self.barred
        scope = f"of the tables aligned to {self.align}, " if barred else ""
        aside = f" ({least.table}, not so aligned, would hold {_format.size(least.held_bytes)})"
        if self.beats_stock:
            text = (
                f"{found.table} holds least: {_format.size(found.held_bytes)},"
                f" {_format.size(self.saved_bytes)}"
                f" ({_format.share(self.saved_bytes, stock.held_bytes)}) less than {stock.table}"
                f"{resident_clause(found, stock)}"
            )
        else:
            text = (
                f"{stock.table} stays: it holds {_format.size(stock.held_bytes)};"
                f" {found.table} would hold {self._beyond()}"
            )
        return scope + text + (aside if barred else "")

    def held_out_verdict(self) -> str:
        """The same of a recording that was held out, to follow `verdict`."""
        stock, found = self.stock_ledger, self.found_ledger
        if self.saved_bytes == 0:
            return f"on {self.name}, held out, {found.table} and {stock.table} hold equally much"
        if self.beats_stock:
            return (
                f"on {self.name}, held out, {found.table} holds"
                f" {_format.size(found.held_bytes)}, {_format.size(self.saved_bytes)}"
                f" ({_format.share(self.saved_bytes, stock.held_bytes)}) less than {stock.table}"
                f"{resident_clause(found, stock)}"
            )
        return (
            f"on {self.name}, held out, {found.table} loses: {stock.table} holds"
            f" {_format.size(stock.held_bytes)}, {found.table} would hold {self._beyond()}"
        )

    def _beyond(self) -> str:
        """What the found table would hold, where that is no less than the stock table."""
        if self.saved_bytes == 0:
            return "as much"
        held = _format.size(self.found_ledger.held_bytes)
        return f"{held}, {_format.size(-self.saved_bytes)} above that"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = (*PARTS, "held_bytes", "resident_bytes", "waste_bytes")
        return {
            "recording": self.name,
            "stock": self.stock_ledger.table,
            "found": self.found,
            "beats_stock": self.beats_stock,
            "saved_bytes": self.saved_bytes,
            "barred": list(self.barred),
            "tables": {
                ledger.table: {name: getattr(ledger, name) for name in names}
                for ledger in self.comparison.ledgers
            },
        }


def is_aligned(table: SizeClassTable, align: int) -> bool:
    """Whether every class from `align` bytes up is a multiple of it."""
    sizes = table.classes["size_bytes"]
    return not bool((sizes[sizes >= align] % align).any())


def barred(tables: Iterable[SizeClassTable], align: int) -> tuple[str, ...]:
    """The names of the tables that are not aligned as asked for, and so cannot win."""
    return tuple(table.name for table in tables if not is_aligned(table, align))


def simulate(
    recordings: Sequence[Recording], tables: Iterable[SizeClassTable], progress: Step | None
) -> list[Ledger]:
    """The ledger of each table at the peaks of recordings, added up."""
    return [peak_ledger(recordings, table, progress=progress, resident=True) for table in tables]


def work(recordings: Iterable[Recording], tables: int) -> int:
    """Operations that so many tables' simulation runs, for a progress bar."""
    return tables * sum(one.summary.peak_op for one in recordings)
