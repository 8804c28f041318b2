# SPDX-License-Identifier: Apache-2.0
"""The C collector behind `CollectedHeap` and its objects: one call at a time, and root words.

A root word is a word of an array of this module that the collector reads when a cycle begins. The
arrays are never moved nor freed before the collector has ended.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import check, ffi, lib
from spanwise.errors import HeapClosedError
from spanwise.heap.handle import ExitLock
from spanwise.tables.table import SizeClassTable

ROOTS_A_CHUNK = 1024


def _destroy(c_gc: Any, *kept: object) -> None:
    """Ends a collector; `kept` is what it read until now."""
    lib.sw_gc_destroy(c_gc)


class GcHandle:
    """Owns one sw_gc. `with handle as c_gc:` is how it is called into, by one thread at a time."""

    __slots__ = (
        "__weakref__",
        "_c",
        "_chunks",
        "_finalizer",
        "_free",
        "_lock",
        "heap",
        "id",
        "table",
    )

    def __init__(self, options: Any, table: SizeClassTable) -> None:
        out = ffi.new("sw_gc **")
        check(lib.sw_gc_create(options, out))
        self._c: Any = out[0]
        self._lock = ExitLock()
        self._chunks: list[NDArray[np.uint64]] = []
        self._free: deque[tuple[NDArray[np.uint64], int]] = deque()
        self.heap = lib.sw_gc_heap(self._c)
        self.id = int(lib.sw_heap_id(self.heap))
        self.table = table
        self._finalizer = weakref.finalize(self, _destroy, self._c, self._chunks, table)
        self._finalizer.atexit = False  # when the process ends, the system takes all memory

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        return self._c is None

    def close(self) -> None:
        """Ends the collector with all of its objects; a second call does nothing."""
        with self._lock:
            self._c = None
            self._finalizer()

    def __enter__(self) -> Any:
        self._lock.__enter__()
        if self._c is None:
            self._lock.__exit__(None, None, None)
            raise HeapClosedError(f"collected heap {self.id} is closed; make another")
        return self._c

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)

    # --- roots; both inside `with` or where only a word is written ---

    def take_root(self) -> tuple[NDArray[np.uint64], int]:
        """A root word: an array, and the word's place in it."""
        if not self._free:
            chunk = np.zeros(ROOTS_A_CHUNK, np.uint64)
            check(
                lib.sw_gc_add_roots(
                    self._c, ffi.from_buffer(chunk), chunk.nbytes, ffi.new("uint32_t *")
                )
            )
            self._chunks.append(chunk)
            self._free.extend((chunk, i) for i in range(ROOTS_A_CHUNK))
        return self._free.popleft()

    def drop_root(self, root: tuple[NDArray[np.uint64], int]) -> None:
        """Gives the word back. Any thread may do so at any time, a destructor too."""
        root[0][root[1]] = 0
        self._free.append(root)
