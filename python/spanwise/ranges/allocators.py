# SPDX-License-Identifier: Apache-2.0
"""Range allocators: tree-based ones and a buddy allocator (docs/design/range.md)."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import check, lib
from spanwise._owner import Owner
from spanwise.errors import StateError
from spanwise.results.rows import Result, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOLE_DTYPE = _lib.dtype_of("sw_range_hole")
"""A hole, with the fields start and size."""

NONE = 2**64 - 1  # SW_RANGE_NONE
SIZE_MAX = 1 << 62  # SW_RANGE_SIZE_MAX
BLOCK = 4096  # holes read per call


BACKENDS = ("btree", "treap", "two-treaps", "buddy")
"""A B+-tree, one treap, two treaps, the buddy system; in the order of sw_range_backend."""

_AVL = {"avl": "two-treaps"}
"""Another name: two treaps have the operations of two AVL trees, by start and by size."""

PLACEMENTS = ("default", "first", "best", "next", "worst")
"""Which hole serves a request; in the order of sw_range_placement."""

_BUDDY = BACKENDS.index("buddy")


def backend_number(name: str) -> int:
    """Return the number of a back end; raise InvalidError if there is none of the name."""
    return _lib.as_choice(_AVL.get(name, name), "backend", BACKENDS)


@dataclass(frozen=True)
class RangeStats(Result):
    """The counters of a range allocator.

    Attributes:
        size: size of the range.
        free_size: sum of the holes.
        holes: number of holes; 0 for a buddy allocator, which does not keep that count: use
            len(ranges.holes()).
        allocs: requests that were served.
        frees: calls that freed something.
        refused: requests for which no hole was large enough.
        waste: allocated beyond the requested sizes: the rounding of a buddy allocator.
        tail: size % unit, which a buddy allocator never uses.
        held_bytes: memory of the allocator's metadata.
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
    """Destroy an unreferenced range, in the thread in which Python's collector runs."""
    check(lib.sw_range_adopt(c_range))
    lib.sw_range_destroy(c_range)


class RangeBase(Owner):
    """Owns one sw_range.

    The C library checks the thread: a call raises OwnerError unless its thread created the range,
    or was the last to adopt it. After `close`, every call raises StateError.
    """

    def __init__(self, size: int, **options: int) -> None:
        self._size = _lib.as_index(size, "size", SIZE_MAX, least=1)
        given = _lib.options_of("sw_range_options", **options)
        super().__init__(_lib.output_of(lib.sw_range_create, self._size, given), _destroy)

    def _refuse_close(self) -> None:
        self._stats()  # raises in another thread

    def _named(self) -> str:
        return f"{type(self).__name__} of size {self._size}"

    # --- calls ---

    def alloc(self, size: int) -> int:
        """Allocate `size` and return its offset.

        Raises:
            OutOfMemoryError: no hole is large enough.
            InvalidError: size is 0 or negative.
        """
        number = _lib.as_index(size, "size", least=1)
        with self._lock:
            offset = int(lib.sw_range_alloc(self._open(), number))
            if offset == NONE:
                check(lib.sw_last_error().status)
            return offset

    def find(self, size: int) -> int | None:
        """Return the offset that `alloc` would return now; None if nothing fits.

        Raises:
            InvalidError: size is 0 or negative.
        """
        number = _lib.as_index(size, "size", least=1)
        with self._lock:
            lib.sw_clear_error()
            offset = int(lib.sw_range_find(self._open(), number))
            if offset == NONE:
                check(lib.sw_last_error().status)
                return None
            return offset

    def free(self, offset: int, size: int) -> None:
        """Free [offset, offset + size).

        Raises:
            OverlapError: a part of it is already free.
            InvalidError: it is empty, outside the range or, with buddies, not one allocation.
        """
        where, number = _lib.as_index(offset, "offset"), _lib.as_index(size, "size", least=1)
        self._checked(lib.sw_range_free, where, number)

    def scope(self, size: int) -> RangeScope:
        """Return a context manager that holds an allocation: `with a.scope(100) as offset:`.

        Raises:
            InvalidError: size is 0 or negative. Entering raises the other errors of `alloc`.
        """
        return RangeScope(self, _lib.as_index(size, "size", least=1))

    def reset(self) -> None:
        """Free everything."""
        self._checked(lib.sw_range_reset)

    def adopt(self) -> None:
        """Make the calling thread the owner."""
        self._checked(lib.sw_range_adopt)

    def verify(self) -> None:
        """Check all invariants.

        Raises:
            SpanwiseError: an invariant is violated; the message names it.
        """
        self._checked(lib.sw_range_verify)

    # --- figures ---

    def _stats(self) -> Any:
        return self._output(lib.sw_range_get_stats)

    def stats(self) -> RangeStats:
        """Return the counters: holes, requests that were served and refused, rounding.

        >>> with RangeAllocator(100) as ranges:
        ...     offset = ranges.alloc(30)
        ...     ranges.stats().allocs, ranges.stats().refused, ranges.stats().free_size
        (1, 0, 70)
        """
        return RangeStats(**_lib.struct_dict(self._stats()))

    @property
    def backend(self) -> str:
        """Name of the data structure."""
        raise NotImplementedError

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
        """The largest size that fits; 0 if the range is full."""
        with self._lock:
            self._stats()  # raises in another thread
            return int(lib.sw_range_largest_hole(self._open()))

    @property
    def fragmentation(self) -> float:
        """The share of the free size that is outside the largest hole; 0 if nothing is free."""
        with self._lock:
            free = self.free_size
            return 1 - self.largest_hole / free if free else 0.0

    def holes(self) -> NDArray[np.void]:
        """Return the holes by ascending offset: fields start and size, shape (holes,)."""
        parts: list[NDArray[np.void]] = []
        start = 0
        with self._lock:
            self._stats()  # raises in another thread
            while True:
                part = np.empty(BLOCK, HOLE_DTYPE)
                out = _lib.pointer(part, "sw_range_hole *")
                count = int(lib.sw_range_holes(self._open(), start, out, BLOCK))
                parts.append(part[:count])
                if count < BLOCK:
                    return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)
                start = int(part["start"][-1] + part["size"][-1])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the taken and free parts with the largest hole; return the matplotlib Axes."""
        return draw("range_holes", self, ax)

    def _figures(self) -> str:
        """Return the counters for repr, also for a range that is closed or of another thread."""
        if self._c is None:
            return f"{self._size:,}, closed"
        try:
            return f"{self._size:,}, {self.free_size:,} free"
        except StateError:
            return f"{self._size:,}, of another thread"


class RangeScope(threading.local):
    """Allocates a part of a range when a `with` statement begins, and frees it when it ends.

    Threads may share one, because its fields are thread-local.
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
    """Manages offsets in [0, size). Any part of an allocation can be freed, in any order.

    It owns no memory: the offsets are positions in a buffer, a file, or anything else.

    >>> with RangeAllocator(1 << 20, backend="two-treaps") as ranges:  # best fit
    ...     at = ranges.alloc(1000)
    ...     ranges.free(at + 100, 200)
    ...     ranges.free(at + 500, 50)
    ...     ranges.find(50), ranges.find(51), ranges.find(201)
    (500, 100, 1000)

    Args:
        size: 1 to 2^62.
        backend: "btree", "treap", "two-treaps", which alone has best fit and is also called
            "avl", or "buddy". The last is `BuddyAllocator` with units of 1,024: it rounds, and
            has first fit only. The others find a hole if one fits.
        placement: "first", "best", "next", "worst" or "default", which is "best" for
            "two-treaps", else "first".
        locked: any thread may call, not only the owner.

    Raises:
        InvalidError: an argument is not within these limits.
        UnsupportedError: the backend does not have the placement.
    """

    def __init__(
        self, size: int, *, backend: str = "btree", placement: str = "default", locked: bool = False
    ) -> None:
        self._backend = _AVL.get(backend, backend) if isinstance(backend, str) else backend
        super().__init__(
            size,
            backend=_lib.as_choice(self._backend, "backend", BACKENDS),
            placement=_lib.as_choice(placement, "placement", PLACEMENTS),
            locked=int(locked),
        )

    @property
    def backend(self) -> str:
        """Name of the data structure."""
        return self._backend

    def __repr__(self) -> str:
        return f"<RangeAllocator {self._backend!r}, size {self._figures()}>"


class BuddyAllocator(RangeBase):
    """Allocates blocks of a unit times powers of two (Knowlton 1965).

    `free` needs exactly one allocation, with the requested size.

    >>> with BuddyAllocator(1 << 20, unit=16) as ranges:
    ...     ranges.alloc(10), ranges.alloc(100)  # blocks of 16 and 128
    (0, 128)

    Args:
        size: 1 to 2^62; the last size % unit are never used.
        unit: the smallest block, a power of two, at most size.
        orders: the largest block is unit << (orders - 1); 0: as many as fit.
        locked: any thread may call, not only the owner.

    Raises:
        InvalidError: an argument is not within these limits.
        OutOfMemoryError: no memory for the metadata, 9.3 bytes per unit.
    """

    def __init__(
        self, size: int, *, unit: int = 1024, orders: int = 0, locked: bool = False
    ) -> None:
        self._unit = _lib.as_index(unit, "unit")
        super().__init__(
            size,
            backend=_BUDDY,
            unit=self._unit,
            orders=_lib.as_index(orders, "orders", (1 << 32) - 1),
            locked=int(locked),
        )

    @property
    def backend(self) -> str:
        """Name of the data structure: "buddy"."""
        return BACKENDS[_BUDDY]

    @property
    def unit(self) -> int:
        """The smallest block."""
        return self._unit

    def __repr__(self) -> str:
        return f"<BuddyAllocator unit {self._unit:,}, size {self._figures()}>"
