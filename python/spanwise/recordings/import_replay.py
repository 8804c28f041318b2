# SPDX-License-Identifier: Apache-2.0
"""Android's memory_replay text, which malloc_debug's record_allocs writes: a call a line.

Source: Android Open Source Project, bionic, libc/malloc_debug/README.md:

    TID: malloc POINTER SIZE               TID: realloc POINTER OLD_POINTER SIZE
    TID: calloc POINTER COUNT SIZE         TID: free POINTER
    TID: memalign POINTER ALIGNMENT SIZE   TID: thread_done 0x0

Two times in nanoseconds, of the call's begin and end, may follow; one after thread_done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import lib
from spanwise.recordings.addresses import (
    STEP_NS,
    Addresses,
    Made,
    Row,
    batches,
    checked_size,
    read_calls,
)
from spanwise.recordings.content import Content

_LINE = re.compile(
    rb"\s*(\d{1,20}): (malloc|calloc|realloc|memalign|free|thread_done) 0x([0-9a-f]{1,16})\b(.*)"
)
_NUMBERS = {"malloc": 1, "calloc": 2, "realloc": 2, "memalign": 2, "free": 0, "thread_done": 0}


def is_one(content: bytes) -> bool:
    """Whether its first line is a call."""
    return _LINE.match(content[:4096]) is not None


def operations(content: Content) -> Iterator[NDArray[np.void]]:
    """The calls as operations, block by block.

    Raises:
        TraceFormatError: naming the line that is no call, or cut.
        InvalidError: there is no call.
    """
    return batches(read_calls(content, _LINE, _History()))


class _History:
    """Live addresses, times, and the ids of threads."""

    def __init__(self) -> None:
        self.done = 0
        self._addresses = Addresses()
        self._threads: dict[int, int] = {}
        self._thread_count = 0
        self._first_ns: int | None = None

    def call(self, found: re.Match[bytes]) -> list[Row]:
        """The operations of a line."""
        word, address = found[2].decode(), int(found[3], 16)
        numbers = [int(one, 0) for one in found[4].split()]
        wanted = _NUMBERS[word]
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
        rows = self._rows_of(word, address, numbers)
        if rows and thread not in self._threads:
            self._threads[thread] = self._thread_count
            self._thread_count += 1
        return [(*row[:3], self._threads[thread], *row[3:]) for row in rows]

    def _rows_of(self, word: str, address: int, numbers: list[int]) -> list[Made]:
        if word == "free":
            return self._addresses.free(address)
        if word == "realloc":
            return self._addresses.realloc(address, numbers[0], checked_size(numbers[1]))
        last = _NUMBERS[word] - 1
        size = checked_size(numbers[0] * numbers[1] if word == "calloc" else numbers[last])
        align = _align_log2(numbers[0]) if word == "memalign" else 0
        flags = int(lib.SW_OP_ZEROED) if word == "calloc" else 0
        return self._addresses.alloc(address, size, align, flags)

    def _tick(self, begin_ns: int | None) -> None:
        """Moves the time on: it never falls, and without times calls are a microsecond apart."""
        if begin_ns is None:
            self._addresses.now_ns += STEP_NS if self.done > 1 else 0
            return
        if self._first_ns is None:
            self._first_ns = begin_ns
        self._addresses.advance(begin_ns - self._first_ns)

    def _end(self, thread: int) -> list[Row]:
        known = self._threads.pop(thread, None)
        if known is None:  # it made no operation
            return []
        return [(self._addresses.now_ns, 0, 0, known, int(lib.SW_OP_THREAD_END), 0, 0)]


def _align_log2(align: int) -> int:
    if align == 0 or align & (align - 1) or align.bit_length() > 48:
        raise ValueError(f"alignment {align} is no power of two")
    return align.bit_length() - 1
