# SPDX-License-Identifier: Apache-2.0
"""Ownership of the C heap of a `Heap`: when it may be called, and when it is destroyed.

Invariant: the C heap exists while there are callers or exports, even after close. A call pins it
for the call's duration, an exported view for the view's lifetime. So no thread calls into a
destroyed heap, and no array points to unmapped memory.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from spanwise._lib import check, ffi, lib, output_of
from spanwise._owner import CallLock, Closable, Count, Life, Owner, refuse_views
from spanwise.errors import HeapClosedError, StateError
from spanwise.tables.table import SizeClassTable

OwnerT = TypeVar("OwnerT", bound="HandleOwner")

_live: weakref.WeakSet[HeapHandle] = weakref.WeakSet()


class HeapHandle:
    """Owns one sw_heap. C calls go inside `with handle as c_heap:`.

    Attributes:
        id: number of the heap in the C library.
        lock: guards every field; reentrant, because a finalizer may run inside.
        callers: the thread of each running call.
        exports: live views of the heap's blocks.
        closed: no further calls; the heap is destroyed once there is no caller and no export.
    """

    __slots__ = (
        "__weakref__",
        "_c",
        "_life",
        "_runner",
        "callers",
        "closed",
        "dry",
        "exports",
        "id",
        "lock",
        "run_lock",
        "table",
        "tiny",
    )

    def __init__(self, options: Any, table: SizeClassTable) -> None:
        self._c = output_of(lib.sw_heap_create, options)
        self._runner = ffi.new("sw_runner **")
        self.table = table  # the C heap refers to the table
        self.id = int(lib.sw_heap_id(self._c))
        self.dry = bool(options.dry)
        self.tiny = bool(options.tiny)
        self.lock = CallLock()
        self.run_lock = threading.Lock()
        self.callers: list[int] = []
        self.exports = 0
        self.closed = False
        self._life = Life(_destroy, self._c, self._runner, table)
        _live.add(self)

    # --- calls ---

    def __enter__(self) -> Any:
        with self.lock:
            self.callers.append(threading.get_ident())  # pins the heap from here on
            if self.closed:
                self._leave()
                raise self._closed_error()
        return self._c

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self._leave()

    def _leave(self) -> None:
        self.callers.remove(threading.get_ident())
        self._destroy_if_idle()

    def _closed_error(self) -> HeapClosedError:
        return HeapClosedError(f"heap {self.id} is closed")

    # --- views ---

    def export(self) -> None:
        """Count a view in. The caller holds the lock and calls `unexport` when the view ends."""
        self.exports += 1  # pins the heap from here on
        if self.closed:
            self.unexport()
            raise self._closed_error()

    def unexport(self) -> None:
        """Count a view out. The caller holds the lock."""
        self.exports -= 1
        self._destroy_if_idle()

    def view_taken(self, views: Count) -> Life:
        """Count a view of a block in until the returned Life ends. The caller holds the lock."""
        self.export()
        return views.taken(Life(self._unexport_soon))

    def _unexport_soon(self) -> None:
        self.lock.soon(self.unexport)

    # --- the end ---

    def close(self, *, force: bool = False) -> int:
        """Close the heap; closing it again is not an error."""
        with self.lock:
            alive = self.exports
            if self.closed:
                return 0
            if not force:
                refuse_views(alive, f"blocks of heap {self.id}", "closing it")
            self.closed = True
            self._destroy_if_idle()
            return alive

    def _destroy_if_idle(self) -> None:
        if self.closed and not self.callers and self.exports == 0:
            self._life.end()

    # --- the runner ---

    @contextmanager
    def running(self) -> Iterator[Any]:
        """Yield the heap's runner, exclusively for this thread."""
        if not self.run_lock.acquire(blocking=False):
            raise StateError(f"heap {self.id}: another thread is running a workload here")
        try:
            with self:
                yield self.runner()
        finally:
            self.run_lock.release()

    def runner(self) -> Any:
        """Return the heap's only runner, created at first use. The caller is inside a call."""
        if self._runner[0] == ffi.NULL:
            check(lib.sw_runner_create(self._c, self._runner))
        return self._runner[0]

    @property
    def has_run(self) -> bool:
        """Whether a workload has ever run in this heap."""
        return bool(self._runner[0] != ffi.NULL)


class HandleOwner(Closable):
    """Base of `Heap` and `CollectedHeap`: what they share through their handles."""

    __slots__ = ()
    _handle: Any

    @property
    def closed(self) -> bool:
        """Whether the heap is closed."""
        return bool(self._handle.closed)

    @property
    def id(self) -> int:
        """Number of the heap, never reused within a process."""
        return int(self._handle.id)

    @property
    def table(self) -> SizeClassTable:
        """The size classes of the heap."""
        table: SizeClassTable = self._handle.table
        return table

    def __enter__(self: OwnerT) -> OwnerT:
        with self._handle:
            return self


class HeapUser(Owner):
    """Base of owners whose C object uses a heap, which can only be closed after them."""

    def _own(
        self,
        handle: HeapHandle,
        create: Callable[[Any], Any],
        destroy: Callable[[Any], object],
    ) -> None:
        """Own the C object that `create(c_heap)` returns."""
        with handle as c_heap:
            c_object = create(c_heap)
            try:
                with handle.lock:
                    handle.export()
            except BaseException:
                destroy(c_object)
                raise
        self._handle = handle
        Owner.__init__(self, c_object, _end_user, destroy, handle)


def _end_user(c_object: Any, destroy: Callable[[Any], object], handle: HeapHandle) -> None:
    """Destroy a C object and release its heap."""
    destroy(c_object)
    handle.lock.soon(handle.unexport)


def _destroy(c_heap: Any, runner: Any, table: SizeClassTable) -> None:
    """Destroy the runner and the heap; `table` only keeps the table alive until then."""
    if runner[0] != ffi.NULL:
        lib.sw_runner_destroy(runner[0])
        runner[0] = ffi.NULL
    lib.sw_heap_destroy(c_heap)


def _after_fork_in_child() -> None:
    """Forget the calls of other threads, which do not exist in the child."""
    for handle in list(_live):
        handle.run_lock = threading.Lock()
        handle.callers = [one for one in handle.callers if one == threading.get_ident()]


os.register_at_fork(after_in_child=_after_fork_in_child)
