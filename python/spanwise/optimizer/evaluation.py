# SPDX-License-Identifier: Apache-2.0
"""Evaluation of tables on recordings: the resident bytes of each, and where a saving comes from.

The one figure is the peak resident bytes while a dry heap runs the recording, as
`spanwise ledger --at peak-resident` prints it.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spanwise import _format, errors
from spanwise.ledger.ledger import Comparison, Ledger
from spanwise.ledger.parts import PARTS
from spanwise.optimizer.local_search import Scores
from spanwise.optimizer.solver import Rules
from spanwise.recordings.recording import Recording
from spanwise.results.jobs import Step, no_step
from spanwise.results.rows import Result, Rows, Tabular, Value, as_rows
from spanwise.tables.table import STOCK, SizeClassTable

OTHER_MOMENT = "other moment"
"""The part of a saving that is no cause: the found table has its peak at another moment."""

PARTIAL_SPANS, OUTSIDE_HEAP = "partial spans", "outside the heap"
"""Causes of memory that no table removes: partial spans by lifetime, memory outside the heap."""

CAUSES = ("classes", "span lengths", PARTIAL_SPANS, "caches", "metadata", "rest")
"""The causes of a saving."""


@dataclass(frozen=True, repr=False, eq=False)
class Evaluation(Result, Value, Tabular):
    """The peak resident bytes under several tables, of a recording or of the sum of several.

    Attributes:
        name: of the recording or recordings.
        comparison: the ledgers under the stock tables, the given ones and the proposal, all at one
            moment: the peak resident under the stock table, or under the one that was asked
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
        (large objects, free pages). The difference between those ledgers and the peaks, each at its
        own moment, is the other moment.
        """
        stock, found = resident_by_cause(self.stock_ledger), resident_by_cause(self.found_ledger)
        causes = {cause: stock[cause] - found[cause] for cause in CAUSES}
        return {**causes, OTHER_MOMENT: self.saved_bytes - sum(causes.values())}

    def left(self) -> dict[str, int | None]:
        """Return the resident bytes under the found table that no size class removes.

        These are partial spans by lifetime, and the memory outside the heap. A simulation does
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
    """Return whether no size, requested or not, wastes more of its slot than the rules allow."""
    sizes = [0, *table.classes["size_bytes"].tolist()]
    pairs = itertools.pairwise(sizes)
    return all(size <= rules.align or rules.may_follow(low, size) for low, size in pairs)


def ineligible(tables: Iterable[SizeClassTable], rules: Rules) -> dict[str, str]:
    """Return the tables that cannot win, and why: unaligned, or too wasteful for an unseen size."""
    found = {}
    for table in tables:
        if not is_aligned(table, rules.align):
            found[table.name] = f"not aligned to {rules.align}"
        elif table.name not in STOCK and not keeps_bound(table, rules):
            waste = f"more than {rules.waste_percent} % of a slot"
            found[table.name] = f"which may waste {waste} on an unseen size"
    return found


# --- cross-validation -----------------------------------------------------------------------------
#
# Method: M. Stone, "Cross-validatory choice and assessment of statistical predictions", Journal of
# the Royal Statistical Society B 36, 1974. Each part is held out in turn. The whole choice (search,
# evaluation, verdict) is made on the others and evaluated on that part. The interval is that of a
# median by order statistics: it spans all n values with a probability of 1 - 2^(1 - n)
# (H. A. David and H. N. Nagaraja, "Order statistics", 2003, 7.1).


FOLD_DTYPE = np.dtype(
    [
        ("fold", np.uint32),
        ("events", np.uint64),
        ("stock_bytes", np.uint64),
        ("chosen_bytes", np.uint64),
        ("saved_bytes", np.int64),
        ("saved_percent", np.float64),
        ("stock_chosen", np.bool_),
    ]
)
"""A held-out part: its operations, the peak resident bytes under the stock table and under the
table that was chosen without the part, the difference, whether the stock table was chosen."""

PARTS_MAX = 5
"""The parts into which several recordings are grouped by default: the range of five values is a
94 % interval of their median."""

Choice = tuple[SizeClassTable, SizeClassTable]
"""The best stock table for some recordings, and the table to use, which may be the same."""


def leave_out(
    parts: Sequence[Sequence[Recording]],
    choose: Callable[[list[Recording]], Choice | None],
    progress: Step = no_step,
) -> Rows | None:
    """Evaluate on each part the choice that was made on the others."""
    found = np.zeros(len(parts), FOLD_DTYPE)
    for number, (part, others) in enumerate(split(parts)):
        choice = choose(others)
        if choice is None:
            return None
        stock, chosen = Scores(part, progress).of(choice)
        saved = stock - chosen
        percent = 100 * saved / stock if stock else 0.0
        same = choice[0] == choice[1]
        found[number] = (number, sum(map(len, part)), stock, chosen, saved, percent, same)
    return as_rows(found)


def split(
    parts: Sequence[Sequence[Recording]],
) -> Iterator[tuple[Sequence[Recording], list[Recording]]]:
    """Yield each part with the recordings of all others."""
    for part in parts:
        yield part, [one for other in parts if other is not part for one in other]


def grouped(recordings: Sequence[Recording]) -> list[list[Recording]]:
    """Group the recordings into at most PARTS_MAX parts of about equal size."""
    count = min(len(recordings), PARTS_MAX)
    return [list(recordings[first::count]) for first in range(count)]


def parts_of(recordings: list[Recording], folds: int) -> list[Recording]:
    """Return the recordings themselves, or `folds` parts of a single one."""
    if len(recordings) > 1:
        return recordings
    if folds < 2:
        raise errors.InvalidError(f"folds {folds}: must be at least 2")
    if not recordings:
        raise errors.InvalidError("no recording to fit a table to; give at least one")
    (whole,) = recordings
    count = len(whole)
    if count < folds:
        operations = _format.plural(count, "operation")
        raise errors.InvalidError(
            f"{whole.name}: {operations} cannot be cut into {folds} parts; give fewer folds"
        )
    edges = [count * number // folds for number in range(folds + 1)]
    return [whole[first:last] for first, last in itertools.pairwise(edges)]


def median_percent(rows: Rows) -> float:
    """Return the median saving over the parts, in percent of the stock table's bytes."""
    return float(statistics.median(rows["saved_percent"].tolist()))


def describe_folds(rows: Rows) -> str:
    """Describe the median saving and its interval."""
    saved = sorted(rows["saved_percent"].tolist())
    kept = int(rows["stock_chosen"].sum())
    probability = 100 * (1 - 2.0 ** (1 - len(saved)))
    text = (
        f"cross-validation over {len(saved)} parts: the chosen table saves"
        f" {median_percent(rows):.1f} % of the resident bytes of a held-out part (median;"
        f" {saved[0]:.1f} to {saved[-1]:.1f} %, the {probability:.0f} % interval)"
    )
    return f"{text}; {kept} of the choices kept the stock table" if kept else text
