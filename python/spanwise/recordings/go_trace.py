# SPDX-License-Identifier: Apache-2.0
"""The file of an execution trace of Go: generations, their threads, and what those say of the heap.

Source: Go 1.26, src/internal/trace/tracev2 (events and their numbers), src/internal/trace/batch.go
and generation.go (how files are read), src/runtime/traceallocfree.go. After a header of 16 bytes
with the version come batches of at most 64 KiB:

    1 GENERATION THREAD TICKS BYTES ...                events of one thread, or a table
    49 EXPERIMENT GENERATION THREAD TICKS BYTES ...    data of an experiment; that of the heap is 1
    52                                                 the generation ends (since Go 1.26)

Experiment and marks are bytes. Numbers have 7 bits a byte, the lowest first, and the highest bit of
a byte says that another follows. An event is its mark and numbers, the first of which is how many
ticks it comes after the event before it. What a tick is, a generation tells once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from spanwise.errors import InvalidError, TraceFormatError, UnsupportedError

SPAN, SPAN_ALLOC, SPAN_FREE, OBJECT, OBJECT_ALLOC, OBJECT_FREE = range(128, 134)
"""Marks of events of the heap. SPAN and OBJECT tell what was there when tracing began."""

_BATCH, _STACKS, _STRINGS, _SAMPLES, _FREQUENCY = 1, 2, 4, 6, 8
_EXPERIMENTAL, _SYNC, _CLOCK, _END = 49, 50, 51, 52
_TABLES = (_STACKS, _STRINGS, _SAMPLES)
_INFO = b"\x01"  # of the heap's experiment: the batch that tells units of addresses

_COMMON = (
    "33143",  # processors, from mark 9 on
    "423113343114",  # goroutines
    "31",  # stops of the world
    "232223221",  # collections
    "22",  # sizes of the heap
    "253445",  # labels, tasks, regions, logs
    "3345",  # goroutines again, since Go 1.23
)
_NUMBERS = {
    **{mark: int(count) for mark, count in enumerate("".join(_COMMON), 9)},
    **{SPAN: 4, SPAN_ALLOC: 4, SPAN_FREE: 2, OBJECT: 3, OBJECT_ALLOC: 3, OBJECT_FREE: 2},
    **{134: 3, 135: 3, 136: 2},  # stacks of goroutines, which are no objects of the heap
}
"""How many numbers follow each mark of an event."""

_HEADER = re.compile(rb"go 1\.(\d{1,4}) trace\0\0\0")
_KNOWN = (23, 25, 26)  # Go 1.24 writes 23
_BATCH_BYTES = 1 << 16

ASK = "GODEBUG=traceallocfree=1 go test -trace trace.out"
"""A command that makes a trace with the heap in it."""


class Event(NamedTuple):
    """An event of the heap.

    Attributes:
        ticks: when, in ticks of the generation.
        mark: which: SPAN to OBJECT_FREE.
        number: of a span its first page, of an object its address, both from the heap's begin on;
            in pages and in the units of `Units.align`.
        rest: of a span that comes: its pages, and its kind and class. Of an object its type.
    """

    ticks: int
    mark: int
    number: int
    rest: tuple[int, ...]


class Units(NamedTuple):
    """What addresses are counted in, in bytes: begin of the heap, a page, the least alignment."""

    begin: int
    page: int
    align: int


class Batch(NamedTuple):
    """Where events of a thread lie in the file, in bytes, and the ticks that they begin at."""

    start: int
    end: int
    ticks: int


@dataclass
class Generation:
    """A part of a trace, of all threads.

    Attributes:
        number: as the trace counts them.
        first: the least ticks of its batches.
        frequency: ticks a second; 0: not told.
        units: what addresses are counted in; None: not told in this generation.
        threads: the batches with events of each thread, in the file's order.
    """

    number: int
    first: int = (1 << 64) - 1
    frequency: int = 0
    units: Units | None = None
    threads: dict[int, list[Batch]] = field(default_factory=dict)


def is_one(content: bytes) -> bool:
    """Whether a file begins as a trace of Go, of any version."""
    return _HEADER.match(content) is not None


class TraceFile:
    """A trace in memory.

    Raises:
        InvalidError: it is no trace, or of a version that tells nothing of the heap.
        UnsupportedError: it is of a version that is not known.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._content = content
        self._name = name
        header = _HEADER.match(content)
        if header is None:
            raise InvalidError(f"{name}: is no execution trace of Go: its header is another")
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
        """The generations, one after another.

        Raises:
            TraceFormatError: it is cut or damaged; the message has the byte.
        """
        now: Generation | None = None
        while self._at < len(self._content):
            place = self._at
            mark = self._byte()
            if mark == _END and self._version >= 26 and now is not None:
                yield self._whole(now)
                now = None
                continue
            if mark not in (_BATCH, _EXPERIMENTAL):
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
        """What a thread tells of the heap; times rise, but may run ahead of another thread's.

        Raises:
            TraceFormatError: a batch is damaged.
        """
        for batch in generation.threads[thread]:
            try:
                found = _decoded(self._content[batch.start : batch.end], batch.ticks)
            except (IndexError, KeyError):
                raise self._damage(batch.start, "these events of a thread are damaged") from None
            yield from found

    def _batch(self, now: Generation, experiment: int) -> None:
        """Adds what the batch has whose thread comes next."""
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
        """The ticks a second, of a batch that has nothing else but readings of clocks."""
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
    """The events of the heap in a batch.

    Raises:
        IndexError, KeyError: it is damaged.
    """
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
