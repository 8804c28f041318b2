# SPDX-License-Identifier: Apache-2.0
"""The C heap of a `Heap` and its blocks: when it may be called, and when it goes away.

Invariant: the C heap lives while there are callers or exports, also after close. A call pins it for
its duration, an exported view for the view's life. So no thread ever calls into a heap that another
one destroys, and no array ever points into memory that is gone.
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
    """Owns one sw_heap. C calls are made inside `with handle as c_heap:`.

    Attributes:
        id: the C library's number of the heap.
        lock: guards every field; reentrant, because a finalizer may run inside.
        callers: the thread of each call that goes on.
        exports: views of its blocks that are alive.
        closed: no further calls; destroyed as soon as callers and exports are none.
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
        self.table = table  # the C heap reads the table as long as it lives
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
            self.callers.append(threading.get_ident())  # first: nothing destroys it from here on
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
        """Counts a view in. The caller holds the lock and calls `unexport` at the view's end."""
        self.exports += 1  # first: nothing destroys it from here on
        if self.closed:
            self.unexport()
            raise self._closed_error()

    def unexport(self) -> None:
        """Counts a view out. The caller holds the lock."""
        self.exports -= 1
        self._destroy_if_idle()

    def view_taken(self, views: Count) -> Life:
        """Counts a view of a block in, and out when the life ends. The caller holds the lock."""
        self.export()
        return views.taken(Life(self._unexport_soon))

    def _unexport_soon(self) -> None:
        self.lock.soon(self.unexport)

    # --- the end ---

    def close(self, *, force: bool = False) -> int:
        """Closes the heap; again is no error.

        Args:
            force: close also while views live; its memory then goes with the last of them.

        Returns:
            How many views were alive.

        Raises:
            BlockBusyError: views are alive, and not force.
        """
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
        """The heap's one runner, made at first use, for this thread alone.

        Raises:
            StateError: another thread has it.
            HeapClosedError: the heap is closed.
        """
        if not self.run_lock.acquire(blocking=False):
            raise StateError(f"heap {self.id}: another thread is running a workload here")
        try:
            with self:
                yield self.runner()
        finally:
            self.run_lock.release()

    def runner(self) -> Any:
        """The heap's one runner, made at first use. The caller is in a call."""
        if self._runner[0] == ffi.NULL:
            check(lib.sw_runner_create(self._c, self._runner))
        return self._runner[0]

    @property
    def has_run(self) -> bool:
        """Whether a workload was ever run here."""
        return bool(self._runner[0] != ffi.NULL)


class HandleOwner(Closable):
    """Base of `Heap` and `CollectedHeap`: what they say and do by their handles."""

    __slots__ = ()
    _handle: Any

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return bool(self._handle.closed)

    @property
    def id(self) -> int:
        """The heap's number; never reused in a process."""
        return int(self._handle.id)

    @property
    def table(self) -> SizeClassTable:
        """Its size classes."""
        table: SizeClassTable = self._handle.table
        return table

    def __enter__(self: OwnerT) -> OwnerT:
        with self._handle:
            return self


class HeapUser(Owner):
    """Base of owners whose C object uses a heap: the heap can be closed after them only."""

    def _own(
        self,
        handle: HeapHandle,
        create: Callable[[Any], Any],
        destroy: Callable[[Any], object],
    ) -> None:
        """Owns what `create(c_heap)` returns."""
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
    """Destroys a C object, and lets its heap go."""
    destroy(c_object)
    handle.lock.soon(handle.unexport)


def _destroy(c_heap: Any, runner: Any, table: SizeClassTable) -> None:
    """Ends runner and heap; the argument `table` only keeps the table alive until then."""
    if runner[0] != ffi.NULL:
        lib.sw_runner_destroy(runner[0])
        runner[0] = ffi.NULL
    lib.sw_heap_destroy(c_heap)


def _after_fork_in_child() -> None:
    """Only the calls of the thread that forked go on in the child."""
    for handle in list(_live):
        handle.run_lock = threading.Lock()
        handle.callers = [one for one in handle.callers if one == threading.get_ident()]


os.register_at_fork(after_in_child=_after_fork_in_child)
