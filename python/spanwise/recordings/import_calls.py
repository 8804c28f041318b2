# SPDX-License-Identifier: Apache-2.0
"""Read lists of calls: glibc's mtrace, Android's memory_replay, heaptrack."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import lib
from spanwise.errors import InvalidError, UnsupportedError
from spanwise.recordings.import_content import (
    STEP_NS,
    CallHistory,
    Content,
    Row,
    batches,
    checked_size,
    read_calls,
)

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
            raise ValueError(f"pair {pair:x} is not defined before")
        return pair
