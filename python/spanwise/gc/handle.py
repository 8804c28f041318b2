# SPDX-License-Identifier: Apache-2.0
"""Ownership of the C collector of a `CollectedHeap`: one call at a time, and root words.

A thread that has joined the collector is in a blocking region whenever it is outside a call, so no
other thread waits for it there. With conservative roots, or a background thread that marks, each
thread joins at its first call.

A root word is an element of an array that the collector reads when a cycle begins. The arrays are
neither moved nor freed before the collector is destroyed.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import check, ffi, lib, output_of
from spanwise._owner import CallLock, Claim, Life
from spanwise.errors import HeapClosedError
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    from spanwise.gc.layouts import ObjectType

ROOTS_A_CHUNK = 1024
PAUSES = 1024  # that C keeps between two calls

Root = tuple[NDArray[np.uint64], int]


def _destroy(c_gc: Any, *_: object) -> None:
    """Destroy a collector; the other arguments keep the memory alive that it reads."""
    lib.sw_gc_destroy(c_gc)


class Kept:
    """An object that a root word keeps alive while Python objects refer to it."""

    __slots__ = ("claim", "holders", "root")

    def __init__(self, root: Root) -> None:
        self.root = root  # the root word: an array and an index
        self.holders = 0  # number of Python objects that refer to it; guarded by the heap's lock
        self.claim = Claim()  # lets exactly one call free it explicitly

    @property
    def freed(self) -> bool:
        """Whether it was freed explicitly."""
        return self.claim.taken


class GcHandle:
    """Owns one sw_gc. C calls go inside `with handle as c_gc:`, one thread at a time."""

    __slots__ = (
        "__weakref__",
        "_c",
        "_chunks",
        "_free",
        "_life",
        "_lock",
        "_open",
        "arenas",
        "concurrent",
        "finalizers",
        "heap",
        "id",
        "joins",
        "kept",
        "layouts",
        "note",
        "objects",
        "table",
        "thread",
        "tiny",
        "types",
    )

    def __init__(
        self,
        options: Any,
        table: SizeClassTable,
        *,
        conservative: bool,
        concurrent: bool,
        markers: int,
    ) -> None:
        self._c: Any = output_of(lib.sw_gc_create, options)
        self.concurrent = concurrent
        self.joins = conservative or concurrent  # each thread joins at its first call
        self._open = [True]  # a list, because references outlive the handle
        self._lock = CallLock()
        self._chunks: list[NDArray[np.uint64]] = []
        self._free: deque[Root] = deque()
        # .calls: depth of calls, in joined threads only; .named: in those that called join();
        # .shadow: the shadow stack (roots.py)
        self.thread = threading.local()
        self.finalizers: dict[int, Any] = {}  # by address: (function, type, count)
        self.objects: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.kept: dict[int, Kept] = {}  # by address, while a root keeps the object alive
        # By address, type and count of the newest object there that Python allocated and did not
        # free. A pointer that the collector follows leads to that object.
        self.layouts: dict[int, tuple[ObjectType, int]] = {}
        self.types: dict[int, ObjectType] = {}  # by number
        # By address, the arena that the object's finalizer frees: what keeps it allocated.
        self.arenas: dict[int, Any] = {}
        # The object whose finalizer was called last; NULL: the finalizer was an arena's.
        self.note: Any = ffi.new("void **")
        self.heap = lib.sw_gc_heap(self._c)
        self.id = int(lib.sw_heap_id(self.heap))
        self.table = table
        self.tiny = bool(options.tiny)
        self._life = Life(_destroy, self._c, self._chunks, table, self.note)
        check(lib.sw_gc_record_pauses(self._c, PAUSES))
        if conservative:
            check(lib.sw_gc_set_roots(self._c, lib.SW_GC_CONSERVATIVE))
        if markers > 1:
            check(lib.sw_gc_set_markers(self._c, markers))
        if concurrent:
            check(lib.sw_gc_set_concurrent(self._c, 1))
        if self.joins:
            check(lib.sw_gc_block(self._c))
            self.thread.calls = 0

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return not self._open[0]

    def close(self) -> None:
        """Destroy the collector and all its objects; a second call does nothing."""
        with self._lock:
            self._open[0] = False
            self._lock.at_exit(self.arenas.clear)  # after the next one
            self._lock.at_exit(self._life.end)

    def read(self, function: Callable[[Any], None]) -> None:
        """Call a function with the collector, unless it is closed; the thread does not join."""
        with self._lock:
            if not self.closed:
                function(self._c)

    def __enter__(self) -> Any:
        self._lock.__enter__()
        if self.closed:
            self._lock.__exit__(None, None, None)
            raise HeapClosedError(f"collected heap {self.id} is closed; make another")
        calls = getattr(self.thread, "calls", None)
        if calls is not None:
            if calls == 0:
                lib.sw_gc_unblock(self._c)
            self.thread.calls = calls + 1
        elif self.joins:
            self._join_now()
        return self._c

    def __exit__(self, *error: Any) -> None:
        calls = getattr(self.thread, "calls", None)
        if calls is not None:
            self.thread.calls = calls - 1
            if calls == 1 and not self.closed:
                lib.sw_gc_block(self._c)
        self._lock.__exit__(*error)

    # --- threads ---

    def join(self, name: str) -> None:
        """Make the calling thread stop at its calls while another thread works on a cycle."""
        with self as c_gc:
            by_itself = hasattr(self.thread, "calls")
            if by_itself and not getattr(self.thread, "named", False):
                check(lib.sw_gc_leave(c_gc))
            check(lib.sw_gc_join(c_gc, name.encode()))
            if not by_itself:
                check(lib.sw_gc_block(c_gc))
                self.thread.calls = 0
        self.thread.named = True

    def leave(self) -> None:
        """Undo `join()`; do nothing if the heap is closed."""
        with self._lock:
            self.thread.named = False
            if self.joins:
                return
            del self.thread.calls
            if not self.closed:
                check(lib.sw_gc_unblock(self._c))
                check(lib.sw_gc_leave(self._c))

    def _join_now(self) -> None:
        """Join the calling thread under its Python name; called inside `__enter__()`."""
        try:
            check(lib.sw_gc_join(self._c, threading.current_thread().name.encode()))
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        self.thread.calls = 1

    def block_new(self) -> None:
        """After the current call, note whether the thread joined automatically.

        `sw_gc_new` does that while threads of another language have joined.
        """
        if not hasattr(self.thread, "seen") and not hasattr(self.thread, "calls"):
            self.thread.seen = True
            self._lock.at_exit(self._try_block)

    def _try_block(self) -> None:
        if not self.closed and lib.sw_gc_block(self._c) == lib.SW_OK:
            self.thread.calls = 0

    # --- arenas that are freed with an object ---

    def give_arena(self, address: int, kept: Any) -> None:
        """Note the arena that the finalizer of an object frees, None for none; inside `with`."""
        if kept is None:
            self.arenas.pop(address, None)
        else:
            self.arenas[address] = kept

    def take_arena(self, address: int, kept: Any) -> None:
        """Remove the finalizer of an object if it frees this arena."""
        with self as c_gc:
            if self.arenas.get(address) is kept:
                lib.sw_gc_set_finalizer(c_gc, ffi.cast("void *", address), ffi.NULL, ffi.NULL)
                del self.arenas[address]

    def drop_freed_arenas(self) -> None:
        """Forget arenas that finalizers have freed."""
        with self._lock:
            for address in [at for at, kept in self.arenas.items() if kept.freed]:
                del self.arenas[address]

    # --- roots ---

    def keep(self, address: int) -> tuple[Kept, Life]:
        """Keep the object at an address alive until the Life ends; called inside `with`."""
        kept = self.kept.get(address)
        if kept is None or kept.freed:
            kept = self.kept[address] = Kept(self._take_root())
            kept.root[0][kept.root[1]] = address
        kept.holders += 1
        return kept, Life(
            _let_go_soon, self._life, self._lock, self.kept, self._free, address, kept
        )

    def _take_root(self) -> Root:
        """Take a free root word, from a new array if necessary."""
        if not self._free:
            chunk = np.zeros(ROOTS_A_CHUNK, np.uint64)
            self._chunks.append(chunk)
            output_of(lib.sw_gc_add_roots, self._c, ffi.from_buffer(chunk), chunk.nbytes)
            self._free.extend((chunk, i) for i in range(ROOTS_A_CHUNK))
        return self._free.popleft()

    def ref(self, number: int) -> Life:
        """Return a Life that frees a C reference when it ends, or when the lock becomes free."""
        return Life(_free_ref_soon, self._life, self._lock, self._open, self._c, number)


# The first argument of these callbacks keeps the collector alive.


def _let_go_soon(_: Life, lock: CallLock, *kept: Any) -> None:
    lock.soon(functools.partial(_let_go, *kept))


def _let_go(all_kept: dict[int, Kept], free: deque[Root], address: int, kept: Kept) -> None:
    kept.holders -= 1
    if kept.holders == 0:
        if all_kept.get(address) is kept:
            del all_kept[address]
        kept.root[0][kept.root[1]] = 0
        free.append(kept.root)


def _free_ref_soon(_: Life, lock: CallLock, *ref: Any) -> None:
    lock.soon(functools.partial(_free_ref, *ref))


def _free_ref(is_open: list[bool], c_gc: Any, number: int) -> None:
    if is_open[0]:
        lib.sw_gc_ref_free(c_gc, number)
