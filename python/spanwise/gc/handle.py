# SPDX-License-Identifier: Apache-2.0
"""The C collector behind `CollectedHeap` and its objects: one call at a time, and root words.

A thread that has joined the collector is in a blocking region whenever it is outside of a call, so
no other thread waits for it while it waits for the lock, or does anything else.

A root word is a word of an array of this module that the collector reads when a cycle begins. The
arrays are never moved nor freed before the collector has ended.
"""

from __future__ import annotations

import threading
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
    """Ends a collector; `kept` keeps the memory that the collector reads alive until then."""
    lib.sw_gc_destroy(c_gc)


class GcHandle:
    """Owns one sw_gc. C calls are made inside `with handle as c_gc:`, one thread at a time."""

    __slots__ = (
        "__weakref__",
        "_c",
        "_chunks",
        "_finalizer",
        "_free",
        "_lock",
        "_thread",
        "finalizers",
        "heap",
        "id",
        "note",
        "objects",
        "table",
        "tiny",
    )

    def __init__(self, options: Any, table: SizeClassTable) -> None:
        out = ffi.new("sw_gc **")
        check(lib.sw_gc_create(options, out))
        self._c: Any = out[0]
        self._lock = ExitLock()
        self._chunks: list[NDArray[np.uint64]] = []
        self._free: deque[tuple[NDArray[np.uint64], int]] = deque()
        self._thread = threading.local()  # joined: depth of calls + 1, if it has joined
        self.finalizers: dict[int, Any] = {}  # by address: function, type, count
        self.objects: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.note: Any = ffi.new("void **")  # the object whose finalizer was called last
        self.heap = lib.sw_gc_heap(self._c)
        self.id = int(lib.sw_heap_id(self.heap))
        self.table = table
        self.tiny = bool(options.tiny)
        self._finalizer = weakref.finalize(self, _destroy, self._c, self._chunks, table, self.note)
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
        calls = getattr(self._thread, "calls", None)
        if calls is not None:
            if calls == 0:
                lib.sw_gc_unblock(self._c)
            self._thread.calls = calls + 1
        return self._c

    def __exit__(self, *error: Any) -> None:
        calls = getattr(self._thread, "calls", None)
        if calls is not None:
            self._thread.calls = calls - 1
            if calls == 1 and self._c is not None:
                lib.sw_gc_block(self._c)
        self._lock.__exit__(*error)

    # --- threads ---

    def join(self, name: str) -> None:
        """Makes the calling thread stop at its calls while another thread works on a cycle."""
        with self as c_gc:
            check(lib.sw_gc_join(c_gc, name.encode()))
            check(lib.sw_gc_block(c_gc))
        self._thread.calls = 0

    def leave(self) -> None:
        """Ends what `join` began; does nothing if the heap is closed."""
        with self._lock:
            del self._thread.calls
            if self._c is not None:
                check(lib.sw_gc_unblock(self._c))
                check(lib.sw_gc_leave(self._c))

    # --- roots ---

    def take_root(self) -> tuple[NDArray[np.uint64], int]:
        """Takes a free root word (array and index of the word); called inside `with`."""
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

    def drop_ref(self, ref: int) -> None:
        """Frees a C reference, at once or when the lock becomes free; destructors may call it."""
        self._lock.soon(lambda: self._free_ref(ref))

    def _free_ref(self, ref: int) -> None:
        if self._c is not None:
            lib.sw_gc_ref_free(self._c, ref)

    def drop_root(self, root: tuple[NDArray[np.uint64], int]) -> None:
        """Gives a root word back. Any thread may call this at any time, also from a destructor."""
        root[0][root[1]] = 0
        self._free.append(root)
