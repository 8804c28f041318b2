# SPDX-License-Identifier: Apache-2.0
"""Range allocators by trees, and the buddy system (docs/design/range.md)."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import check, lib
from spanwise._owner import Owner
from spanwise.errors import StateError
from spanwise.results.rows import Result

HOLE_DTYPE = _lib.dtype_of("sw_range_hole")
"""A hole: fields start and size."""

NONE = 2**64 - 1  # SW_RANGE_NONE
SIZE_MAX = 1 << 62  # SW_RANGE_SIZE_MAX
BLOCK = 4096  # holes that are read in one call


BACKENDS = ("wide", "single", "two")
"""One B+-tree, one treap, two treaps; in the order of sw_range_backend."""

PLACEMENTS = ("default", "first", "best", "next", "worst")
"""Which hole a request takes; in the order of sw_range_placement."""

_BUDDY = len(BACKENDS)


@dataclass(frozen=True)
class RangeStats(Result):
    """Figures of a range allocator.

    Attributes:
        size: of the range.
        free_size: sum of its holes.
        holes: how many; of a buddy 0, because it does not count them.
        allocs: requests that were served.
        frees: calls that freed something.
        refused: requests for which no hole was large enough.
        waste: taken beyond what was asked for: a buddy's rounding.
        tail: of a buddy: size % unit, which is never used.
        held_bytes: memory of the allocator's own data.
    """

    size: int
    free_size: int
    holes: int
    allocs: int
    frees: int
    refused: int
    waste: int
    tail: int
    held_bytes: int


def _destroy(c_range: Any) -> None:
    """Ends a range without references, in the thread in which Python's collector runs."""
    check(lib.sw_range_adopt(c_range))
    lib.sw_range_destroy(c_range)


class RangeBase(Owner):
    """Owns one sw_range.

    The C library checks the thread: a call raises OwnerError in a thread that neither made the
    range nor adopted it last. After `close` every call raises StateError.
    """

    def __init__(self, size: int, **options: int) -> None:
        self._size = _lib.as_index(size, "size")
        given = _lib.options_of("sw_range_options", **options)
        super().__init__(_lib.output_of(lib.sw_range_create, self._size, given), _destroy)

    def _refuse_close(self) -> None:
        self._stats()  # refuses another thread

    def _named(self) -> str:
        return f"{type(self).__name__} of size {self._size}"

    # --- calls ---

    def alloc(self, size: int) -> int:
        """Takes `size` and returns its offset.

        Raises:
            OutOfMemoryError: no hole is large enough.
            InvalidError: size is 0 or negative.
        """
        number = _lib.as_index(size, "size")
        with self._lock:
            offset = int(lib.sw_range_alloc(self._open(), number))
            if offset == NONE:
                check(lib.sw_last_error().status)
            return offset

    def find(self, size: int) -> int | None:
        """Where `alloc` would take `size` now; None: nothing fits.

        Raises:
            InvalidError: size is 0 or negative.
        """
        number = _lib.as_index(size, "size")
        with self._lock:
            lib.sw_clear_error()
            offset = int(lib.sw_range_find(self._open(), number))
            if offset == NONE:
                check(lib.sw_last_error().status)
                return None
            return offset

    def free(self, offset: int, size: int) -> None:
        """Frees [offset, offset + size).

        Raises:
            OverlapError: it is free already, wholly or in part.
            InvalidError: it is empty or not inside the range; of a buddy, not what one request got.
        """
        where, number = _lib.as_index(offset, "offset"), _lib.as_index(size, "size")
        self._checked(lib.sw_range_free, where, number)

    def scope(self, size: int) -> RangeScope:
        """`with allocator.scope(100) as offset:` takes 100 and frees them at the end.

        Raises:
            InvalidError: size is negative. Entering raises what `alloc` does.
        """
        return RangeScope(self, _lib.as_index(size, "size"))

    def reset(self) -> None:
        """Frees everything."""
        self._checked(lib.sw_range_reset)

    def adopt(self) -> None:
        """Makes the calling thread the owner."""
        self._checked(lib.sw_range_adopt)

    def verify(self) -> None:
        """Compares the structure with itself.

        Raises:
            SpanwiseError: a rule does not hold; the message has it.
        """
        self._checked(lib.sw_range_verify)

    # --- figures ---

    def _stats(self) -> Any:
        return self._output(lib.sw_range_get_stats)

    def stats(self) -> RangeStats:
        """All figures at one moment."""
        return RangeStats(**_lib.struct_dict(self._stats()))

    @property
    def size(self) -> int:
        """The range is [0, size)."""
        return self._size

    @property
    def free_size(self) -> int:
        """Sum of the holes."""
        return int(self._stats().free_size)

    @property
    def largest_hole(self) -> int:
        """The largest size for which `find` finds something; 0: the range is full."""
        with self._lock:
            self._stats()  # refuses another thread
            return int(lib.sw_range_largest_hole(self._open()))

    def holes(self) -> NDArray[np.void]:
        """What is free, in the order of addresses: fields start and size, shape (holes,)."""
        parts: list[NDArray[np.void]] = []
        start = 0
        with self._lock:
            self._stats()  # refuses another thread
            while True:
                part = np.empty(BLOCK, HOLE_DTYPE)
                out = _lib.pointer(part, "sw_range_hole *")
                count = int(lib.sw_range_holes(self._open(), start, out, BLOCK))
                parts.append(part[:count])
                if count < BLOCK:
                    return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)
                start = int(part["start"][-1] + part["size"][-1])

    def _figures(self) -> str:
        """For repr: of a closed range, or of another thread's, as much as can be said."""
        if self._c is None:
            return f"{self._size:,}, closed"
        try:
            return f"{self._size:,}, {self.free_size:,} free"
        except StateError:
            return f"{self._size:,}, of another thread"


class RangeScope(threading.local):
    """A part of a range that is taken where a with statement begins, and freed where it ends.

    Threads may share one: its fields are each thread's own.
    """

    def __init__(self, owner: RangeBase, size: int) -> None:
        self._owner = owner
        self._size = size
        self._offsets: list[int] = []

    def __enter__(self) -> int:
        self._offsets.append(self._owner.alloc(self._size))
        return self._offsets[-1]

    def __exit__(self, *error: object) -> None:
        self._owner.free(self._offsets.pop(), self._size)


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
        """Makes an allocator whose whole range is free.

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
        super().__init__(
            size,
            backend=_lib.as_choice(backend, "backend", BACKENDS),
            placement=_lib.as_choice(placement, "placement", PLACEMENTS),
            locked=int(locked),
        )

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
        """Makes an allocator whose whole range is free.

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
        super().__init__(
            size,
            backend=_BUDDY,
            unit=self._unit,
            orders=_lib.as_index(orders, "orders", (1 << 32) - 1),
            locked=int(locked),
        )

    @property
    def unit(self) -> int:
        """The smallest block."""
        return self._unit

    def __repr__(self) -> str:
        return f"<BuddyAllocator unit {self._unit:,}, size {self._figures()}>"
