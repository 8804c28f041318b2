# SPDX-License-Identifier: Apache-2.0
"""Claims of five articles about memory, and models of what they measured: append, block sizes.

`claims.json` in examples/lessons quotes the claims verbatim, in groups with a verdict and its
reason.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from typing import NamedTuple, SupportsIndex

import numpy as np

from spanwise import _format, _lib
from spanwise.errors import InvalidError
from spanwise.results.rows import Result
from spanwise.tables.table import SizeClassTable

# --- claims ---------------------------------------------------------------------------------------

VERDICTS = ("reproduced", "different", "not reproducible")

Key = tuple[str, str, str]
"""Source, case and unit: the identity of a claim."""


class Claim(NamedTuple):
    """An article's claim about one case, and our verdict."""

    source: str  # the article
    machine: str  # the article's machine
    case: str  # what was measured, or the statement
    value: float | None  # the figure; None for a statement
    unit: str  # unit of the figure, or "statement"
    verdict: str  # one of VERDICTS
    ours: float | str | None  # our figure or finding; None: none
    reason: str  # reason for the verdict
    notebook: str  # number of the notebook that shows it
    others: str  # what other implementations took here; "": none

    @property
    def key(self) -> Key:
        """The identity of the claim."""
        return (self.source, self.case, self.unit)


@functools.cache
def claims() -> tuple[Claim, ...]:
    """Return all claims with their verdicts."""
    file = resources.files("spanwise.lessons").joinpath("claims.json")
    data = json.loads(file.read_text(encoding="utf-8"))
    return tuple(
        Claim(
            group["source"],
            data["machines"][group["source"]],
            *(case, value, unit),
            *(group["verdict"], ours, group["reason"], group["notebook"], "".join(others)),
        )
        for group in data["groups"]
        for case, unit, value, ours, *others in group["rows"]
    )


def verdicts(notebook: str, counted: Mapping[tuple[str, str], float]) -> str:
    """Return the claims of a notebook as text: the article's figure, ours, verdict and reason.

    Args:
        notebook: number of the notebook.
        counted: (case, unit) -> figure that the notebook has just counted.

    Raises:
        InvalidError: the notebook has no claim, a case is not one of its claims, or a figure
            differs from the verdict's.
    """
    mine = {(claim.case, claim.unit): claim for claim in claims() if claim.notebook == notebook}
    if not mine:
        raise InvalidError(f"notebook {notebook!r} has no claim")
    for key, value in counted.items():
        if key not in mine:
            raise InvalidError(f"{key[0]!r} in {key[1]}: no claim of notebook {notebook}")
        if mine[key].ours != value:
            raise InvalidError(f"{key[0]!r}: counted {value}, but the verdict has {mine[key].ours}")
    return _text(list(mine.values()))


def _text(rows: list[Claim]) -> str:
    """Return one group of lines per verdict and reason: a heading, then a line per claim."""
    lines, reasons = [], list(dict.fromkeys((row.verdict, row.reason) for row in rows))
    for verdict, reason in reasons:
        group = [row for row in rows if (row.verdict, row.reason) == (verdict, reason)]
        lines.append(f"{verdict}: {_format.plural(len(group), 'claim')}. {reason}")
        for row in group:
            said = "" if row.value is None else f": {row.value:,.10g} {row.unit}"
            found = row.ours if isinstance(row.ours, str | None) else f"{row.ours:,.10g}"
            ours = "" if found is None else f"; here {found}"
            others = f", {row.others}" if row.others else ""
            lines.append(f"    {row.case}{said}{ours}{others}")
    return "\n".join(lines)


# --- blocks ---------------------------------------------------------------------------------------

BOOK_BYTES, POINTER_BYTES = 40, 8
"""Bytes of a struct of two strings and an int, and of a pointer, in Go on 64-bit processors."""


class Blocks(NamedTuple):
    """The blocks of one operation, as `go test -benchmem` prints them."""

    allocated_bytes: int  # bytes of all blocks, rounded up (B/op)
    allocs: int  # number of blocks (allocs/op)
    waste_bytes: int  # the part of these bytes that is round-up


def blocks(sizes: Iterable[SupportsIndex], table: SizeClassTable) -> Blocks:
    """Return the blocks for requests of these sizes.

    Args:
        sizes: bytes of each request.
        table: rounds each size up to a class, or to pages.

    Raises:
        InvalidError: a size is negative.
        TypeError: a size is not an integer.

    Example:
        blocks([33, 33, 66], SizeClassTable.go())  # Blocks(176, 3, 44)
    """
    wanted = np.array([_lib.as_index(size, "size") for size in sizes], np.uint64)
    given = int(np.asarray(table.round_up(wanted)).sum()) if len(wanted) else 0
    return Blocks(given, len(wanted), given - int(wanted.sum()))


def books(count: int, table: SizeClassTable, *, together: bool) -> Blocks:
    """Return the blocks of `count` books and a list of pointers to them (Go 101, "Memory Blocks").

    Args:
        count: number of books, 40 B each.
        table: rounds blocks up.
        together: all books are in one block; False: each has its own block.
    """
    ours = [count * BOOK_BYTES] if together else [BOOK_BYTES] * count
    return blocks([*ours, count * POINTER_BYTES], table)


# --- growth ---------------------------------------------------------------------------------------

GO_THRESHOLD = 256  # below this number of elements Go doubles


def _go(old: int, need: int) -> int:
    """Return the capacity of Go's append: the need, twice the old one, or steps of 1/4 plus 192."""
    if need > 2 * old:
        return need
    if old < GO_THRESHOLD:
        return 2 * old
    while old < need:
        old += (old + 3 * GO_THRESHOLD) // 4
    return old


GROWTH_POLICIES: dict[str, Callable[[int, int], int]] = {
    "go": _go,
    "1.5x": lambda old, need: max(need, old * 3 // 2),
    "2x": lambda old, need: max(need, old * 2),
    "golden": lambda old, need: max(need, old * 1_618_034 // 1_000_000),
    "exact": lambda old, need: need,
}
"""Name -> function from the old capacity and the need to the new capacity, in elements."""


@dataclass(frozen=True)
class Growth(Result):
    """The blocks that a growing array allocated.

    Attributes:
        policy: one of GROWTH_POLICIES.
        table: name of the table that rounded the blocks; None: no rounding.
        element_bytes: size of an element.
        length: final number of elements.
        capacities: capacity in elements after each block.
        blocks: bytes of each block, rounded up.
        copied_bytes: bytes of elements copied from one block to the next.
    """

    policy: str
    table: str | None
    element_bytes: int
    length: int
    capacities: tuple[int, ...]
    blocks: tuple[int, ...]
    copied_bytes: int

    @property
    def allocs(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all blocks together."""
        return sum(self.blocks)

    @property
    def held_bytes(self) -> int:
        """Bytes of the last block; 0 if there is none."""
        return self.blocks[-1] if self.blocks else 0

    @property
    def waste_bytes(self) -> int:
        """Bytes of the last block beyond the elements."""
        return self.held_bytes - self.length * self.element_bytes

    def to_dict(self) -> dict[str, object]:
        """Return all fields, for JSON."""
        return {
            **asdict(self),
            "allocs": self.allocs,
            "allocated_bytes": self.allocated_bytes,
            "held_bytes": self.held_bytes,
            "waste_bytes": self.waste_bytes,
        }

    def __repr__(self) -> str:
        rounded = f" in {self.table}" if self.table else ""
        taken = f"{self.allocs} blocks, {self.allocated_bytes:,} B"
        moved = f"{self.copied_bytes:,} copied, {self.waste_bytes:,} waste"
        return f"<Growth {self.policy!r}{rounded} to {self.length:,} elements: {taken}, {moved}>"


def simulate_growth(
    lengths: Iterable[SupportsIndex],
    *,
    policy: str = "go",
    element_bytes: SupportsIndex = 8,
    table: SizeClassTable | None = None,
) -> Growth:
    """Append to an empty array and return the blocks that it allocates.

    With a table, a block has the size of its class, and the array uses all of it, as in Go.

    Args:
        lengths: elements per append; `[1] * 1000` appends a thousand, one by one.
        policy: one of "go", "1.5x", "2x", "golden" and "exact".
        element_bytes: size of an element, at least 1.
        table: rounds each block up; None: blocks have the size of the policy.

    Raises:
        InvalidError: an unknown policy, a negative length, elements of 0 bytes, or an array larger
            than the address space.
        TypeError: a length is not an integer.

    Example:
        simulate_growth([2, 3, 4, 5, 3], table=SizeClassTable.go()).capacities  # (2, 6, 12, 24)
    """
    if policy not in GROWTH_POLICIES:
        raise InvalidError(f"policy {policy!r}: must be one of {', '.join(GROWTH_POLICIES)}")
    each_bytes = _lib.as_index(element_bytes, "element_bytes")
    if each_bytes == 0:
        raise InvalidError("element_bytes 0: an element has at least 1")
    length = capacity = copied = 0
    capacities, blocks = [], []
    for added in lengths:
        need = length + _lib.as_index(added, "a length")
        if need > capacity:
            wanted = GROWTH_POLICIES[policy](capacity, need) * each_bytes
            if wanted > _lib.SIZE_MAX // 2:
                raise InvalidError(f"{need} elements of {each_bytes} bytes are too many")
            block = wanted if table is None else int(table.round_up(wanted))
            copied += length * each_bytes
            capacity = block // each_bytes
            capacities.append(capacity)
            blocks.append(block)
        length = need
    name = None if table is None else table.name
    return Growth(policy, name, each_bytes, length, tuple(capacities), tuple(blocks), copied)
