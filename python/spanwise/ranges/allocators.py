# SPDX-License-Identifier: Apache-2.0
"""Range allocators by trees, and the buddy system (docs/design/range.md)."""

from __future__ import annotations

from spanwise import _lib
from spanwise.errors import InvalidError
from spanwise.ranges.handle import RangeBase, options_of

BACKENDS = ("wide", "single", "two")
"""One B+-tree, one treap, two treaps; in the order of sw_range_backend."""

PLACEMENTS = ("default", "first", "best", "next", "worst")
"""Which hole a request takes; in the order of sw_range_placement."""

_BUDDY = len(BACKENDS)


def _index(value: str, what: str, known: tuple[str, ...]) -> int:
    if value not in known:
        raise InvalidError(f"{what} {value!r}: must be one of {', '.join(known)}")
    return known.index(value)


class RangeAllocator(RangeBase):
    """Says which parts of [0, size) are taken. Any part of these can be freed, in any order.

    It owns no memory: offsets are places in a buffer, a file, or whatever the caller has.

    Example:
        with RangeAllocator(1 << 20) as ranges:
            at = ranges.alloc(1000)
            ranges.free(at + 100, 200)
    """

    def __init__(
        self, size: int, *, backend: str = "wide", placement: str = "default", locked: bool = False
    ) -> None:
        """Makes an allocator of which all is free.

        Args:
            size: 1 to 2^62.
            backend: one of BACKENDS. All serve whatever fits; "two" alone has best fit.
            placement: one of PLACEMENTS; "default" is "best" for "two", else "first".
            locked: every thread may call, not its owner alone.

        Raises:
            InvalidError: the size, backend or placement is none of these.
            UnsupportedError: the back end does not have the placement.
        """
        self._backend = backend
        options = options_of(
            backend=_index(backend, "backend", BACKENDS),
            placement=_index(placement, "placement", PLACEMENTS),
            locked=int(locked),
        )
        super().__init__(size, options)

    @property
    def backend(self) -> str:
        """Name of the structure that keeps the holes."""
        return self._backend

    def __repr__(self) -> str:
        return f"<RangeAllocator {self._backend!r}, size {self._figures()}>"


class BuddyAllocator(RangeBase):
    """Blocks of a unit times powers of two (Knowlton 1965).

    `free` takes back what one request got, with the size that was asked for.
    """

    def __init__(
        self, size: int, *, unit: int = 1024, orders: int = 0, locked: bool = False
    ) -> None:
        """Makes an allocator of which all is free.

        Args:
            size: 1 to 2^62; the last size % unit are never used.
            unit: the smallest block, a power of two, at most size.
            orders: the largest block is unit << (orders - 1); 0: as many as fit.
            locked: every thread may call, not its owner alone.

        Raises:
            InvalidError: one of them is not within these limits.
            OutOfMemoryError: no memory for the blocks' records, 9.3 bytes a unit.
        """
        self._unit = _lib.as_index(unit, "unit")
        options = options_of(
            backend=_BUDDY,
            unit=self._unit,
            orders=_lib.as_index(orders, "orders", (1 << 32) - 1),
            locked=int(locked),
        )
        super().__init__(size, options)

    @property
    def unit(self) -> int:
        """The smallest block."""
        return self._unit

    def __repr__(self) -> str:
        return f"<BuddyAllocator unit {self._unit:,}, size {self._figures()}>"
