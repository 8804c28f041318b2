# SPDX-License-Identifier: Apache-2.0
"""Read execution traces of Go, and turn their heap events into operations."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.errors import InvalidError, TraceFormatError, UnsupportedError
from spanwise.recordings.import_calls import Addresses, Row, batches, checked_size
from spanwise.tables.table import SizeClassTable

# --- the file -------------------------------------------------------------------------------------
#
# Source: Go 1.26, src/internal/trace/tracev2 (events and their numbers),
# src/internal/trace/batch.go and generation.go (how files are read), src/runtime/traceallocfree.go.
# Batches of at most 64 KiB follow a header of 16 bytes with the version:
#
#     1 GENERATION THREAD TICKS BYTES ...                events of one thread, or a table
#     49 EXPERIMENT GENERATION THREAD TICKS BYTES ...  data of an experiment; 1: the heap
#     52                                                 the generation ends (since Go 1.26)
#
# Experiments and event types are bytes. Numbers have 7 bits per byte, lowest first; the highest bit
# of a byte means that another follows. An event is its type and numbers; the first number is the
# ticks since the previous event. Each generation has the frequency of its ticks.

SPAN, SPAN_ALLOC, SPAN_FREE, OBJECT, OBJECT_ALLOC, OBJECT_FREE = range(128, 134)
"""Types of heap events. SPAN and OBJECT existed when tracing began."""

_BATCH_MARK, _STACKS, _STRINGS, _SAMPLES, _FREQUENCY = 1, 2, 4, 6, 8
_EXPERIMENTAL, _SYNC, _CLOCK, _END = 49, 50, 51, 52
_TABLES = (_STACKS, _STRINGS, _SAMPLES)
_INFO = b"\x01"  # in the heap's experiment: the batch with the units of addresses

_COMMON = (
    "33143",  # processors, from type 9 on
    "423113343114",  # goroutines
    "31",  # stop-the-world phases
    "232223221",  # collections
    "22",  # sizes of the heap
    "253445",  # labels, tasks, regions, logs
    "3345",  # goroutines again, since Go 1.23
)
_NUMBERS = {
    **{mark: int(count) for mark, count in enumerate("".join(_COMMON), 9)},
    **{SPAN: 4, SPAN_ALLOC: 4, SPAN_FREE: 2, OBJECT: 3, OBJECT_ALLOC: 3, OBJECT_FREE: 2},
    **{134: 3, 135: 3, 136: 2},  # stacks of goroutines, which are not heap objects
}
"""The number of numbers after each event type."""

_HEADER = re.compile(rb"go 1\.(\d{1,4}) trace\0\0\0")
_KNOWN = (23, 25, 26)  # Go 1.24 writes 23
_BATCH_BYTES = 1 << 16

ASK = "GODEBUG=traceallocfree=1 go test -trace trace.out"
"""A command that makes a trace with heap events."""


class Event(NamedTuple):
    """An event of the heap.

    Attributes:
        number: the first page of a span, or the address of an object, relative to the heap's begin,
            in pages or in units of `Units.align`.
    """

    ticks: int  # its time in ticks of the generation
    mark: int  # its type, SPAN to OBJECT_FREE
    number: int
    rest: tuple[int, ...]  # pages, and kind and class of a new span; the type of an object


class Units(NamedTuple):
    """The units of addresses, in bytes: begin of the heap, a page, the minimum alignment."""

    begin: int
    page: int
    align: int


class Batch(NamedTuple):
    """A range of bytes with events of a thread, and its first ticks."""

    start: int
    end: int
    ticks: int


@dataclass
class Generation:
    """A part of a trace, with all threads.

    Attributes:
        threads: the batches with events of each thread, in the file's order.
    """

    number: int  # its number in the trace
    first: int = (1 << 64) - 1  # the lowest ticks of its batches
    frequency: int = 0  # ticks per second; 0: unknown
    units: Units | None = None  # the units of addresses; None: not in this generation
    threads: dict[int, list[Batch]] = field(default_factory=dict)


def is_go_trace(content: bytes) -> bool:
    """Return whether a file begins like a trace of Go, of any version."""
    return _HEADER.match(content) is not None


class TraceFile:
    """A trace in memory."""

    def __init__(self, content: bytes, name: str) -> None:
        self._content = content
        self._name = name
        header = _HEADER.match(content)
        if header is None:
            raise InvalidError(f"{name}: is not an execution trace of Go: its header differs")
        version = int(header[1])
        if version <= 22:
            raise InvalidError(
                f"{name}: is a trace of the format of Go 1.{version}, which has no allocations;"
                f" make one with Go 1.23 or later: {ASK}"
            )
        if version not in _KNOWN:
            raise UnsupportedError(
                f"{name}: is a trace of the format of Go 1.{version}; those of Go 1.23 to 1.26 are"
                " read"
            )
        self._version = version
        self._at = header.end()

    def generations(self) -> Iterator[Generation]:
        """Yield the generations in order."""
        now: Generation | None = None
        while self._at < len(self._content):
            place = self._at
            mark = self._byte()
            if mark == _END and self._version >= 26 and now is not None:
                yield self._whole(now)
                now = None
                continue
            if mark not in (_BATCH_MARK, _EXPERIMENTAL):
                raise self._damage(place, f"no batch begins with {mark}")
            experiment = self._byte() if mark == _EXPERIMENTAL else 0
            number = self._number()
            if now is not None and self._version < 26 and number == now.number + 1:
                yield self._whole(now)
                now = None
            now = now or Generation(number)
            if number != now.number:
                raise self._damage(place, f"generation {number} is within {now.number}")
            self._batch(now, experiment)
        if now is not None and self._version >= 26:
            raise self._damage(self._at, f"generation {now.number} has no end; the file is cut")
        if now is not None:
            yield self._whole(now)

    def events(self, generation: Generation, thread: int) -> Iterator[Event]:
        """Yield the heap events of a thread, with ascending times."""
        for batch in generation.threads[thread]:
            try:
                found = _decoded(self._content[batch.start : batch.end], batch.ticks)
            except (IndexError, KeyError):
                raise self._damage(batch.start, "these events of a thread are damaged") from None
            yield from found

    def _batch(self, now: Generation, experiment: int) -> None:
        """Adds the batch that starts here to its thread."""
        thread, ticks, size = self._number(), self._number(), self._number()
        start, self._at = self._at, self._at + size
        if size > _BATCH_BYTES:
            raise self._damage(start, f"a batch has {size} bytes, which is too many")
        if self._at > len(self._content):
            raise self._cut()
        now.first = min(now.first, ticks)
        head = self._content[start] if size else 0
        if experiment:
            if experiment == 1 and self._content[start : start + 1] == _INFO:
                now.units = self._units(start)
        elif head in (_FREQUENCY, _SYNC):
            now.frequency = self._frequency(start, self._at)
        elif size and head not in _TABLES:
            now.threads.setdefault(thread, []).append(Batch(start, self._at, ticks))

    def _units(self, start: int) -> Units:
        end, self._at = self._at, start + 1
        units = Units(self._number(), self._number(), self._number())
        if not 0 < units.align <= units.page <= 1 << 24:
            raise self._damage(start, "pages or alignments of the heap are impossible")
        self._at = end
        return units

    def _frequency(self, start: int, end: int) -> int:
        """Return the ticks per second, from a batch with nothing else but clock readings."""
        found, self._at = 0, start + (self._content[start] == _SYNC)
        while self._at < end:
            mark = self._byte()
            numbers = [self._number() for _ in range(4 if mark == _CLOCK else 1)]
            if mark not in (_FREQUENCY, _CLOCK) or self._at > end:
                raise self._damage(start, "this batch of a frequency is damaged")
            found = numbers[0] if mark == _FREQUENCY else found
        return found

    def _whole(self, done: Generation) -> Generation:
        if done.frequency == 0:
            raise self._damage(
                self._at, f"generation {done.number} has no frequency; the file may be cut"
            )
        return done

    def _byte(self) -> int:
        if self._at >= len(self._content):
            raise self._cut()
        self._at += 1
        return self._content[self._at - 1]

    def _number(self) -> int:
        place, value = self._at, 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise self._damage(place, "a number is too long")

    def _cut(self) -> TraceFormatError:
        return self._damage(len(self._content), "a batch is cut short")

    def _damage(self, place: int, what: str) -> TraceFormatError:
        return TraceFormatError(f"{self._name}: byte {place}: {what}")


def _decoded(part: bytes, ticks: int) -> list[Event]:
    """Return the heap events of a batch."""
    found, at = [], 0
    while at < len(part):
        mark = part[at]
        at += 1
        numbers = []
        for _ in range(_NUMBERS[mark]):
            byte = part[at]
            at += 1
            value, shift = byte & 127, 7
            while byte > 127:
                byte = part[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
            numbers.append(value)
        ticks += numbers[0]
        if 128 <= mark <= OBJECT_FREE:
            found.append(Event(ticks, mark, numbers[1], tuple(numbers[2:])))
    return found


# --- heap events as operations --------------------------------------------------------------------
#
# Source: Go 1.26, src/runtime/traceallocfree.go, mgcsweep.go and malloc.go. An object has an
# address and a type, but no size and no stack: its size is that of its slot, by the class of its
# span. Pointer-free objects below 16 bytes share a slot, which is freed as a whole, so the slot is
# the object. A free is recorded when its span is swept.
#
# Each thread timestamps its own events: a thread with more than one event in a tick of 64 ns adds a
# tick each time, and so may run ahead of the clock and of other threads. Then an allocation seems
# to precede the free of the slot that it reuses. An event that is not possible yet, by addresses
# and spans, waits for other threads' events (`_Order`), as Go's own reader does for goroutines.

REMARK = (
    "made from an execution trace of Go: sizes are those of slots of Go's classes, not requested"
    " sizes, so round-up is not Go's; a free has the time of its sweep, not of the object's"
    " death; threads are the system's, not goroutines; call sites are not known"
)

_PATIENCE_NS = 100_000_000
"""How long an event that is not possible yet waits for other threads'; a sweep takes less."""

_CLASS_PAGES = 64  # upper bound for a span with a class; Go's have at most 10
_TIME_MAX = (1 << 63) - 1


def go_operations(
    content: bytes, name: str
) -> tuple[Iterator[NDArray[np.void]], str, Callable[[], str]]:
    """Return the events as blocks of operations, the remark, and its addition at the end."""
    file, history = TraceFile(content, name), _GoHistory()
    return batches(_calls(file, name, history)), REMARK, history.left_out


def _calls(file: TraceFile, name: str, history: _GoHistory) -> Iterator[list[Row]]:
    clock: _Clock | None = None
    for generation in file.generations():
        clock = _Clock(generation, clock)
        if generation.units is not None:
            history.units = generation.units
        if history.units is None:
            raise InvalidError(
                f"{name}: has no heap events: its program ran without"
                " GODEBUG=traceallocfree=1, or it is a flight recorder's, which forgets the"
                f" beginning; make a new one: {ASK}"
            )
        try:
            yield from _Order(file, generation, clock, history).rows()
        except TraceFormatError:
            raise  # it has its position
        except ValueError as error:
            raise TraceFormatError(f"{name}: generation {generation.number}: {error}") from None
    if not history.done:
        raise InvalidError(f"{name}: has no allocation; nothing to make")


class _Clock:
    """Converts a generation's ticks to nanoseconds since the beginning of the trace."""

    def __init__(self, generation: Generation, before: _Clock | None) -> None:
        self._first = generation.first
        self._frequency = generation.frequency
        self._begin_ns = 0 if before is None else before.ns(generation.first)

    def ns(self, ticks: int) -> int:
        """Return the time of an event in nanoseconds, at least 0."""
        passed = max(0, ticks - self._first) * 1_000_000_000 // self._frequency
        if self._begin_ns + passed > _TIME_MAX:
            raise ValueError(f"a time of {ticks} ticks is too late")
        return self._begin_ns + passed


class _Order:
    """The events of a generation in a possible order: by time, except for waiting ones."""

    def __init__(
        self, file: TraceFile, generation: Generation, clock: _Clock, history: _GoHistory
    ) -> None:
        self._clock = clock
        self._history = history
        self._streams = {thread: file.events(generation, thread) for thread in generation.threads}
        self._next: list[tuple[int, int, Event]] = []  # a heap: time, thread, event
        self._waiting: list[tuple[int, int, Event]] = []  # by time
        for thread in self._streams:
            self._read(thread)

    def rows(self) -> Iterator[list[Row]]:
        """Yield the operations of each event that has any."""
        while self._next or self._waiting:
            made = self._step()
            if made:
                yield made

    def _step(self) -> list[Row]:
        """Return the operations of the next event; none if it waits or has none."""
        for place, entry in enumerate(self._waiting):
            # The oldest stops waiting once all others are far ahead of it, or there are none.
            late = not self._next or self._next[0][0] - entry[0] > _PATIENCE_NS
            made = self._history.apply(*entry, forced=late and place == 0)
            if made is not None:
                del self._waiting[place]
                self._read(entry[1])
                return made
        entry = heapq.heappop(self._next)
        made = self._history.apply(*entry, forced=False)
        if made is None:
            self._waiting.append(entry)
            self._waiting.sort()
            return []
        self._read(entry[1])
        return made

    def _read(self, thread: int) -> None:
        event = next(self._streams[thread], None)
        if event is not None:
            # What existed when tracing began precedes all other events, whenever it was written.
            there = event.mark in (SPAN, OBJECT)
            heapq.heappush(self._next, (0 if there else self._clock.ns(event.ticks), thread, event))


class _GoHistory:
    """Spans and live slots across generations."""

    def __init__(self) -> None:
        self.units: Units | None = None  # the units of addresses; None before the first generation
        self.done = False  # whether anything was allocated
        self._addresses = Addresses()
        self._threads: dict[int, int] = {}
        self._spans: dict[int, tuple[int, int, int, bool]] = {}  # by their pages
        self._slots = [0, *SizeClassTable.go().classes["size_bytes"].tolist()]
        self._unknown_frees = 0
        self._unknown_spans = 0

    def left_out(self) -> str:
        """Describe what is in the trace but not in the recording; "" if nothing."""
        counts = (
            (self._unknown_frees, "free", "of objects that are not known"),
            (self._unknown_spans, "allocation", "in spans that are not known"),
        )
        parts = [f"{_format.plural(n, noun)} {what}" for n, noun, what in counts if n]
        return f"left out: {', '.join(parts)}" if parts else ""

    def apply(self, now_ns: int, thread: int, event: Event, *, forced: bool) -> list[Row] | None:
        """Return the operations of an event; None if it is not possible yet and not `forced`."""
        mark = event.mark
        self._addresses.now_ns = max(self._addresses.now_ns, now_ns)
        if mark in (SPAN, SPAN_ALLOC):
            return self._span(event, forced)
        if mark == SPAN_FREE:
            self._end_span(event.number)
            return []
        assert self.units is not None
        address = self.units.begin + event.number * self.units.align
        if mark == OBJECT and address in self._addresses:
            return []  # an earlier generation had it
        self._addresses.thread = self._threads.get(thread, len(self._threads))
        rows = (self._free if mark == OBJECT_FREE else self._alloc)(address, forced)
        if rows:
            self._threads[thread] = self._addresses.thread
        return rows

    def _free(self, address: int, forced: bool) -> list[Row] | None:
        made = self._addresses.free(address)
        if made:
            return made
        if not forced:
            return None
        self._unknown_frees += 1
        return []

    def _alloc(self, address: int, forced: bool) -> list[Row] | None:
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
        """Add a span: with a class, with one large object, or without objects (stacks)."""
        assert self.units is not None
        first, (pages, kind) = event.number, event.rest
        number, objects = kind >> 2, kind & 1 == 0
        if objects and (number >= len(self._slots) or (number and pages > _CLASS_PAGES)):
            raise ValueError(f"a span of {pages} pages with class {number} is impossible")
        size = (self._slots[number] or checked_size(pages * self.units.page)) if objects else 0
        if objects and size == 0:
            raise ValueError("a span without pages is impossible")
        # A large object is on the first page, and stacks have no objects, so one page is enough.
        mine = range(first, first + (pages if objects and number else 1))
        taken = any(page in self._spans for page in mine)
        if taken and event.mark == SPAN_ALLOC and not forced:
            return None
        # Class 2 without pointers is where objects below 16 bytes share slots.
        span = (self.units.begin + first * self.units.page, len(mine), size, kind >> 1 == 5)
        self._spans.update(dict.fromkeys(mine, span))
        return []

    def _end_span(self, first: int) -> None:
        """Remove a span, with the pages that no other has taken in the meantime."""
        span = self._spans.get(first)
        for page in range(first, first + (span[1] if span else 0)):
            if self._spans.get(page) is span:
                del self._spans[page]
