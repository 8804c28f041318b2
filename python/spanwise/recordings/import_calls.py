# SPDX-License-Identifier: Apache-2.0
"""Read lists of calls: glibc's mtrace, Android's memory_replay, heaptrack."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import OPS_DTYPE, lib
from spanwise.errors import InvalidError, TraceFormatError, UnsupportedError

if TYPE_CHECKING:
    from spanwise.recordings.conversion import Content

# --- addresses as objects -------------------------------------------------------------------------
#
# A free of an unknown address is skipped, a realloc of one is an allocation, and a live address is
# freed before it is allocated again, as in a recording (docs/design/trace.md).

STEP_NS = 1000
"""The time from one call to the next, in nanoseconds, if the file has no times."""

SIZE_MAX = (1 << 63) - 1
_BATCH = 1 << 16

Row = tuple[int, ...]
"""An operation: the fields of OPS_DTYPE in their order."""


class Addresses:
    """Live addresses and the ids of their objects; ids of freed objects are reused."""

    def __init__(self) -> None:
        self.now_ns = 0  # the time of the next operations; it never decreases
        self.thread = 0  # the thread of the next operations
        self._live: dict[int, int] = {}
        self._free_ids: list[int] = []
        self._next_id = 0

    def __contains__(self, address: int) -> bool:
        """Return whether an object lives there."""
        return address in self._live

    def advance(self, time_ns: int) -> None:
        """Advance the time to `time_ns`, unless it is later already."""
        self.now_ns = max(self.now_ns, checked_size(time_ns, "time"))

    def row(self, kind: int, number: int, size: int, align_log2: int = 0, flags: int = 0) -> Row:
        """Return an operation on an object, now and in this thread."""
        return self.now_ns, size, number, self.thread, 0, int(kind), align_log2, flags

    def alloc(self, address: int, size: int, align_log2: int = 0, flags: int = 0) -> list[Row]:
        """Return the operations of an allocation; none if it failed (address 0)."""
        if address == 0:
            return []
        before = self.free(address)
        if self._free_ids:
            number = self._free_ids.pop()
        else:
            number, self._next_id = self._next_id, self._next_id + 1
        self._live[address] = number
        return [*before, self.row(lib.SW_OP_ALLOC, number, size, align_log2, flags)]

    def free(self, address: int) -> list[Row]:
        """Return the operation of a free; none for an unknown address."""
        number = self._live.pop(address, None)
        if number is None:
            return []
        self._free_ids.append(number)
        return [self.row(lib.SW_OP_FREE, number, 0)]

    def realloc(self, address: int, old: int, size: int) -> list[Row]:
        """Return the operations of a realloc; to address 0 it failed, or freed if `size` is 0."""
        if address == 0:
            return self.free(old) if size == 0 else []
        number = self._live.pop(old, None)
        if number is None:
            return self.alloc(address, size)
        before = self.free(address)
        self._live[address] = number
        return [*before, self.row(lib.SW_OP_REALLOC, number, size)]


def checked_size(size: int, noun: str = "size") -> int:
    """Check and return the size or another number."""
    if size > SIZE_MAX:
        shown = size if size < 1 << 128 else "of more than 128 bits"
        raise ValueError(f"{noun} {shown} is too large")
    return size


class CallHistory:
    """Turns the calls of a file into operations, line by line."""

    def __init__(self) -> None:
        self.done = 0  # number of calls so far
        self.addresses = Addresses()  # live addresses

    def call(self, found: re.Match[bytes]) -> list[Row]:
        """Return the operations of a line, or raise ValueError if it is not a valid call."""
        raise NotImplementedError


def read_calls(
    content: Content,
    pattern: re.Pattern[bytes],
    history: CallHistory,
    wanted: Callable[[bytes], bool] = bool,
) -> Iterator[list[Row]]:
    """Yield the operations of each line of a list of calls."""
    for line in content.lines():
        text = line.rstrip(b"\r")
        if not text.strip() or not wanted(text):
            continue
        found = pattern.fullmatch(text)
        if found is None or content.cut:
            what = "is cut short" if content.cut else "is not a call"
            shown = text[:60].decode("utf-8", "replace").strip()
            raise TraceFormatError(f"{content.name}: {content.place()} {what}: {shown!r}")
        yield history.call(found)
    if not history.done:
        raise InvalidError(f"{content.name}: has no call; nothing to make")


def batches(calls: Iterable[list[Row]]) -> Iterator[NDArray[np.void]]:
    """Yield the operations of calls as arrays of OPS_DTYPE, about 65,536 operations each."""
    rows: list[Row] = []
    for made in calls:
        rows += made
        if len(rows) >= _BATCH:
            yield np.array(rows, OPS_DTYPE)
            rows = []
    yield np.array(rows, OPS_DTYPE)


# --- mtrace ---------------------------------------------------------------------------------------
#
# Source: glibc, malloc/mtrace-impl.c, and its reader malloc/mtrace.pl:
#
#     = Start                                = End
#     @ CALLER + POINTER SIZE                @ CALLER - POINTER
#     @ CALLER < OLD_POINTER                 @ CALLER > POINTER SIZE
#     @ CALLER ! OLD_POINTER SIZE
#
# A realloc is the two lines `<` and `>`, or the line `!` if it failed. The caller may be absent.
# There are no times, threads or alignments.

_MTRACE_BEGIN = re.compile(rb"= Start\r?\n")
_MTRACE_MARK = re.compile(rb"= (Start|End)")
_MTRACE_NUMBER = rb"(0x[0-9a-f]{1,16}|0|\(nil\))"
_MTRACE_CALL = re.compile(
    rb"(?:@ .*? )??([-+<>!]) " + _MTRACE_NUMBER + rb"(?: " + _MTRACE_NUMBER + rb")?"
)
_MTRACE_SIZED = b"+>!"


def is_mtrace(content: bytes) -> bool:
    """Return whether it begins like a file of mtrace."""
    return _MTRACE_BEGIN.match(content) is not None


def mtrace_operations(content: Content) -> Iterator[NDArray[np.void]]:
    """Return the calls as blocks of operations, all of one thread and a microsecond apart."""
    calls = read_calls(
        content, _MTRACE_CALL, _MtraceHistory(), lambda line: _MTRACE_MARK.fullmatch(line) is None
    )
    return batches(calls)


class _MtraceHistory(CallHistory):
    """Live addresses, and a realloc that waits for its second line."""

    def __init__(self) -> None:
        super().__init__()
        self._old: int | None = None

    def call(self, found: re.Match[bytes]) -> list[Row]:
        """Return the operations of a line; the first line of a realloc has none."""
        word, address, size = found[1], _value(found[2]), found[3]
        if (size is None) == (word in _MTRACE_SIZED):
            raise ValueError(f"{word.decode()} has {'no' if size is None else 'a'} size")
        if (word == b">") != (self._old is not None):
            raise ValueError("a realloc is a line with < and the next with >")
        if word == b"<":
            self._old = address
            return []
        old, self._old = self._old, None
        self.addresses.now_ns = STEP_NS * self.done
        self.done += 1
        if word == b"-":
            return self.addresses.free(address)
        requested = checked_size(_value(size))
        if word == b"+":
            return self.addresses.alloc(address, requested)
        return self.addresses.realloc(address, old, requested) if old is not None else []


def _value(text: bytes) -> int:
    return 0 if text == b"(nil)" else int(text, 16)


# --- memory_replay --------------------------------------------------------------------------------
#
# Source: Android Open Source Project, bionic, libc/malloc_debug/README.md:
#
#     TID: malloc POINTER SIZE               TID: realloc POINTER OLD_POINTER SIZE
#     TID: calloc POINTER COUNT SIZE         TID: free POINTER
#     TID: memalign POINTER ALIGNMENT SIZE   TID: thread_done 0x0
#
# Begin and end of the call in nanoseconds may follow; thread_done has one time.

_REPLAY_LINE = re.compile(
    rb"\s*(\d{1,20}): (malloc|calloc|realloc|memalign|free|thread_done) 0x([0-9a-f]{1,16})\b(.*)"
)
_REPLAY_NUMBERS = {
    "malloc": 1,
    "calloc": 2,
    "realloc": 2,
    "memalign": 2,
    "free": 0,
    "thread_done": 0,
}


def is_memory_replay(content: bytes) -> bool:
    """Return whether the first line is a call."""
    return _REPLAY_LINE.match(content[:4096]) is not None


def memory_replay_operations(content: Content) -> Iterator[NDArray[np.void]]:
    """Return the calls as blocks of operations."""
    return batches(read_calls(content, _REPLAY_LINE, _ReplayHistory()))


class _ReplayHistory(CallHistory):
    """Live addresses, times, and the ids of threads."""

    def __init__(self) -> None:
        super().__init__()
        self._threads: dict[int, int] = {}
        self._thread_count = 0
        self._first_ns: int | None = None

    def call(self, found: re.Match[bytes]) -> list[Row]:
        """Return the operations of a line."""
        word, address = found[2].decode(), int(found[3], 16)
        numbers = [int(one, 0) for one in found[4].split()]
        wanted = _REPLAY_NUMBERS[word]
        times = numbers[wanted:]
        if len(numbers) < wanted or len(times) not in (0, 1 if word == "thread_done" else 2):
            raise ValueError(f"{word} has {len(numbers)} numbers after its address")
        if min(numbers, default=0) < 0:
            raise ValueError("a number is negative")
        self.done += 1
        self._tick(times[0] if times else None)
        thread = int(found[1])
        if word == "thread_done":
            return self._end(thread)
        self.addresses.thread = self._threads.get(thread, self._thread_count)
        rows = self._rows_of(word, address, numbers)
        if rows and thread not in self._threads:  # a failed call has no operation
            self._threads[thread] = self._thread_count
            self._thread_count += 1
        return rows

    def _rows_of(self, word: str, address: int, numbers: list[int]) -> list[Row]:
        if word == "free":
            return self.addresses.free(address)
        if word == "realloc":
            return self.addresses.realloc(address, numbers[0], checked_size(numbers[1]))
        last = _REPLAY_NUMBERS[word] - 1
        size = checked_size(numbers[0] * numbers[1] if word == "calloc" else numbers[last])
        align = _align_log2(numbers[0]) if word == "memalign" else 0
        flags = int(lib.SW_OP_ZEROED) if word == "calloc" else 0
        return self.addresses.alloc(address, size, align, flags)

    def _tick(self, begin_ns: int | None) -> None:
        """Advance the clock: it never decreases, and untimed calls are a microsecond apart."""
        if begin_ns is None:
            self.addresses.now_ns += STEP_NS if self.done > 1 else 0
            return
        if self._first_ns is None:
            self._first_ns = begin_ns
        self.addresses.advance(begin_ns - self._first_ns)

    def _end(self, thread: int) -> list[Row]:
        number = self._threads.pop(thread, None)
        if number is None:  # it has no operation
            return []
        self.addresses.thread = number
        return [self.addresses.row(lib.SW_OP_THREAD_END, 0, 0)]


def _align_log2(align: int) -> int:
    if align == 0 or align & (align - 1) or align.bit_length() > 48:
        raise ValueError(f"alignment {align} is not a power of two")
    return align.bit_length() - 1


# --- heaptrack ------------------------------------------------------------------------------------
#
# Source: heaptrack 1.5, src/track/libheaptrack.cpp, src/interpret/heaptrack_interpret.cpp and
# src/analyze/accumulatedtracedata.cpp. Lines begin with a letter; numbers are hexadecimal. `v
# VERSION FORMAT` is first, `c` is a time in milliseconds. Formats 0 to 3 have the same lines of
# calls: 1 numbers pairs, 2 adds inlined frames, 3 gives strings a length. heaptrack rejects newer
# formats than its own, and so does this reader. With --raw a call is
#
#     + SIZE STACK POINTER                   - POINTER
#
# Without it, `a` numbers the pairs of a size and a stack from 0, and a call is
#
#     a SIZE STACK                           + PAIR                           - PAIR
#
# So a free has a pair, not an object: the youngest object of the pair is freed. A realloc is a free
# and an allocation, with and without --raw.

REMARK = (
    "made from a file that heaptrack wrote: threads and alignments are not known, a realloc is a"
    " free and an allocation, and times are those of its stamps"
)
REMARK_OF_PAIRS = f"{REMARK}; a free has size and stack only, so the youngest such object is freed"

_FORMAT_MAX = 3
_HEAPTRACK_BEGIN = re.compile(rb"v ([0-9a-f]{1,16}) ([0-9a-f]{1,16})\r?\n")
_HEAPTRACK_CALL = re.compile(rb"([-+ac])((?: [0-9a-f]{1,16})+)\s*")
_OF_CALLS = (b"+ ", b"- ", b"a ", b"c ")
_FIELDS = {"a": 2, "c": 1, "+": 1, "-": 1}


def is_heaptrack(content: bytes) -> bool:
    """Return whether a file begins like heaptrack's."""
    return _HEAPTRACK_BEGIN.match(content) is not None


def heaptrack_operations(content: Content) -> tuple[Iterator[NDArray[np.void]], str]:
    """Return the calls as blocks of operations, and the remark of the recording."""
    version = _HEAPTRACK_BEGIN.match(content.head)
    if version is None:
        raise InvalidError(f"{content.name}: not a heaptrack file: its first line is not a version")
    if int(version[2], 16) > _FORMAT_MAX:
        raise UnsupportedError(
            f"{content.name}: line 1: is of heaptrack's format {int(version[2], 16)}; formats to"
            f" {_FORMAT_MAX} are read: record it with heaptrack 1.3 to 1.5"
        )
    raw = _raw(content)
    calls = read_calls(
        content, _HEAPTRACK_CALL, _HeaptrackHistory(raw), lambda line: line[:2] in _OF_CALLS
    )
    return batches(calls), REMARK if raw else REMARK_OF_PAIRS


def _raw(content: Content) -> bool:
    """Return whether calls have sizes and pointers; the first line of either kind decides."""
    for line in content.lines():
        if line[:2] in (b"a ", b"+ "):
            return line[:2] == b"+ "
    return True


class _HeaptrackHistory(CallHistory):
    """Live addresses; objects of pairs get made-up addresses."""

    def __init__(self, raw: bool) -> None:
        super().__init__()
        self._raw = raw
        self._sizes: list[int] = []  # of each pair
        self._live: list[list[int]] = []  # objects of each pair, the youngest last
        self._next = 1

    def call(self, found: re.Match[bytes]) -> list[Row]:
        """Return the operations of a line."""
        word, numbers = found[1].decode(), [int(one, 16) for one in found[2].split()]
        if len(numbers) != (3 if word == "+" and self._raw else _FIELDS[word]):
            raise ValueError(f"{word} has {len(numbers)} numbers")
        if word == "c":
            self.addresses.advance(numbers[0] * 1_000_000)
            return []
        if word == "a":
            self._sizes.append(checked_size(numbers[0]))
            self._live.append([])
            return []
        self.done += 1
        if word == "+":
            size, address = self._allocated(numbers)
            return self.addresses.alloc(address, size)
        return self.addresses.free(self._freed(numbers[0]))

    def _allocated(self, numbers: list[int]) -> tuple[int, int]:
        if self._raw:
            return checked_size(numbers[0]), numbers[2]
        pair = self._pair(numbers[0])
        address, self._next = self._next, self._next + 1
        self._live[pair].append(address)
        return self._sizes[pair], address

    def _freed(self, number: int) -> int:
        """Return the address of the object that a line frees, or 0."""
        if self._raw:
            return number
        live = self._live[self._pair(number)]
        return live.pop() if live else 0

    def _pair(self, pair: int) -> int:
        if pair >= len(self._sizes):
            raise ValueError(f"pair {pair:x} is not defined yet")
        return pair
