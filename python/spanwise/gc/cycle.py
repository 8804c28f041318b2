# SPDX-License-Identifier: Apache-2.0
"""What the cycles of a collector did, and how long each call of them took."""

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
from spanwise.gc.handle import GcHandle
from spanwise.gc.pauses import mutator_utilisation, pause_histogram
from spanwise.heap.handle import HandleOwner
from spanwise.results.drawing import draw
from spanwise.results.rows import Result, Rows, as_rows, rows_of

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
since the heap was made, its length, and the bytes that the heap held at its end."""


@dataclass(frozen=True)
class Cycle(Result):
    """One cycle of a collector. While it runs, the figures are those so far.

    Attributes:
        number: 1, 2, ...
        steps: calls that worked on it.
        mark_ns: elapsed time of marking in those calls.
        sweep_ns: and of sweeping.
        longest_ns: of the longest such call.
        marked_objects: objects that a root reached, or that were allocated since the cycle began.
        marked_bytes: their slots.
        freed_objects: objects that no root reached.
        freed_bytes: their slots.
        pending_objects: objects that the program freed during the cycle; the sweep gives them back.
        pending_bytes: their slots.
        overflows: objects for which the mark stack was refused memory.
        given_up: the cycle freed pending objects only.
        due_finalizers: finalizers that it has made due.
        cleared_refs: weak references to objects that no root reached.
        order: "object" or "span": the unit in which the cycle marked.
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

    @property
    def marked_objects_per_second(self) -> float:
        """Objects marked in a second of marking; 0.0 when no time passed."""
        return self.marked_objects * 1e9 / self.mark_ns if self.mark_ns else 0.0

    def __str__(self) -> str:
        end = ", given up" if self.given_up else ""
        times = (self.mark_ns, self.sweep_ns, self.longest_ns)
        mark, swept, longest = (f"{_format.digits(ns / 1e6, 3)} ms" for ns in times)
        return (
            f"cycle {self.number}: {_format.size(self.marked_bytes)} live in {self.marked_objects}"
            f" objects, {_format.size(self.freed_bytes)} freed of {self.freed_objects}; marked in"
            f" {mark}, swept in {swept}, longest of"
            f" {self.steps} calls {longest}{end}"
        )


def read_cycle(c_gc: Any) -> Cycle | None:
    """The cycle under way, or the last one; None: there was none."""
    record = _lib.options_of("sw_gc_cycle")
    try:
        check(lib.sw_gc_last_cycle(c_gc, record))
    except StateError:
        return None
    fields = _lib.struct_dict(record)
    del fields["struct_bytes"]
    fields["given_up"] = bool(fields["given_up"])
    fields["order"] = ORDERS[fields["order"]]
    return Cycle(**fields)


class Cycles(HandleOwner):
    """Runs the cycles of a collected heap; keeps those that have ended, and the calls."""

    __slots__ = ("_born_ns", "_cycles", "_events", "_lost_events", "_pauses")
    _handle: GcHandle

    def __init__(self) -> None:
        self._cycles: list[Cycle] = []
        self._pauses: list[tuple[int, str, int, int, int]] = []
        self._events: list[NDArray[np.void]] = []
        self._lost_events = 0
        self._born_ns = time.perf_counter_ns()

    def _now_ns(self) -> int:
        return time.perf_counter_ns() - self._born_ns

    @property
    def cycles(self) -> Rows:
        """The cycles that have ended: a row each, with the fields of `Cycle`."""
        dicts = [cycle.to_dict() for cycle in list(self._cycles)]
        return rows_of(dicts, tuple(Cycle.__dataclass_fields__))

    @property
    def pauses(self) -> Rows:
        """The calls that worked on cycles: `cycle`, `phase` before, `at_ns`, `ns`, `held_bytes`."""
        return as_rows(np.array(list(self._pauses), PAUSE_DTYPE))

    def pause_histogram(self) -> Rows:
        """How many of those calls took how long, as `spanwise.pause_histogram`."""
        return pause_histogram(self.pauses["ns"])

    def utilisation(self, windows_ns: Iterable[float] | None = None) -> Rows:
        """The least share of any window of time that was left to the program, until now.

        Args:
            windows_ns: lengths of windows; None: from the shortest call to the heap's whole life.

        Returns:
            `window_ns`, `utilisation` (0 to 1), one row a window; see
            `spanwise.mutator_utilisation`.

        Raises:
            InvalidError: a window is not above 0, or longer than the heap's life.
        """
        if windows_ns is not None:
            as_iterable(windows_ns, "windows_ns")
        pauses = self.pauses
        total = self._now_ns()
        return mutator_utilisation(pauses["at_ns"], pauses["ns"], total, windows_ns)

    def plot_pauses(self, ax: Axes | None = None) -> Axes:
        """How long the calls took that worked on cycles: their share up to each time."""
        return draw("pauses", self.pauses, ax)

    def plot_pause_histogram(self, ax: Axes | None = None) -> Axes:
        """How many calls that worked on cycles took how long."""
        return draw("pause_histogram", self.pause_histogram(), ax)

    def plot_utilisation(self, ax: Axes | None = None) -> Axes:
        """The least share of windows of time that was left to the program, by their length."""
        return draw("utilisation", self.utilisation(), ax)

    def plot_cycles(self, ax: Axes | None = None) -> Axes:
        """What each cycle kept and freed."""
        return draw("cycles", self.cycles, ax)

    # --- cycles ---

    @property
    def phase(self) -> str:
        """What a step would do now: "marking", "sweeping", or "idle" between cycles."""
        with self._handle as c_gc:
            return PHASES[lib.sw_gc_current_phase(c_gc)]

    def _work(self, call: Any, *arguments: Any) -> Cycle:
        """Makes a C call that works on a cycle, notes it in the history, and returns the cycle."""
        with self._handle as c_gc:
            before, phase = read_cycle(c_gc), self.phase
            status = call(c_gc, *arguments)
            error = None if status == 0 else _lib.failure(status)
            cycle = self._note(c_gc, before, phase)
            if error is not None:
                raise error
            if cycle is None:
                raise StateError("there was no cycle yet; call start() or collect()")
            return cycle

    def _note(self, c_gc: Any, before: Cycle | None, phase: str) -> Cycle | None:
        """Returns the last cycle; keeps the call if it worked on one, and the cycle if it ended."""
        cycle = read_cycle(c_gc)
        if cycle is not None and cycle != before:
            spent = cycle.mark_ns + cycle.sweep_ns
            if before is not None and before.number == cycle.number:
                spent -= before.mark_ns + before.sweep_ns
            begun = max(self._now_ns() - spent, 0)
            held = int(lib.sw_heap_held_bytes(self._handle.heap))
            self._pauses.append((cycle.number, phase, begun, spent, held))
            if self.phase == "idle":
                self._cycles.append(cycle)
        return cycle

    def _set_order(self, order: str | None) -> None:
        if order is None:
            return
        index = _lib.as_choice(order, "order", ORDERS.values())
        with self._handle as c_gc:
            check(lib.sw_gc_set_order(c_gc, list(ORDERS)[index]))

    def collect(self, *, order: str | None = None) -> Cycle:
        """A whole cycle; one that is under way is finished before.

        Args:
            order: how this cycle and later ones mark. "object": one object at a time, each
                prefetched before it is scanned. "span": the queue holds spans instead of objects,
                and all objects that were marked in a span meanwhile are scanned together. None: as
                the cycle before, at first "object".
                Both keep and free the same objects.

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
        """Begins a cycle: reads the roots.

        Args:
            order: as `collect`.

        Raises:
            InvalidError: there is no such order.
            StateError: one is under way.
        """
        with self._handle:
            self._set_order(order)
            return self._work(lib.sw_gc_start)

    def step(self, work: SupportsIndex = 1000) -> Cycle:
        """Does some work of the cycle that is under way; nothing when there is none.

        Args:
            work: objects to scan (512 B of a longer one count as one), or words of 64 slots to
                sweep.

        Raises:
            StateError: checkmark found a reachable object that was not marked.
        """
        return self._work(lib.sw_gc_step, _lib.as_index(work, "work"))

    def step_ns(self, ns: SupportsIndex) -> Cycle:
        """As `step`, for about so long.

        Args:
            ns: nanoseconds; the clock is looked at after each 256 units of work.

        Raises:
            StateError: checkmark found a reachable object that was not marked.
        """
        return self._work(lib.sw_gc_step_ns, _lib.as_index(ns, "ns"))

    def finish(self) -> Cycle:
        """Does what is left of the cycle.

        Raises:
            StateError: none is under way, or checkmark found an object that was not marked.
        """
        return self._work(lib.sw_gc_finish, ffi.NULL)

    def abandon(self) -> Cycle:
        """Gives up a cycle that marks: its sweep frees what was freed explicitly, nothing else.

        Raises:
            StateError: no cycle marks.
        """
        return self._work(lib.sw_gc_abandon)
