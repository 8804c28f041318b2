# SPDX-License-Identifier: Apache-2.0
"""The cycles of a collector and how long each call took; accounts, map and debug options."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib
from spanwise._lib import as_iterable, check, ffi, lib
from spanwise.errors import StateError
from spanwise.gc.events import (
    CollectorEvents,
    as_events,
    mutator_utilisation,
    pause_histogram,
    take_events,
)
from spanwise.gc.handle import GcHandle
from spanwise.heap.handle import HandleOwner
from spanwise.ledger.ledger import Ledger, read_ledger
from spanwise.results.rows import Result, Rows, as_rows, draw, rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PHASES = {lib.SW_GC_IDLE: "idle", lib.SW_GC_MARKING: "marking", lib.SW_GC_SWEEPING: "sweeping"}

ORDERS = {lib.SW_GC_BY_OBJECT: "object", lib.SW_GC_BY_SPAN: "span"}

PAUSE_DTYPE = np.dtype(
    [
        ("cycle", np.uint64),
        ("phase", "U8"),
        ("at_ns", np.uint64),
        ("ns", np.uint64),
        ("held_bytes", np.uint64),
    ]
)
"""A call that worked on a cycle: the cycle's number, the phase in which the call began, its start
(since the heap was created), its duration, and the bytes that the heap held when it returned."""


@dataclass(frozen=True)
class Cycle(Result):
    """One cycle of a collector. While the cycle runs, the figures are intermediate.

    Attributes:
        number: 1, 2, ...
        steps: calls that worked on the cycle.
        mark_ns: time that these calls spent marking.
        sweep_ns: time that they spent sweeping.
        longest_ns: duration of the longest call.
        marked_objects: objects reachable from a root, or allocated since the cycle began.
        marked_bytes: bytes of their slots.
        freed_objects: unreachable objects.
        freed_bytes: bytes of their slots.
        pending_objects: objects that the program freed during the cycle; the sweep reclaims them.
        pending_bytes: bytes of their slots.
        overflows: objects for which the mark stack could not get memory.
        given_up: the cycle was abandoned and freed pending objects only.
        due_finalizers: finalizers that the cycle made due.
        cleared_refs: weak references cleared because their objects were unreachable.
        order: "object" or "span": the unit of marking.
        concurrent: a background thread marked it (`CollectedHeap(concurrent=True)`).
        start_stop_ns: of a concurrent cycle, the stop in which it began.
        end_stop_ns: the longest stop that ended its marking, or tried to.
        end_stops: number of these stops.
        stalls: allocations that waited for its end.
    """

    number: int
    steps: int
    mark_ns: int
    sweep_ns: int
    longest_ns: int
    marked_objects: int
    marked_bytes: int
    freed_objects: int
    freed_bytes: int
    pending_objects: int
    pending_bytes: int
    overflows: int
    given_up: bool
    due_finalizers: int
    cleared_refs: int
    order: str
    concurrent: bool = False
    start_stop_ns: int = 0
    end_stop_ns: int = 0
    end_stops: int = 0
    stalls: int = 0

    @property
    def stopped_ns(self) -> int:
        """Time in which the program was stopped: all of a cycle's time, unless it is concurrent."""
        if self.concurrent:
            return self.start_stop_ns + self.end_stop_ns
        return self.mark_ns + self.sweep_ns

    @property
    def marked_objects_per_second(self) -> float:
        """Objects marked per second of marking; 0.0 if no time passed."""
        return self.marked_objects * 1e9 / self.mark_ns if self.mark_ns else 0.0

    def __str__(self) -> str:
        end = ", given up" if self.given_up else ""
        times = (self.mark_ns, self.sweep_ns, self.longest_ns)
        mark, swept, longest = (f"{_format.digits(ns / 1e6, 3)} ms" for ns in times)
        return (
            f"cycle {self.number}: {_format.size(self.marked_bytes)} live in {self.marked_objects}"
            f" objects, {_format.size(self.freed_bytes)} freed of {self.freed_objects}; marked in"
            f" {mark}, swept in {swept}, longest of"
            f" {_format.plural(self.steps, 'call')} {longest}{end}"
        )


def read_cycle(c_gc: Any) -> Cycle | None:
    """Return the running cycle, or else the last one; None if there was none."""
    record = _lib.options_of("sw_gc_cycle")
    try:
        check(lib.sw_gc_last_cycle(c_gc, record))
    except StateError:
        return None
    fields = _lib.struct_dict(record)
    del fields["struct_bytes"]
    fields["given_up"] = bool(fields["given_up"])
    fields["concurrent"] = bool(fields["concurrent"])
    fields["order"] = ORDERS[fields["order"]]
    return Cycle(**fields)


class Cycles(HandleOwner):
    """Base of `CollectedHeap` that runs cycles, keeps a history of them, and shows the heap."""

    __slots__ = (
        "_born_ns",
        "_cycles",
        "_events",
        "_lost_events",
        "_pauses",
        "_recorded_ns",
        "_running",
    )
    _handle: GcHandle

    def __init__(self) -> None:
        self._cycles: list[Cycle] = []
        self._pauses: list[tuple[int, str, int, int, int]] = []
        self._events: list[NDArray[np.void]] = []
        self._lost_events = 0
        self._recorded_ns: int | None = None  # since when no event is missing; None: not recorded
        self._running: Cycle | None = None  # as last seen, while a background thread works on it
        self._born_ns = time.perf_counter_ns()

    def _now_ns(self) -> int:
        return time.perf_counter_ns() - self._born_ns

    @property
    def cycles(self) -> Rows:
        """The finished cycles, one row per cycle with the fields of `Cycle`."""
        dicts = [cycle.to_dict() for cycle in list(self._cycles)]
        return rows_of(dicts, tuple(Cycle.__dataclass_fields__))

    @property
    def pauses(self) -> Rows:
        """The calls that worked on cycles: `cycle`, `phase` before, `at_ns`, `ns`, `held_bytes`.

        Allocations that only swept a span are not among them.

        Of a concurrent cycle: its first stop, when it begins, and the longest of those that ended
        marking, when a call finds that the cycle has ended. Each is counted from the request, with
        the wait for threads that still run; `events()` has that wait (`wait`) and the time in
        which nothing ran (`pause`) apart.
        """
        return as_rows(np.array(list(self._pauses), PAUSE_DTYPE))

    def pause_histogram(self) -> Rows:
        """Return a histogram of the durations in `pauses`; see `spanwise.pause_histogram()`."""
        return pause_histogram(self.pauses["ns"])

    def utilisation(self, windows_ns: Iterable[float] | None = None) -> Rows:
        """Return the minimum mutator utilisation by length of the window, up to now.

        It takes the rows of `pauses` for pauses; `events().utilisation()` is exact for concurrent
        cycles.

        Args:
            windows_ns: lengths of windows; None: 61 up to the heap's lifetime, as in
                `spanwise.mutator_utilisation()`.

        Returns:
            `window_ns` and `utilisation` (0 to 1), one row per window; see
            `spanwise.mutator_utilisation()`.

        Raises:
            InvalidError: a window is not positive, or is longer than the heap's lifetime.
        """
        if windows_ns is not None:
            as_iterable(windows_ns, "windows_ns")
        pauses = self.pauses
        total = self._now_ns()
        return mutator_utilisation(pauses["at_ns"], pauses["ns"], total, windows_ns)

    # To compare heaps, these draw on one Axes, each with a label.

    def plot_pauses(self, ax: Axes | None = None, *, label: str = "") -> Axes:
        """Draw the cumulative distribution of the durations of calls that worked on cycles.

        Args:
            ax: where to draw; None makes a new figure.
            label: names the heap in the legend, and draws all calls as one line; "": one line per
                phase in which they began.
        """
        return draw("pauses", self.pauses, ax, label=label)

    def plot_pause_histogram(self, ax: Axes | None = None, *, label: str = "") -> Axes:
        """Draw a histogram of the durations of calls that worked on cycles.

        Args:
            ax: where to draw; None makes a new figure.
            label: names the heap in the legend, and draws an outline; "": filled.
        """
        return draw("pause_histogram", self.pause_histogram(), ax, label=label)

    def plot_utilisation(self, ax: Axes | None = None, *, label: str = "") -> Axes:
        """Draw the minimum mutator utilisation by length of the window.

        Args:
            ax: where to draw; None makes a new figure.
            label: names the heap in the legend.
        """
        return draw("utilisation", self.utilisation(), ax, label=label)

    def plot_cycles(self, ax: Axes | None = None, *, label: str = "") -> Axes:
        """Draw the bytes that each cycle kept and freed.

        Args:
            ax: where to draw; None makes a new figure.
            label: names the heap in the legend, and draws lines; "": stacked bars.
        """
        return draw("cycles", self.cycles, ax, label=label)

    # --- cycles ---

    @property
    def phase(self) -> str:
        """The phase: "marking", "sweeping", or "idle" between cycles."""
        with self._handle as c_gc:
            return PHASES[lib.sw_gc_current_phase(c_gc)]

    def _work(self, call: Any, *arguments: Any) -> Cycle:
        """Make a C call that works on a cycle, add it to the history, and return the cycle."""
        with self._handle as c_gc:
            before, phase = self._before(c_gc)
            status = call(c_gc, *arguments)
            error = None if status == 0 else _lib.failure(status)
            cycle = self._note(c_gc, before, phase)
            if error is not None:
                raise error
            if cycle is None:
                raise StateError("there was no cycle yet; call start() or collect()")
            return cycle

    def _step(self, call: Any, work: int) -> Cycle | None:
        with self._handle:
            return None if self.phase == "idle" else self._work(call, work)

    def _note(self, c_gc: Any, before: Cycle | None, phase: str) -> Cycle | None:
        """Return the last cycle; record the call if it worked on one, and the cycle if it ended."""
        idle = self.phase == "idle"  # read first: then the figures of a cycle that ended are final
        cycle = read_cycle(c_gc)
        if cycle is not None and (cycle != before or (idle and self._running is not None)):
            spent = cycle.stopped_ns
            if before is not None and before.number == cycle.number:
                spent -= before.stopped_ns
            begun = max(self._now_ns() - spent, 0)
            held = int(lib.sw_heap_held_bytes(self._handle.heap))
            if spent > 0:  # else only the background thread, or the sweep of an allocation, worked
                self._pauses.append((cycle.number, phase, begun, spent, held))
            if idle:
                self._cycles.append(cycle)
            self._running = cycle if cycle.concurrent and not idle else None
        return cycle

    def _before(self, c_gc: Any) -> tuple[Cycle | None, str]:
        """Return the last cycle and the phase; first note a cycle that ended meanwhile."""
        if self._running is not None and self.phase == "idle":
            self._note(c_gc, self._running, "marking")
        return read_cycle(c_gc), self.phase

    def _set_order(self, order: str | None) -> None:
        if order is None:
            return
        index = _lib.as_choice(order, "order", ORDERS.values())
        with self._handle as c_gc:
            check(lib.sw_gc_set_order(c_gc, list(ORDERS)[index]))

    def collect(self, *, order: str | None = None) -> Cycle:
        """Run a whole cycle, after finishing one that is running.

        Args:
            order: how this cycle and later ones mark. "object": one object at a time, each
                prefetched before it is scanned. "span": the queue holds spans, and the objects
                marked in a queued span are scanned together. Both free the same objects. None: as
                the previous cycle, initially "object".

        Raises:
            InvalidError: there is no such order.
            StateError: checkmark found a reachable object that was not marked.
            HeapClosedError: the heap is closed.
        """
        with self._handle:
            if self.phase != "idle":
                self.finish()
            self._set_order(order)
            return self._work(lib.sw_gc_collect, ffi.NULL)

    def start(self, *, order: str | None = None) -> Cycle:
        """Begin a cycle by reading the roots.

        Args:
            order: as in `collect()`.

        Raises:
            InvalidError: there is no such order.
            StateError: a cycle is running.
        """
        with self._handle:
            self._set_order(order)
            return self._work(lib.sw_gc_start)

    def step(self, work: SupportsIndex = 1000) -> Cycle | None:
        """Do some work of the running cycle, and return it; None if none is running.

        So `while heap.step(): ...` runs a cycle to its end, with work of the program in between.

        Args:
            work: objects to scan (each 512 B of a longer object count as one), or groups of 64
                slots to sweep.

        Raises:
            StateError: checkmark found a reachable object that was not marked.
        """
        return self._step(lib.sw_gc_step, _lib.as_index(work, "work"))

    def step_ns(self, ns: SupportsIndex) -> Cycle | None:
        """Do work as `step()` does, for about `ns` nanoseconds.

        Args:
            ns: nanoseconds; the clock is read after every 256 units of work.

        Raises:
            StateError: checkmark found a reachable object that was not marked.
        """
        return self._step(lib.sw_gc_step_ns, _lib.as_index(ns, "ns"))

    def finish(self) -> Cycle:
        """Finish the running cycle.

        Raises:
            StateError: no cycle is running, or checkmark found an object that was not marked.
        """
        return self._work(lib.sw_gc_finish, ffi.NULL)

    def wait(self) -> Cycle:
        """Wait for the end of the running cycle of a concurrent heap; finish it in other heaps.

        Returns:
            The cycle, or the last one if none is running.

        Raises:
            StateError: there was no cycle, or checkmark found an object that was not marked.

        >>> heap = CollectedHeap(concurrent=True)
        >>> leaf = heap.new(heap.add_type("leaf", 8))
        >>> heap.start().concurrent
        True
        >>> del leaf  # a root when the cycle began
        >>> heap.wait().freed_objects
        0
        """
        return self._work(lib.sw_gc_wait, ffi.NULL)

    def abandon(self) -> Cycle:
        """Abandon a cycle that is marking: its sweep reclaims only explicitly freed objects.

        Raises:
            StateError: no cycle is marking.
        """
        return self._work(lib.sw_gc_abandon)

    # --- accounts and debug options ---

    def set_debug(
        self,
        *,
        checkmark: bool = False,
        clobber: bool = False,
        always: bool = False,
        dangling: bool = False,
    ) -> None:
        """Set the debug options.

        Args:
            checkmark: compare each marking with an independent second one.
            clobber: fill freed memory with the byte 0xDB during the sweep.
            always: collect before each allocation by `new()`.
            dangling: abort when a cycle finds a pointer into a safe arena that was freed or reset,
                with a report of the pointer, the object and who freed the arena.
        """
        chosen = [
            (checkmark, lib.SW_GC_CHECKMARK),
            (clobber, lib.SW_GC_CLOBBER),
            (always, lib.SW_GC_ALWAYS),
            (dangling, lib.SW_GC_DANGLING),
        ]
        with self._handle as c_gc:
            check(lib.sw_gc_set_debug(c_gc, sum(bit for wanted, bit in chosen if wanted)))

    def record_events(self, capacity: SupportsIndex = 1 << 16) -> None:
        """Start recording events, which `events()` returns; drop those recorded before.

        Args:
            capacity: the most events between two calls of `events()`, 40 bytes each; beyond that,
                the oldest are overwritten. 0: record none.

        Raises:
            InvalidError: the capacity is above 2**26.
            OutOfMemoryError: no memory; nothing changes.
        """
        with self._handle as c_gc:
            check(lib.sw_gc_record_events(c_gc, _lib.as_index(capacity, "capacity")))
            self._events.clear()
            self._lost_events = 0
            self._recorded_ns = self._now_ns() if capacity else None

    def events(self) -> CollectorEvents:
        """Return the events since `record_events()`; none without that call."""
        with self._handle as c_gc:
            rows, lost, complete_ns = take_events(c_gc)
            self._events.append(rows)
            if lost:
                self._lost_events += lost
                self._recorded_ns = complete_ns
            now, begin = self._now_ns(), self._recorded_ns
            begin = now if begin is None else begin
            return as_events(f"heap {self.id}", self._events, self._lost_events, now, begin)

    def ledger(self, *, resident: bool = False) -> Ledger:
        """Return the ledger: where the heap's bytes are; `resident`: as in `Heap.ledger()`.

        Objects that the sweep of the running cycle will reclaim count as live; `pending_bytes` and
        `unswept_bytes` are their bytes.
        """
        handle = self._handle
        with handle:
            return read_ledger(handle.heap, handle.table, at="now", resident=resident)

    def verify(self) -> None:
        """Check all invariants of the heap and the collector.

        Raises:
            StateError: an invariant is violated; the message names it.
        """
        with self._handle as c_gc:
            check(lib.sw_heap_verify(self._handle.heap))
            check(lib.sw_gc_verify(c_gc))
