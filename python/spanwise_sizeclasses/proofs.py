# SPDX-License-Identifier: Apache-2.0
"""Proofs that run before anything is written; a failure raises ProofError with a counterexample."""

from __future__ import annotations

from .model import ProofError, Row, Table, magic_of

WASTE_BOUND_PCT = 26.6
# Number of classes, and the sizes whose worst waste exceeds the bound because of alignment.
EXPECTED: dict[str, tuple[int, dict[int, float]]] = {
    "go": (67, {8: 87.5, 16: 43.75, 24: 29.24, 48: 31.52}),
    "c16": (66, {8: 87.5, 16: 43.75, 32: 46.88, 48: 31.52}),
}


def prove(table: Table) -> list[str]:
    """Run every proof that applies to the table; return one line per proof."""
    return [
        _prove_division(table),
        _prove_lookup(table),
        *_prove_tails(table),
        *_prove_bounds(table),
    ]


def _prove_division(table: Table) -> str:
    for row in table.rows:
        _prove_class_division(table, row)
    return "division by the 64-bit multiplier exact at both ends of every slot of every span"


def _prove_class_division(table: Table, row: Row) -> None:
    """Check that the high word is the slot, and that the low word detects the slot's start.

    The high word does not decrease with the offset, so both ends of each slot suffice.
    """
    magic = magic_of(row.size)
    for slot in range(row.objects + 1):
        first = slot * row.size
        end = min(first + row.size, row.span_bytes + 1)
        for offset in sorted({first, min(first + 1, end - 1), end - 1}):
            found, low = divmod(offset * magic, 1 << 64)
            if found != slot or (low < magic) != (offset == first):
                raise ProofError(
                    f"table {table.name}: class {row.cls} ({row.size} bytes): offset {offset}"
                    f" gives slot {found}, not {slot}"
                )


def _prove_lookup(table: Table) -> str:
    cls = 1
    for size in range(table.max_size + 1):
        if size > table.classes[cls - 1].size:
            cls += 1
        found = table.class_of(size)
        if found != cls:
            raise ProofError(f"table {table.name}: size {size} gives class {found}, not {cls}")
    for number, c in enumerate(table.classes, 1):
        if table.class_of(c.size) != number:
            raise ProofError(f"table {table.name}: class {number} is not the class of its own size")
    return f"look-up smallest and monotone for every size 0..{table.max_size}"


def _prove_tails(table: Table) -> list[str]:
    if table.parameters is None:
        return []
    limit = table.parameters.tail_limit
    for row in table.rows:
        if row.tail_waste > row.span_bytes * limit:
            raise ProofError(f"table {table.name}: class {row.cls}: tail above {limit} of its span")
    if table.max_size != table.parameters.max_size:
        raise ProofError(f"table {table.name}: largest class is {table.max_size}")
    if table.parameters.align == "16" and any(c.size % 16 for c in table.classes[1:]):
        raise ProofError(f"table {table.name}: a class above 8 is no multiple of 16")
    return [f"no tail above {limit} of its span"]


def _prove_bounds(table: Table) -> list[str]:
    expected = EXPECTED.get(table.name)
    if expected is None:
        return []
    count, exceptions = expected
    if len(table.classes) != count:
        raise ProofError(f"table {table.name}: {len(table.classes)} classes, expected {count}")
    above = {r.size: r.max_waste_pct for r in table.rows if r.max_waste_pct > WASTE_BOUND_PCT}
    if above != exceptions:
        raise ProofError(f"table {table.name}: worst waste above the bound is {above}")
    stated = ", ".join(f"{size} B {percent:.2f} %" for size, percent in exceptions.items())
    return [f"{count} classes; worst waste {WASTE_BOUND_PCT} % but for {stated}"]
