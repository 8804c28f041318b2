# SPDX-License-Identifier: Apache-2.0
"""Execution traces of Go that tell of the heap: GODEBUG=traceallocfree=1, Go 1.23 and later.

Source: Go 1.26, src/runtime/traceallocfree.go, mgcsweep.go and malloc.go; the file itself is read
by `go_trace`. An object has an address and a type, no size and no stack: its size is that of its
slot, by the class of the span that it lies in. Objects below 16 bytes without pointers share a
slot, which dies as one, so the slot is the object. A free is told when its span is swept.

Threads stamp their events by themselves: a thread that tells of more than one in a tick of 64 ns
adds a tick each time, and so may run ahead of the clock and of the others. Then an allocation seems
to come before the free of the slot that it takes. What cannot be yet, as told by addresses and
spans, waits for other threads' events (`_Order`), as Go's own reader does for goroutines.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.errors import InvalidError, TraceFormatError
from spanwise.recordings import go_trace
from spanwise.recordings.addresses import Addresses, Made, Row, batches, checked_size
from spanwise.recordings.go_trace import Event, Generation, TraceFile, Units
from spanwise.tables.table import SizeClassTable

REMARK = (
    "made from an execution trace of Go: a size is that of a slot of Go's classes, not what was"
    " asked for, so round-up is not Go's; a free has the time of its sweep, not of the object's"
    " death; threads are the system's, not goroutines; call sites are not known"
)

_PATIENCE_NS = 100_000_000
"""How long an event that cannot be yet waits for other threads': a sweep takes less."""

_CLASS_PAGES = 64  # of a span with a class at most; Go's have at most 10
_TIME_MAX = (1 << 63) - 1

is_one = go_trace.is_one


def operations(
    content: bytes, name: str
) -> tuple[Iterator[NDArray[np.void]], str, Callable[[], str]]:
    """The events as operations, block by block, the remark, and what to add to it at the end.

    Raises:
        TraceFormatError: it is cut or damaged; the message has the byte.
        InvalidError: it is no trace, is of an old version, or has no allocation.
        UnsupportedError: it is of a version that is not known.
    """
    file, history = TraceFile(content, name), _History()
    return batches(_calls(file, name, history)), REMARK, history.left_out


def _calls(file: TraceFile, name: str, history: _History) -> Iterator[list[Row]]:
    """The operations of each event."""
    clock: _Clock | None = None
    for generation in file.generations():
        clock = _Clock(generation, clock)
        if generation.units is not None:
            history.units = generation.units
        if history.units is None:
            raise InvalidError(
                f"{name}: says nothing of what lies in the heap: its program ran without"
                " GODEBUG=traceallocfree=1, or it is a flight recorder's, which forgets the"
                f" beginning; make one anew, as by {go_trace.ASK}"
            )
        try:
            yield from _Order(file, generation, clock, history).rows()
        except TraceFormatError:
            raise  # it has its place
        except ValueError as error:
            raise TraceFormatError(f"{name}: generation {generation.number}: {error}") from None
    if not history.done:
        raise InvalidError(f"{name}: has no allocation; nothing to make")


class _Clock:
    """Nanoseconds of a generation's ticks, from the beginning of the trace."""

    def __init__(self, generation: Generation, before: _Clock | None) -> None:
        self._first = generation.first
        self._frequency = generation.frequency
        self._begin_ns = 0 if before is None else before.ns(generation.first)

    def ns(self, ticks: int) -> int:
        """The time of an event, in nanoseconds; at least 0.

        Raises:
            ValueError: no recording can have it.
        """
        passed = max(0, ticks - self._first) * 1_000_000_000 // self._frequency
        if self._begin_ns + passed > _TIME_MAX:
            raise ValueError(f"a time of {ticks} ticks is too late")
        return self._begin_ns + passed


class _Order:
    """The events of a generation in an order that can be: by time, but for those that must wait."""

    def __init__(
        self, file: TraceFile, generation: Generation, clock: _Clock, history: _History
    ) -> None:
        self._clock = clock
        self._history = history
        self._streams = {thread: file.events(generation, thread) for thread in generation.threads}
        self._next: list[tuple[int, int, Event]] = []  # a heap: time, thread, event
        self._waiting: list[tuple[int, int, Event]] = []  # by time
        for thread in self._streams:
            self._read(thread)

    def rows(self) -> Iterator[list[Row]]:
        """The operations of each event that makes any."""
        while self._next or self._waiting:
            made = self._step()
            if made:
                yield made

    def _step(self) -> list[Row]:
        """The operations of the next event; none if it waits, or makes none."""
        for place, entry in enumerate(self._waiting):
            # The eldest gives up once all others are far ahead of it, or there are none.
            late = not self._next or self._next[0][0] - entry[0] > _PATIENCE_NS
            made = self._history.take(*entry, forced=late and place == 0)
            if made is not None:
                del self._waiting[place]
                self._read(entry[1])
                return made
        entry = heapq.heappop(self._next)
        made = self._history.take(*entry, forced=False)
        if made is None:
            self._waiting.append(entry)
            self._waiting.sort()
            return []
        self._read(entry[1])
        return made

    def _read(self, thread: int) -> None:
        """Puts the thread's next event among the others."""
        event = next(self._streams[thread], None)
        if event is not None:
            # What was there when tracing began comes before all else, whenever it was written.
            there = event.mark in (go_trace.SPAN, go_trace.OBJECT)
            heapq.heappush(self._next, (0 if there else self._clock.ns(event.ticks), thread, event))


class _History:
    """Spans and live slots, from one generation to the next.

    Attributes:
        units: what addresses are counted in; None before the first generation.
        done: whether anything was allocated.
    """

    def __init__(self) -> None:
        self.units: Units | None = None
        self.done = False
        self._addresses = Addresses()
        self._threads: dict[int, int] = {}
        self._spans: dict[int, tuple[int, int, int, bool]] = {}  # by their pages
        self._slots = [0, *SizeClassTable.go().classes["size_bytes"].tolist()]
        self._unknown_frees = 0
        self._unknown_spans = 0

    def left_out(self) -> str:
        """What the trace told and the recording lacks; "" if nothing."""
        counts = (
            (self._unknown_frees, "free", "of objects that are not known"),
            (self._unknown_spans, "allocation", "in spans that are not known"),
        )
        parts = [f"{_format.plural(n, noun)} {what}" for n, noun, what in counts if n]
        return f"left out: {', '.join(parts)}" if parts else ""

    def take(self, now_ns: int, thread: int, event: Event, *, forced: bool) -> list[Row] | None:
        """The operations of an event; None if it cannot be yet and is not `forced`.

        Raises:
            ValueError: it has impossible numbers.
        """
        mark = event.mark
        self._addresses.now_ns = max(self._addresses.now_ns, now_ns)
        if mark in (go_trace.SPAN, go_trace.SPAN_ALLOC):
            return self._span(event, forced)
        if mark == go_trace.SPAN_FREE:
            self._end_span(event.number)
            return []
        assert self.units is not None
        address = self.units.begin + event.number * self.units.align
        if mark == go_trace.OBJECT_FREE:
            made = self._free(address, forced)
        elif mark == go_trace.OBJECT and address in self._addresses:
            return []  # an earlier generation told of it
        else:
            made = self._alloc(address, forced)
        if not made:
            return [] if made is not None else None
        number = self._threads.setdefault(thread, len(self._threads))
        return [(*row[:3], number, *row[3:]) for row in made]

    def _free(self, address: int, forced: bool) -> list[Made] | None:
        made = self._addresses.free(address)
        if made:
            return made
        if not forced:
            return None
        self._unknown_frees += 1
        return []

    def _alloc(self, address: int, forced: bool) -> list[Made] | None:
        assert self.units is not None
        span = self._spans.get((address - self.units.begin) // self.units.page)
        if span is None or span[2] == 0:
            self._unknown_spans += forced
            return [] if forced else None
        start, _, slot, shared = span
        address -= (address - start) % slot
        if address in self._addresses and (shared or not forced):
            return [] if shared else None
        self.done = True
        return self._addresses.alloc(address, slot)

    def _span(self, event: Event, forced: bool) -> list[Row] | None:
        """A span comes: with a class, with one large object, or without objects (of stacks)."""
        assert self.units is not None
        first, (pages, kind) = event.number, event.rest
        number, objects = kind >> 2, kind & 1 == 0
        if objects and (number >= len(self._slots) or (number and pages > _CLASS_PAGES)):
            raise ValueError(f"a span of {pages} pages with class {number} is impossible")
        size = (self._slots[number] or checked_size(pages * self.units.page)) if objects else 0
        if objects and size == 0:
            raise ValueError("a span of no page is impossible")
        # A large object lies at the begin; of a span of stacks only its going is awaited.
        mine = range(first, first + (pages if objects and number else 1))
        taken = any(page in self._spans for page in mine)
        if taken and event.mark == go_trace.SPAN_ALLOC and not forced:
            return None
        # Class 2 without pointers is where objects below 16 bytes share slots.
        span = (self.units.begin + first * self.units.page, len(mine), size, kind >> 1 == 5)
        self._spans.update(dict.fromkeys(mine, span))
        return []

    def _end_span(self, first: int) -> None:
        """A span goes, with the pages that no other has taken meanwhile."""
        span = self._spans.get(first)
        for page in range(first, first + (span[1] if span else 0)):
            if self._spans.get(page) is span:
                del self._spans[page]
