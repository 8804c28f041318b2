# SPDX-License-Identifier: Apache-2.0
"""Tables on trial: how much would be resident of each; which saves most, and of what.

There is one figure: the peak resident bytes while a dry heap runs the recording, as
`spanwise ledger --at peak-resident` prints it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spanwise import _format
from spanwise.ledger.comparison import Comparison
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.optimizer.scores import Scores
from spanwise.optimizer.solver import Rules, may_follow
from spanwise.results.rows import Result, Rows, Tabular, Value
from spanwise.tables.table import STOCK, SizeClassTable

PARTIAL_SPANS, OUTSIDE_HEAP = "partial spans", "outside the heap"
"""What stays under every table: partial spans by lifetime, and memory outside of the heap."""

CAUSES = ("classes", "span lengths", PARTIAL_SPANS, "caches", "metadata", "rest")
"""What a gain is split into."""


@dataclass(frozen=True, repr=False, eq=False)
class Trial(Result, Value, Tabular):
    """How much would be resident of tables at most, of a recording or of several together.

    Attributes:
        name: of the recording, or of what was added up.
        comparison: the ledgers at that moment of the tables that are shown: the stock tables, the
            given ones and the proposed one.
        resident_bytes: the peak resident bytes by table, those of the families included.
        found: name of the table that is to beat the stock tables.
        align: what classes must be multiples of, from that size up.
        limit_bytes: what perfect packing would have resident: the highest requested bytes.
        ineligible: tables that are shown only and cannot win, and why.
    """

    name: str
    comparison: Comparison
    resident_bytes: Mapping[str, int]
    found: str
    align: int
    limit_bytes: int
    ineligible: Mapping[str, str] = field(default_factory=dict)

    @property
    def stock(self) -> str:
        """The stock table with least resident of those that are aligned as is asked for."""
        allowed = [name for name in STOCK if name not in self.ineligible]
        return min(allowed, key=lambda name: self.resident_bytes[name])

    @property
    def stock_ledger(self) -> Ledger:
        """Of the stock table that is to be beaten."""
        return self._ledger(self.stock)

    @property
    def found_ledger(self) -> Ledger:
        """Of the found table."""
        return self._ledger(self.found)

    @property
    def saved_bytes(self) -> int:
        """What is less resident under the found table than under the stock table; or below 0."""
        return self.resident_bytes[self.stock] - self.resident_bytes[self.found]

    @property
    def beats_stock(self) -> bool:
        """Whether less is resident under the found table."""
        return self.saved_bytes > 0

    def split(self) -> dict[str, int]:
        """What the found table saves, by cause; the sum is `saved_bytes`.

        Each cause is the difference between parts of both ledgers of resident bytes: classes
        (round-up), span lengths (tails, and free slots that each class would have however its
        objects lay), partial spans by lifetime (the other free slots), caches, metadata, and the
        rest (requested bytes at the two moments, large objects, free pages).
        """
        stock, found = resident_by_cause(self.stock_ledger), resident_by_cause(self.found_ledger)
        return {cause: stock[cause] - found[cause] for cause in CAUSES}

    def left(self) -> dict[str, int | None]:
        """What is left under the found table that sizes of classes do not remove.

        Partial spans by lifetime, bytes that are resident at its moment; and what the process has
        resident outside of the heap, which is None, since a simulation does not know it: `field`
        and the demo measure it.
        """
        partial = resident_by_cause(self.found_ledger)[PARTIAL_SPANS]
        return {PARTIAL_SPANS: partial, OUTSIDE_HEAP: None}

    def _ledger(self, table: str) -> Ledger:
        return next(one for one in self.comparison.ledgers if one.table == table)

    # --- other forms ---

    @property
    def array(self) -> Rows:
        """One row a table that is shown, with the columns of `Ledger.array`."""
        return self.comparison.array

    def __repr__(self) -> str:
        return _format.clipped(str(self.comparison))

    def families(self) -> dict[str, int]:
        """The peak resident bytes under tables that have no ledger here, rising."""
        shown = {one.table for one in self.comparison.ledgers}
        rest = {name: size for name, size in self.resident_bytes.items() if name not in shown}
        return dict(sorted(rest.items(), key=lambda one: one[1]))

    def verdict(self) -> str:
        """What the found table saves of the peak resident under the stock table, or loses."""
        stock, saved = self.stock, self.saved_bytes
        before = self.resident_bytes[stock]
        of = f"of the peak resident of {_format.size(before)} under {stock}"
        if saved == 0:
            return f"{self.found} saves nothing {of}"
        amount = f"{_format.size(abs(saved))} ({_format.share(abs(saved), before)})"
        return f"{self.found} {'saves' if saved > 0 else 'loses'} {amount} {of}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = (*PARTS, "held_bytes", "resident_bytes", "waste_bytes")
        return {
            "recording": self.name,
            "stock": self.stock,
            "found": self.found,
            "beats_stock": self.beats_stock,
            "saved_bytes": self.saved_bytes,
            "split": self.split(),
            "left": self.left(),
            "limit_bytes": self.limit_bytes,
            "resident_bytes": dict(self.resident_bytes),
            "ineligible": dict(self.ineligible),
            "tables": {
                ledger.table: {name: getattr(ledger, name) for name in names}
                for ledger in self.comparison.ledgers
            },
        }


def resident_by_cause(ledger: Ledger) -> dict[str, int]:
    """The resident bytes of a ledger that knows them, by CAUSES; requested ones are in the rest."""
    resident = ledger.resident
    assert resident is not None
    partial = sum(map(_partial_span_bytes, ledger.parts or (ledger,)))
    known = (
        resident.roundup_bytes,
        resident.tail_bytes + resident.free_slot_bytes - partial,
        partial,
        resident.cached_bytes,
        resident.metadata_bytes,
    )
    return dict(zip(CAUSES, (*known, resident.held_bytes - sum(known)), strict=True))


def _partial_span_bytes(ledger: Ledger) -> int:
    """Resident bytes of free slots that would not exist if objects lay in the fewest spans."""
    assert ledger.resident is not None
    rows = zip(ledger.classes, ledger.resident.classes, strict=True)
    found = 0
    for held, resident in rows:
        free = int(resident["free_slot_bytes"])
        if free:
            found += max(0, free - _packed_free_bytes(held))
    return found


def _packed_free_bytes(row: np.void) -> int:
    """Free slots of a class in as few spans as can be, less those that its caches have free."""
    spans, slots, live = (int(row[name]) for name in ("spans", "slots", "live_objects"))
    fewest = -(-live * spans // slots)  # if each span has slots / spans slots
    free = fewest * slots // spans - live
    return max(0, free * int(row["size_bytes"]) - int(row["cached_bytes"]))


def is_aligned(table: SizeClassTable, align: int) -> bool:
    """Whether every class from `align` bytes up is a multiple of it."""
    sizes = table.classes["size_bytes"]
    return not bool((sizes[sizes >= align] % align).any())


def keeps_bound(table: SizeClassTable, rules: Rules) -> bool:
    """Whether no size, seen or not, wastes more of its slot than the rules allow.

    A first class of the alignment is allowed: many mallocs have no smaller slot.
    """
    sizes = [0, *table.classes["size_bytes"].tolist()]
    pairs = itertools.pairwise(sizes)
    return all(size <= rules.align or may_follow(rules, low, size) for low, size in pairs)


def ineligible(tables: Iterable[SizeClassTable], rules: Rules) -> dict[str, str]:
    """The tables that cannot win, and why: not aligned, or too wasteful for a size not seen.

    A stock table is what must be beaten, whatever the bound on waste.
    """
    found = {}
    for table in tables:
        if not is_aligned(table, rules.align):
            found[table.name] = f"not aligned to {rules.align}"
        elif table.name not in STOCK and not keeps_bound(table, rules):
            waste = f"more than {rules.waste_percent} % of a slot"
            found[table.name] = f"which may waste {waste} on a size that was not seen"
    return found


def hold_trial(
    scores: Scores,
    shown: list[SizeClassTable],
    families: list[SizeClassTable],
    found: str,
    rules: Rules,
) -> Trial:
    """Simulates tables on recordings.

    Args:
        scores: of the recordings.
        shown: tables whose ledgers are told.
        families: tables of which only the figure is.
        found: name of the table that is to beat the stock tables.
        rules: what a table must keep to win.
    """
    every = [*shown, *families]
    resident = dict(zip((one.name for one in every), scores.of(every), strict=True))
    with_ledger = [one for one in every if one in shown or one.name == found]
    return Trial(
        ", ".join(one.name for one in scores.recordings),
        Comparison(scores.ledgers(with_ledger)),
        resident,
        found,
        rules.align,
        sum(one.summary.peak_requested_bytes for one in scores.recordings),
        ineligible(every, rules),
    )
