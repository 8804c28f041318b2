# SPDX-License-Identifier: Apache-2.0
"""The C range behind the classes of this room: its thread, its end, and how it is called."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Owner
from spanwise.errors import StateError
from spanwise.results.values import Result

HOLE_DTYPE = _lib.dtype_of("sw_range_hole")
"""A hole: fields start and size."""

NONE = 2**64 - 1  # SW_RANGE_NONE
SIZE_MAX = 1 << 62  # SW_RANGE_SIZE_MAX
BLOCK = 4096  # holes that are read in one call


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

    def to_dict(self) -> dict[str, int]:
        """All of it, for JSON."""
        return asdict(self)


def options_of(**values: int) -> Any:
    """Options for sw_range_create with some fields set."""
    options = ffi.new("sw_range_options *")
    lib.sw_range_options_init(options)
    for name, value in values.items():
        setattr(options, name, value)
    return options


def _destroy(c_range: Any) -> None:
    """Ends a range without references, in the thread in which Python's collector runs."""
    check(lib.sw_range_adopt(c_range))
    lib.sw_range_destroy(c_range)


class RangeBase(Owner):
    """Owns one sw_range.

    The C library checks the thread: a call raises OwnerError in a thread that neither made the
    range nor adopted it last.
    """

    def __init__(self, size: int, options: Any) -> None:
        out = ffi.new("sw_range **")
        self._size = _lib.as_index(size, "size")
        check(lib.sw_range_create(self._size, options, out))
        super().__init__(out[0], _destroy)

    def close(self) -> None:
        """Ends the range; a second call does nothing.

        Raises:
            OwnerError: it belongs to another thread.
        """
        super().close()

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
            OwnerError: the range belongs to another thread.
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
            OwnerError: the range belongs to another thread.
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
            OwnerError: the range belongs to another thread.
        """
        where, number = _lib.as_index(offset, "offset"), _lib.as_index(size, "size")
        with self._lock:
            check(lib.sw_range_free(self._open(), where, number))

    def scope(self, size: int) -> RangeScope:
        """`with allocator.scope(100) as offset:` takes 100 and frees them at the end.

        Raises:
            InvalidError: size is negative. Entering raises what `alloc` does.
        """
        return RangeScope(self, _lib.as_index(size, "size"))

    def reset(self) -> None:
        """Frees everything.

        Raises:
            OwnerError: the range belongs to another thread.
        """
        with self._lock:
            check(lib.sw_range_reset(self._open()))

    def adopt(self) -> None:
        """Makes the calling thread the owner."""
        with self._lock:
            check(lib.sw_range_adopt(self._open()))

    def verify(self) -> None:
        """Compares the structure with itself.

        Raises:
            SpanwiseError: a rule does not hold; the message has it.
            OwnerError: the range belongs to another thread.
        """
        with self._lock:
            check(lib.sw_range_verify(self._open()))

    # --- figures ---

    def _stats(self) -> Any:
        stats = ffi.new("sw_range_stats *")
        check(lib.sw_range_get_stats(self._open(), stats))
        return stats

    def stats(self) -> RangeStats:
        """All figures at one moment.

        Raises:
            OwnerError: the range belongs to another thread.
        """
        with self._lock:
            return RangeStats(**_lib.struct_dict(self._stats()))

    @property
    def size(self) -> int:
        """The range is [0, size)."""
        return self._size

    @property
    def free_size(self) -> int:
        """Sum of the holes."""
        with self._lock:
            return int(self._stats().free_size)

    @property
    def largest_hole(self) -> int:
        """The largest size for which `find` finds something; 0: the range is full."""
        with self._lock:
            self._stats()  # refuses another thread
            return int(lib.sw_range_largest_hole(self._open()))

    def holes(self) -> NDArray[np.void]:
        """What is free, in the order of addresses: fields start and size, shape (holes,).

        Raises:
            OwnerError: the range belongs to another thread.
        """
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._owner.free(self._offsets.pop(), self._size)
