# SPDX-License-Identifier: Apache-2.0
"""How an array grows that is appended to: policies, and what a size-class table makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import SupportsIndex

from spanwise import _lib
from spanwise.errors import InvalidError
from spanwise.results.values import Result
from spanwise.tables.table import SizeClassTable

GO_THRESHOLD = 256  # elements, below which Go doubles


def _go(old: int, need: int) -> int:
    """Go's append: the need, twice the capacity, or repeated growth by a quarter plus 192."""
    if need > 2 * old:
        return need
    if old < GO_THRESHOLD:
        return 2 * old
    while old < need:
        old += (old + 3 * GO_THRESHOLD) // 4
    return old


POLICIES: dict[str, Callable[[int, int], int]] = {
    "go": _go,
    "1.5x": lambda old, need: max(need, old * 3 // 2),
    "2x": lambda old, need: max(need, old * 2),
    "golden": lambda old, need: max(need, old * 1_618_034 // 1_000_000),
    "exact": lambda old, need: need,
}
"""Name -> new capacity in elements, of the old one and of what is needed."""


@dataclass(frozen=True)
class Growth(Result):
    """What an array took while it grew.

    Attributes:
        policy: one of POLICIES.
        table: name of the table that rounded its blocks; None: none did.
        element_bytes: of one element.
        length: elements at the end.
        capacities: in elements, after each block that it took.
        blocks: bytes of each block, rounded up.
        copied_bytes: of elements that were moved from a block to the next one.
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
        """Blocks that it took."""
        return len(self.blocks)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all blocks together."""
        return sum(self.blocks)

    @property
    def held_bytes(self) -> int:
        """Bytes of the last block; 0: it took none."""
        return self.blocks[-1] if self.blocks else 0

    @property
    def waste_bytes(self) -> int:
        """Of the last block, beyond the elements."""
        return self.held_bytes - self.length * self.element_bytes

    def to_dict(self) -> dict[str, object]:
        """All of it, for JSON."""
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
    """Appends to an empty array, and tells which blocks it takes.

    A block of a table has the size of its class, and the array uses all of it, as Go's does.

    Args:
        lengths: elements of each append; `[1] * 1000` adds a thousand, one by one.
        policy: one of "go", "1.5x", "2x", "golden" and "exact".
        element_bytes: of one element, at least 1.
        table: rounds each block up; None: blocks have the size that the policy says.

    Raises:
        InvalidError: an unknown policy, a negative length, elements of 0 bytes, or an array that
            is larger than any address space.
        TypeError: a length is no integer.

    Example:
        simulate_growth([2, 3, 4, 5, 3], table=SizeClassTable.go()).capacities  # (2, 6, 12, 24)
    """
    if policy not in POLICIES:
        raise InvalidError(f"policy {policy!r}: must be one of {', '.join(POLICIES)}")
    each_bytes = _lib.as_index(element_bytes, "element_bytes")
    if each_bytes == 0:
        raise InvalidError("element_bytes 0: an element has at least 1")
    length = capacity = copied = 0
    capacities, blocks = [], []
    for added in lengths:
        need = length + _lib.as_index(added, "a length")
        if need > capacity:
            wanted = POLICIES[policy](capacity, need) * each_bytes
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
