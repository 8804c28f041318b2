# SPDX-License-Identifier: Apache-2.0
"""Evaluation of tables on recordings: the resident bytes of each, and where a saving comes from.

The one figure is the peak resident bytes while a dry heap runs the recording, as
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
from spanwise.optimizer.solver import Rules
from spanwise.results.rows import Result, Rows, Tabular, Value
from spanwise.tables.table import STOCK, SizeClassTable

OTHER_MOMENT = "other moment"
"""The part of a saving that is no cause: the found table has its peak at another moment."""

PARTIAL_SPANS, OUTSIDE_HEAP = "partial spans", "outside the heap"
"""Causes of memory that no table removes: partial spans by lifetime, memory outside of the heap."""

CAUSES = ("classes", "span lengths", PARTIAL_SPANS, "caches", "metadata", "rest")
"""The causes of a saving."""


@dataclass(frozen=True, repr=False, eq=False)
class Evaluation(Result, Value, Tabular):
    """The peak resident bytes under several tables, of a recording or of the sum of several.

    Attributes:
        name: of the recording or recordings.
        comparison: the ledgers under the stock tables, the given ones and the proposal, all at one
            moment: when most is resident under the stock table, or under the one that was asked
            for.
        resident_bytes: the peak resident bytes by table, the families included.
        found: name of the table that competes with the stock tables.
        align: the alignment of classes of at least that size.
        limit_bytes: the highest requested bytes, which is what perfect packing needs.
        ineligible: tables that are shown but cannot win, and why.
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
        """The eligible stock table with the fewest resident bytes."""
        return best_stock(self.resident_bytes, self.ineligible)

    @property
    def stock_ledger(self) -> Ledger:
        """The ledger under the stock table."""
        return self._ledger(self.stock)

    @property
    def found_ledger(self) -> Ledger:
        """The ledger under the found table."""
        return self._ledger(self.found)

    @property
    def saved_bytes(self) -> int:
        """The resident bytes that the found table saves over the stock table; negative: a loss."""
        return self.resident_bytes[self.stock] - self.resident_bytes[self.found]

    @property
    def beats_stock(self) -> bool:
        """Whether the found table saves anything."""
        return self.saved_bytes > 0

    def split(self) -> dict[str, int]:
        """Return the saving of the found table by cause; the sum is `saved_bytes`.

        Each cause is a difference between the two ledgers of resident bytes at one moment: classes
        (round-up), span lengths (tails, and the free slots that a class has however its objects are
        placed), partial spans by lifetime (the other free slots), caches, metadata, and the rest
        (large objects, free pages). What the peaks, each at its own moment, differ from those
        ledgers is the other moment.
        """
        stock, found = resident_by_cause(self.stock_ledger), resident_by_cause(self.found_ledger)
        causes = {cause: stock[cause] - found[cause] for cause in CAUSES}
        return {**causes, OTHER_MOMENT: self.saved_bytes - sum(causes.values())}

    def left(self) -> dict[str, int | None]:
        """Return the resident bytes under the found table that no size class removes.

        These are partial spans by lifetime, and the memory outside of the heap. A simulation does
        not know the latter, so it is None; `spanwise bench` measures it.
        """
        partial = resident_by_cause(self.found_ledger)[PARTIAL_SPANS]
        return {PARTIAL_SPANS: partial, OUTSIDE_HEAP: None}

    def _ledger(self, table: str) -> Ledger:
        return next(one for one in self.comparison.ledgers if one.table == table)

    # --- other forms ---

    @property
    def array(self) -> Rows:
        """One row per ledger, with the columns of `Ledger.array`."""
        return self.comparison.array

    def __repr__(self) -> str:
        return _format.clipped(str(self.comparison))

    def families(self) -> dict[str, int]:
        """Return the peak resident bytes under tables without a ledger here, ascending."""
        shown = {one.table for one in self.comparison.ledgers}
        rest = {name: size for name, size in self.resident_bytes.items() if name not in shown}
        return dict(sorted(rest.items(), key=lambda one: one[1]))

    def verdict(self) -> str:
        """Describe the saving or loss of the found table."""
        stock, saved = self.stock, self.saved_bytes
        before = self.resident_bytes[stock]
        of = f"of the peak resident of {_format.size(before)} under {stock}"
        if saved == 0:
            return f"{self.found} saves nothing {of}"
        amount = f"{_format.size(abs(saved))} ({_format.share(abs(saved), before)})"
        return f"{self.found} {'saves' if saved > 0 else 'loses'} {amount} {of}"

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        names = (*PARTS, "held_bytes", "resident_bytes", "waste_bytes")
        return {
            "recording": self.name,
            "stock": self.stock,
            "found": self.found,
            "beats_stock": self.beats_stock,
            "saved_bytes": self.saved_bytes,
            "split": self.split(),
            "left": self.left(),
            "moment": self.comparison.when,
            "limit_bytes": self.limit_bytes,
            "resident_bytes": dict(self.resident_bytes),
            "ineligible": dict(self.ineligible),
            "tables": {
                ledger.table: {name: getattr(ledger, name) for name in names}
                for ledger in self.comparison.ledgers
            },
        }


def evaluate(
    scores: Scores,
    shown: list[SizeClassTable],
    families: list[SizeClassTable],
    found: str,
    rules: Rules,
    *,
    moment: SizeClassTable | None = None,
) -> Evaluation:
    """Simulate tables on recordings."""
    tables = [*shown, *families]
    excluded = ineligible(tables, rules)
    resident = dict(zip((one.name for one in tables), scores.of(tables), strict=True))
    with_ledger = [one for one in tables if one in shown or one.name == found]
    moment = moment or SizeClassTable.named(best_stock(resident, excluded))
    return Evaluation(
        ", ".join(one.name for one in scores.recordings),
        Comparison(scores.ledgers(with_ledger, moment)),
        resident,
        found,
        rules.align,
        sum(one.summary.peak_requested_bytes for one in scores.recordings),
        excluded,
    )


def best_stock(resident_bytes: Mapping[str, int], excluded: Mapping[str, str]) -> str:
    """The stock table with the fewest resident bytes that may win."""
    allowed = [name for name in STOCK if name not in excluded]
    return min(allowed, key=lambda name: resident_bytes[name])


# --- causes ---------------------------------------------------------------------------------------


def resident_by_cause(ledger: Ledger) -> dict[str, int]:
    """Return the resident bytes of a ledger by CAUSES; requested bytes are in the rest."""
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
    """Return the resident bytes of free slots beyond those of the fewest possible spans."""
    assert ledger.resident is not None
    found = 0
    for held, resident in zip(ledger.classes, ledger.resident.classes, strict=True):
        free = int(resident["free_slot_bytes"])
        if free:
            found += max(0, free - _packed_free_bytes(held))
    return found


def _packed_free_bytes(row: np.void) -> int:
    """Return a class's free-slot bytes if its objects were in the fewest spans, without caches."""
    spans, slots, live = (int(row[name]) for name in ("spans", "slots", "live_objects"))
    fewest = -(-live * spans // slots)  # if each span has slots / spans slots
    free = fewest * slots // spans - live
    return max(0, free * int(row["size_bytes"]) - int(row["cached_bytes"]))


# --- eligibility ----------------------------------------------------------------------------------


def is_aligned(table: SizeClassTable, align: int) -> bool:
    """Return whether every class from `align` bytes up is a multiple of it."""
    sizes = table.classes["size_bytes"]
    return not bool((sizes[sizes >= align] % align).any())


def keeps_bound(table: SizeClassTable, rules: Rules) -> bool:
    """Return whether no size, requested or not, wastes more of its slot than the rules allow.

    A first class of `align` bytes is always allowed: many mallocs have no smaller slot.
    """
    sizes = [0, *table.classes["size_bytes"].tolist()]
    pairs = itertools.pairwise(sizes)
    return all(size <= rules.align or rules.may_follow(low, size) for low, size in pairs)


def ineligible(tables: Iterable[SizeClassTable], rules: Rules) -> dict[str, str]:
    """Return the tables that cannot win, and why: unaligned, or too wasteful for an unseen size.

    The bound on waste does not apply to stock tables, which are the baseline.
    """
    found = {}
    for table in tables:
        if not is_aligned(table, rules.align):
            found[table.name] = f"not aligned to {rules.align}"
        elif table.name not in STOCK and not keeps_bound(table, rules):
            waste = f"more than {rules.waste_percent} % of a slot"
            found[table.name] = f"which may waste {waste} on an unseen size"
    return found
