# SPDX-License-Identifier: Apache-2.0
"""Ownership of C heaps, and runs of operations on them."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spanwise import errors
from spanwise._lib import OPS_DTYPE, check, failure, ffi, lib, output_of, pointer
from spanwise._owner import CallLock, Closable, Count, Life, Owner, refuse_views
from spanwise.errors import HeapClosedError, StateError
from spanwise.heap.heap_map import HeapMap, read_spans, read_tiles
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import RunStats
from spanwise.results.jobs import LOOK_SECONDS, ctrl_c_heard, raise_what_came
from spanwise.results.rows import Rows
from spanwise.tables.table import SizeClassTable

OwnerT = TypeVar("OwnerT", bound="HandleOwner")

_live: weakref.WeakSet[HeapHandle] = weakref.WeakSet()


class HeapHandle:
    """Owns one sw_heap. C calls go inside `with handle as c_heap:`.

    Attributes:
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
        "protected",
        "run_lock",
        "table",
        "tiny",
        "unwritten",
        "users",
    )

    def __init__(self, options: Any, table: SizeClassTable, protected: bool = False) -> None:
        self._c = output_of(lib.sw_heap_create, options)
        self._runner = ffi.new("sw_runner **")
        self.table = table  # the C heap refers to the table
        self.id = int(lib.sw_heap_id(self._c))  # number of the heap in the C library
        self.dry = bool(options.dry)
        self.tiny = bool(options.tiny)
        self.protected = protected  # an object's usable bytes are its requested ones
        self.lock = CallLock()  # guards every field; reentrant, because a finalizer may run inside
        self.run_lock = threading.Lock()
        self.callers: list[int] = []  # the thread of each running call
        self.exports = 0  # live views of the heap's blocks, and users
        self.users = 0  # caches, pools and slabs of the heap
        self.unwritten = False  # whether a run has left the bytes of its objects unwritten
        self.closed = False
        self._life = Life(_destroy, self._c, self._runner, table)
        _live.add(self)

    @property
    def heap(self) -> Any:
        """The C heap, for a caller inside `with`."""
        return self._c

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

    def use(self) -> None:
        """Count a cache, pool or slabs in, as a view. The caller holds the lock."""
        self.export()
        self.users += 1

    def unuse(self) -> None:
        """Count one of them out. The caller holds the lock."""
        self.users -= 1
        self.unexport()

    # --- the end ---

    def close(self, *, force: bool = False) -> int:
        """Close the heap; closing it again is not an error."""
        with self.lock:
            alive = self.exports
            if self.closed:
                return 0
            if not force:
                refuse_views(
                    alive - self.users,
                    f"blocks of heap {self.id}",
                    "closing it",
                    users=self.users,
                    user=("pool, slabs or cache allocates", "pools, slabs or caches allocate"),
                    end="close the pools, slabs and caches",
                )
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
    _made_with = "_handle"

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

    def ledger(self, *, resident: bool = False) -> Ledger:
        """Return the ledger."""
        raise NotImplementedError

    def spans(self) -> Rows:
        """Return a snapshot of the spans, one row per span in heap order.

        Columns: address, bytes, cls (0: large object), slots, live (slots), cache (number of its
        thread cache, 0: none), scan, current (1: its cache allocates from it), needzero.

        >>> with Heap() as heap:
        ...     blocks = [heap.alloc(100) for _ in range(10)]
        ...     heap.spans()["live"].tolist()
        [10]
        """
        with self._handle:
            return read_spans(self._handle.heap)

    def map(self, *, resident: bool = False) -> HeapMap:
        """Return a snapshot of the whole heap as tiles: spans, large objects and free pages.

        Its sums equal the ledger if no other thread is inside a call.

        Args:
            resident: also query the resident bytes of each tile (`touched_bytes`).

        Raises:
            StateError: the heap is dry, so it has no resident memory.
            UnsupportedError: the system does not report residency.

        >>> with Heap() as heap:
        ...     blocks = [heap.alloc(100) for _ in range(10)]
        ...     tiles = heap.map().array
        ...     int(tiles["live"].sum()), int(tiles["requested_bytes"].sum())
        (10, 1000)
        """
        with self._handle:
            tiles, requested = read_tiles(self._handle.heap, touched=resident, slots=True)
            ledger = self.ledger(resident=resident)
            return HeapMap(tiles, ledger, self.table.page_bytes, requested)

    def trim(self) -> int:
        """Return all free pages to the system now, and return their bytes.

        The empty spans that the heap and this thread's cache keep are returned too, and large ones
        that any thread cache keeps. So the result may exceed `Ledger.free_page_bytes`.

        >>> with Heap() as heap:
        ...     heap.alloc(1 << 20).free()
        ...     heap.trim() >= 1 << 20, heap.ledger().free_page_bytes
        (True, 0)
        """
        with self._handle:
            return int(lib.sw_heap_trim(self._handle.heap))

    @property
    def held_bytes(self) -> int:
        """Committed pages and metadata, bytes; cheap to read."""
        with self._handle:
            return int(lib.sw_heap_held_bytes(self._handle.heap))


class HeapUser(Owner):
    """Base of owners whose C object uses a heap, which can only be closed after them."""

    def _own(
        self, handle: HeapHandle, create: Callable[[Any], Any], destroy: Callable[[Any], object]
    ) -> None:
        """Own the C object that `create(c_heap)` returns."""
        with handle as c_heap:
            c_object = create(c_heap)
            try:
                with handle.lock:
                    handle.use()
            except BaseException:
                destroy(c_object)
                raise
        self._handle = handle
        Owner.__init__(self, c_object, _end_user, destroy, handle)


def _end_user(c_object: Any, destroy: Callable[[Any], object], handle: HeapHandle) -> None:
    """Destroy a C object and release its heap."""
    destroy(c_object)
    handle.lock.soon(handle.unuse)


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


# --- runs of operations ---------------------------------------------------------------------------

_DIRECT_OPS = 1 << 18
"""Fewer operations than this run in the calling thread, because they take only milliseconds."""

_IDS_AT_LEAST = 4096
"""Ids that are always allowed."""

_TOUCHES = ("none", "ends")


def as_ops(ops: Any) -> NDArray[np.void]:
    """Return operations (array or `Rows`) as a contiguous array of OPS_DTYPE, copied if needed."""
    if isinstance(ops, Rows):
        ops = np.asarray(ops)
    if not isinstance(ops, np.ndarray) or ops.dtype != OPS_DTYPE:
        kind = ops.dtype if isinstance(ops, np.ndarray) else type(ops).__name__
        raise TypeError(f"ops must be a numpy array of spanwise.OPS_DTYPE, not {kind}")
    if ops.ndim != 1:
        raise errors.InvalidError(f"ops must have one dimension, not {ops.ndim}")
    return np.ascontiguousarray(ops)


def check_ids(runner: Any, ops: NDArray[np.void]) -> None:
    """Check that ids are dense, because the runner's memory grows with the largest id."""
    run_before = int(RunStats.read(runner).ops)
    bound = max(run_before + len(ops), _IDS_AT_LEAST)
    too_large = (ops["kind"] == lib.SW_OP_ALLOC) & (ops["object"] >= bound)
    if too_large.any():
        index = int(np.argmax(too_large))
        raise errors.InvalidError(
            f"operation {index}: object {ops['object'][index]} is not dense:"
            " ids must be below the number of operations"
        )


def run_ops(runner: Any, ops: NDArray[np.void], *, touch: str = "none") -> None:
    """Run operations; KeyboardInterrupt stops the run between two of them."""
    if touch not in _TOUCHES:
        raise errors.InvalidError(f"touch {touch!r}: use {' or '.join(_TOUCHES)}")
    cancel = ffi.new("int *")
    start = pointer(ops, "sw_op *")

    def call() -> errors.SpanwiseError | None:
        status = lib.sw_runner_run(runner, start, len(ops), touch == "ends", cancel, ffi.NULL)
        return failure(status) if status != 0 else None

    error = call() if len(ops) < _DIRECT_OPS else interruptible(call, cancel)
    if error is not None:
        raise error


def interruptible(
    call: Callable[[], errors.SpanwiseError | None],
    cancel: Any,
    look: Callable[[], object] = lambda: None,
) -> errors.SpanwiseError | None:
    """Run a long C call in a thread, while the main thread polls for Ctrl-C and sets `cancel`."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    done = threading.Event()
    result: list[errors.SpanwiseError | None] = []

    def work() -> None:
        try:
            if not cancel[0]:
                result.append(call())
        finally:
            done.set()

    thread = threading.Thread(target=work, name="spanwise-run", daemon=True)
    with ctrl_c_heard():
        try:
            thread.start()
            while not done.wait(LOOK_SECONDS):
                raise_what_came()
                look()
        except BaseException:
            cancel[0] = 1
            # The arrays must live until the call ends. A thread that starts late sees `cancel`.
            while thread.is_alive() and not done.is_set():
                done.wait()
            raise
    return result[0] if result else None
