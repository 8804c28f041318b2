# SPDX-License-Identifier: Apache-2.0
"""Heaps: they allocate blocks, account for every byte and run whole workloads."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import SupportsIndex

from spanwise import _format, _lib, errors
from spanwise._lib import check, ffi, lib
from spanwise.heap.block import Block, ThreadCache, new_block, request_of
from spanwise.heap.handle import HandleOwner, HeapHandle, as_ops, check_ids, run_ops
from spanwise.heap.options import HeapOptions, as_options, c_options, read_protect
from spanwise.ledger.ledger import Ledger, read_ledger
from spanwise.ledger.parts import RunStats
from spanwise.results.rows import AnyRows, Result
from spanwise.tables.classes import Explanation
from spanwise.tables.table import SizeClassTable, as_table

PATHS = ("specialised", "tiny", "generic", "large")
"""What serves a request, in the order of sw_path."""

_UNWRITTEN = "objects of run() were not written (touch='none'), so they may not be resident"


@dataclass(frozen=True)
class HeapStats(Result):
    """The counters of a heap.

    Attributes:
        held_bytes: committed pages and metadata.
        live_objects: allocated objects.
        large_objects: live objects on their own pages.
        requested_bytes: requested sizes of live objects (slot bytes if the heap is not tracked).
        spans: spans of slots.
        caches: thread caches.
        largest_hole_bytes: longest run of free committed pages.
        free_runs: number of such runs.
        returned_bytes: bytes returned to the system since the heap was created.
        retry_bytes: bytes that the system refused to take back.
        lock_acquisitions: acquisitions of the heap lock since the heap was created.
        lock_waits: acquisitions that found the lock held by another thread.
        purge_calls: system calls that returned pages.
        commit_calls: system calls that made pages accessible.
    """

    held_bytes: int
    live_objects: int
    large_objects: int
    requested_bytes: int
    spans: int
    caches: int
    largest_hole_bytes: int
    free_runs: int
    returned_bytes: int
    retry_bytes: int
    lock_acquisitions: int
    lock_waits: int
    purge_calls: int
    commit_calls: int


class Heap(HandleOwner):
    """An independent heap with its own memory, spans and thread caches.

    Use it in a `with` statement, or `close()` it. Any thread may use it. Leaving the `with` while
    views of blocks are alive warns (ResourceWarning) and defers the release to the last view.

    >>> with Heap("go") as heap:
    ...     block = heap.alloc(33)
    ...     heap.ledger().roundup_bytes
    15

    Args:
        table: size classes, or a table's name.
        tracked: keep requested sizes, so that the ledger can separate round-up.
        options: limit, placement, decay of idle pages, retained spans; None: `HeapOptions()`.
        dry: simulate: addresses are only numbers, and no memory is touched.
        tiny: pointer-free objects below 16 B share slots and cannot be freed individually.
        manual_clock: only `set_time` and the times of `run` advance the clock.
        protect: protections against misuse, separated by commas: "hardened", "paranoid", or some
            of canary, zero, hold, empty, match, sample, random and pages (docs/design/guard.md);
            None: none. Not for heaps that are dry or tiny. Such a heap is always tracked.

    Raises:
        TypeError, InvalidError: an argument is not allowed.
        OutOfMemoryError: there is no memory for a heap.
    """

    __slots__ = ("__weakref__", "_handle", "_manual_clock", "_options", "_tracked")

    def __init__(
        self,
        table: SizeClassTable | str = "c16",
        *,
        tracked: bool = True,
        options: HeapOptions | None = None,
        dry: bool = False,
        tiny: bool = False,
        manual_clock: bool = False,
        protect: str | None = None,
    ) -> None:
        made = as_table(table)
        self._options = as_options(options)
        flags = {"tracked": tracked, "dry": dry, "tiny": tiny, "manual_clock": manual_clock}
        c_made = c_options(made, self._options, **flags)
        names, protected = read_protect(protect)
        c_made.protect = names
        self._handle: HeapHandle = HeapHandle(c_made, made, protected)
        self._tracked = bool(tracked) or protected
        self._manual_clock = bool(manual_clock)

    # --- life ---

    def close(self) -> None:
        """Release everything once calls in other threads have ended. Closing again is not an error.

        Raises:
            BlockBusyError: views of blocks are alive.
        """
        self._handle.close()

    def __exit__(self, *error: object) -> None:
        alive = self._handle.close(force=True)
        if not alive:
            return
        message = f"heap {self.id} is closed with {_format.plural(alive, 'live view')}"
        try:
            warnings.warn(
                f"{message}; its memory goes with the last", ResourceWarning, stacklevel=2
            )
        except ResourceWarning:
            if error[1] is None:  # an exception of the body takes precedence
                raise

    # --- blocks ---

    def alloc(
        self,
        size: SupportsIndex,
        *,
        zero: bool = False,
        align: SupportsIndex | None = None,
        scan: bool = False,
    ) -> Block:
        """Allocate a block.

        Args:
            size: bytes; 0 gives a unique smallest slot.
            zero: the memory reads as zero.
            align: alignment in bytes, a power of two; None: that of the class.
            scan: the block may hold pointers; such blocks have separate spans.

        Raises:
            TypeError: size or align is not an integer (a bool is rejected).
            InvalidError: size is negative or above 2**63 - 1, or align is not a power of two.
            OutOfMemoryError: no memory, or the heap's limit is reached.
            HeapClosedError: the heap is closed.

        >>> with Heap() as heap:
        ...     block = heap.alloc(100, align=4096)
        ...     block.address % 4096, block.size_bytes, block.usable_bytes
        (0, 100, 4096)
        """
        request = request_of(size, zero, align, scan)
        with self._handle as heap:
            functions = lib.sw_heap_alloc, lib.sw_heap_alloc_aligned
            return new_block(self._handle, heap, heap, functions, request)

    def open_cache(self) -> ThreadCache:
        """Open a thread cache of the heap, to be closed before it.

        >>> with Heap() as heap, heap.open_cache() as cache:
        ...     len(cache.alloc(100))
        100
        """
        return ThreadCache(self)

    def path(self, size: SupportsIndex, *, zero: bool = False, scan: bool = False) -> str:
        """Return what serves a request of `size` bytes.

        "specialised": a function generated for the class; "tiny": packing of small objects;
        "generic": the path for any class; "large": whole pages.

        >>> Heap(tracked=False).path(64, scan=True), Heap().path(64), Heap().path(1 << 20)
        ('specialised', 'generic', 'large')
        """
        wanted = _lib.as_index(size, "size")
        flags = (lib.SW_ZERO if zero else 0) | (lib.SW_SCAN if scan else 0)
        with self._handle as heap:
            return PATHS[lib.sw_heap_path(heap, wanted, flags)]

    # --- accounts ---

    def ledger(self, *, resident: bool = False) -> Ledger:
        """Return the ledger: where every byte is now. Exact if no other thread is inside a call.

        Args:
            resident: also query the system for the heap's resident pages, for `Ledger.resident`.
                This visits every slot, so it takes longer than the ledger itself. Only pages that
                were written to are resident: `alloc` writes nothing to a block, nor does `run`
                unless it has touch="ends". Pages of fresh spans are resident before their first
                use, once their class has filled four spans.

        Raises:
            StateError: the heap is dry, so it has no resident memory.
            UnsupportedError: the system does not report residency.
        """
        handle = self._handle
        with handle as heap:
            stats = RunStats.read(handle.runner()) if handle.has_run else None
            rss = rss_bytes(handle)
            ledger = read_ledger(
                heap, handle.table, at="now", stats=stats, rss_bytes=rss, resident=resident
            )
        return replace(ledger, remark=_UNWRITTEN) if resident and handle.unwritten else ledger

    def stats(self) -> HeapStats:
        """Return the counters: live objects, spans, locks, system calls; not calls of `alloc`.

        >>> with Heap() as heap:
        ...     block = heap.alloc(33)
        ...     heap.stats().live_objects, heap.stats().requested_bytes
        (1, 33)
        """
        ledger = ffi.new("sw_ledger *")
        counts = _lib.options_of("sw_heap_stats")
        with self._handle as heap:
            check(lib.sw_heap_ledger(heap, ledger, ffi.NULL, 0))
            check(lib.sw_heap_stats_read(heap, counts))
        names = HeapStats.__dataclass_fields__
        return HeapStats(
            **{name: getattr(counts if hasattr(counts, name) else ledger, name) for name in names}
        )

    def verify(self) -> None:
        """Check every invariant of the whole heap.

        Raises:
            CorruptionError: an invariant is violated; the message names the first.
            BlockBusyError: another thread is inside a call.
        """
        handle = self._handle
        with handle.lock:  # while the lock is held, no other thread can begin a call
            if handle.callers:
                raise errors.BlockBusyError(
                    f"heap {self.id}: another thread is inside a call; verify when it is idle"
                )
            with handle as heap:
                status = lib.sw_heap_verify(heap)
                if status != 0:
                    raise errors.CorruptionError(str(_lib.failure(status)))

    def explain(self, size: SupportsIndex) -> Explanation:
        """Explain how the heap's table serves a request of `size` bytes."""
        return self._handle.table.explain(size)

    # --- workloads ---

    def run(self, ops: AnyRows, touch: str = "none") -> RunStats:
        """Run a whole workload in one C call, without the GIL.

        Each recorded thread has its own cache, whichever thread calls this. Objects that are live
        at the end stay live, and the next run may free them by their ids; `drain()` frees all.
        With tiny=True, freeing or resizing an object in a shared block does not free its bytes
        (`RunStats.shared_frees`). Ctrl-C stops the run between two operations.

        Args:
            ops: structured array of `spanwise.OPS_DTYPE`, shape (n,).
            touch: bytes to write of each new object: "none", or "ends" (the first and last byte).
                With "none" most of their pages do not become resident.

        Returns:
            Counts over all runs of this heap.

        Raises:
            TypeError: ops is not such an array.
            InvalidError: an operation is impossible, or the id of its object is above the number
                of operations run in this heap, including these; or touch is unknown.
            StateError: another thread is running a workload here.
        """
        rows = as_ops(ops)
        with self._handle.running() as runner:
            check_ids(runner, rows)
            run_ops(runner, rows, touch=touch)
            if touch == "none" and len(rows):
                self._handle.unwritten = True
            return RunStats.read(runner)

    def drain(self) -> None:
        """Free every object that is live after the runs.

        Raises:
            StateError: another thread is running a workload here.
        """
        with self._handle.running() as runner:
            lib.sw_runner_drain(runner)
            self._handle.unwritten = False

    def set_time(self, seconds: float) -> None:
        """Advance the clock of a heap with manual_clock, never backwards; idle pages decay.

        >>> with Heap(manual_clock=True, options=HeapOptions(decay_ms=10)) as heap:
        ...     heap.alloc(1 << 20).free()
        ...     for tick in range(5):
        ...         heap.set_time(tick * 0.02)
        ...     heap.ledger().free_page_bytes
        0

        Raises:
            InvalidError: the time is negative, or the heap has no manual clock.
        """
        now_ns = _lib.as_nanoseconds(seconds)
        with self._handle as heap:
            if not self._manual_clock:
                raise errors.InvalidError(
                    f"heap {self.id}: the clock is the system's; make the heap with manual_clock"
                )
            lib.sw_heap_set_time(heap, now_ns)

    # --- properties ---

    @property
    def options(self) -> HeapOptions:
        """The heap's options."""
        return self._options

    def __repr__(self) -> str:
        kind = "dry" if self._handle.dry else "tracked" if self._tracked else "untracked"
        try:
            state = f"{_format.size(self.held_bytes)} held"
        except errors.HeapClosedError:
            state = "closed"
        return f"<Heap {self.id}: table {self.table.name}, {kind}, {state}>"


def rss_bytes(handle: HeapHandle) -> int | None:
    """Return the resident bytes of this process; None for a dry heap, or if unknown."""
    if handle.dry:
        return None
    try:
        pages = Path("/proc/self/statm").read_bytes().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
