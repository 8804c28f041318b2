# SPDX-License-Identifier: Apache-2.0
"""The cycles of a collector and the time of each call; ledger, map and debug options."""

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
"""A stop of the program for a cycle: the cycle's number, the phase in which the stop began, its
start (since the heap was created), its duration, and the bytes that the heap held at its end."""

_BLOCK = 64


@dataclass(frozen=True)
class Cycle(Result):
    """One cycle of a collector. While the cycle runs, the figures are intermediate.

    Attributes:
        number: 1, 2, ...
        steps: calls that worked on the cycle, and `end_stops`.
        mark_ns: time spent marking, in these and by a background thread.
        sweep_ns: time spent sweeping, likewise.
        longest_ns: the longest marking and sweeping of one of `steps`. It excludes waits, so it may
            be less than `start_stop_ns` and `end_stop_ns`, which begin with the request to stop and
            include the wait for threads that still run.
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
        start_stop_ns: of a concurrent cycle, the stop in which it began, with the wait.
        end_stop_ns: the longest stop of the background thread to end marking, with the wait.
        end_stops: number of these stops; some may only have tried to.
        stalls: allocations that reached the goal, and waited for the end of marking.
        markers: threads that marked at once (`CollectedHeap(markers=...)`), with assists.
        background_ns: marking by background threads while the program ran, summed over them.
        assists: allocations that marked, or waited for marking, because of the pace.
        assist_ns: elapsed time of these, summed over threads.
        assist_work: objects that they scanned; each 512 bytes of a long one count as one.
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
    markers: int = 1
    background_ns: int = 0
    assists: int = 0
    assist_ns: int = 0
    assist_work: int = 0

    @property
    def stopped_ns(self) -> int:
        """Time in which the program was stopped: all of a cycle's time, unless it is concurrent.

        Of a concurrent cycle, `start_stop_ns` and `end_stop_ns`. The stops of other calls that
        worked on it, such as `finish()`, are in `CollectedHeap.pauses` only.
        """
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


def read_cycle(c_gc: Any, number: int | None = None) -> Cycle | None:
    """Return the running cycle, or else the last one; None if there was none.

    Args:
        c_gc: the collector.
        number: return the cycle with this number instead, if it has ended and C still has it.
    """
    record = _lib.options_of("sw_gc_cycle")
    try:
        if number is None:
            check(lib.sw_gc_last_cycle(c_gc, record))
        else:
            check(lib.sw_gc_ended_cycle(c_gc, number, record))
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
        "_always",
        "_block",
        "_born_ns",
        "_cycles",
        "_ended",
        "_events",
        "_latest",
        "_lost_events",
        "_pauses",
        "_recorded_ns",
    )
    _handle: GcHandle

    def __init__(self) -> None:
        self._cycles: list[Cycle] = []
        self._pauses: list[tuple[int, str, int, int, int]] = []
        self._events: list[NDArray[np.void]] = []
        self._lost_events = 0
        self._recorded_ns: int | None = None  # since when no event is missing; None: not recorded
        self._latest = 0  # number of the latest cycle in _pauses
        self._ended = 0  # number of the latest cycle that has ended in _cycles
        self._block = ffi.new("sw_gc_pause[]", _BLOCK)
        self._always = False  # `new()` collects (`set_debug()`)
        self._born_ns = time.perf_counter_ns()

    def _now_ns(self) -> int:
        return time.perf_counter_ns() - self._born_ns

    @property
    def cycles(self) -> Rows:
        """The finished cycles, one row per cycle with the fields of `Cycle`.

        Also those that a background thread has ended since the last call.
        """
        self._handle.read(self._add_ended)  # close() does it, too
        dicts = [cycle.to_dict() for cycle in list(self._cycles)]
        return rows_of(dicts, tuple(Cycle.__dataclass_fields__))

    @property
    def pauses(self) -> Rows:
        """Every stop for a cycle: `cycle`, `phase` before, `at_ns`, `ns`, `held_bytes`.

        A stop is a call that worked on a cycle, or one of the background thread to end marking; not
        an allocation that only swept a span, and not the marking and sweeping of the background
        thread. The rows are those of `events().of("pause")`, but need no `record_events()`. They
        begin when all threads have stopped; `events()` has the wait for that (`wait`).
        """
        self._handle.read(self._add_ended)
        return as_rows(np.array(list(self._pauses), PAUSE_DTYPE))

    def pause_histogram(self) -> Rows:
        """Return a histogram of the durations in `pauses`; see `spanwise.pause_histogram()`."""
        return pause_histogram(self.pauses["ns"])

    def utilisation(self, windows_ns: Iterable[float] | None = None) -> Rows:
        """Return the minimum mutator utilisation by length of the window, up to now.

        It takes the rows of `pauses`.

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
        """Draw the cumulative distribution of the durations in `pauses`.

        Args:
            ax: where to draw; None makes a new figure.
            label: names the heap in the legend, and draws all pauses as one line; "": one line per
                phase in which they began.
        """
        return draw("pauses", self.pauses, ax, label=label)

    def plot_pause_histogram(self, ax: Axes | None = None, *, label: str = "") -> Axes:
        """Draw a histogram of the durations in `pauses`.

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
        """Make a C call that works on a cycle, read the history, and return the cycle."""
        with self._handle as c_gc:
            status = call(c_gc, *arguments)
            error = None if status == 0 else _lib.failure(status)
            self._add_ended(c_gc)
            if error is not None:
                raise error
            cycle = read_cycle(c_gc)
            assert cycle is not None  # else the call has failed
            return cycle

    def _step(self, call: Any, work: int) -> Cycle | None:
        with self._handle:
            return None if self.phase == "idle" else self._work(call, work)

    def _add_ended(self, c_gc: Any) -> None:
        """Add the pauses and cycles that have ended since the last call."""
        count = _BLOCK
        while count == _BLOCK:
            count = int(lib.sw_gc_take_pauses(c_gc, self._block, _BLOCK, ffi.NULL))
            for pause in self._block[0:count]:
                row = (PHASES[pause.phase], pause.start_ns, pause.ns, pause.held_bytes)
                self._pauses.append((pause.cycle, *row))
                self._latest = pause.cycle
        if self._ended == self._latest:
            return
        runs = lib.sw_gc_current_phase(c_gc) != lib.SW_GC_IDLE
        last = self._latest - runs
        for number in range(max(self._ended, last - lib.SW_GC_ENDED_CYCLES) + 1, last + 1):
            cycle = read_cycle(c_gc, number)
            if cycle is not None:
                self._cycles.append(cycle)
                self._ended = number

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
        """Finish the running cycle, with the program stopped; `wait()` lets it run meanwhile.

        If the background thread of a concurrent heap has ended the cycle first, return it: a cycle
        that has ended, and that neither `finish()` nor `wait()` has returned.

        Raises:
            StateError: there is no such cycle, or checkmark found an object that was not marked.
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
        return self._work(lib.sw_gc_wait, _lib.options_of("sw_gc_cycle"))

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
            self._always = bool(always)

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
