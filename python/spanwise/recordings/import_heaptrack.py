# SPDX-License-Identifier: Apache-2.0
"""What heaptrack writes.

Source: heaptrack 1.5, src/track/libheaptrack.cpp, src/interpret/heaptrack_interpret.cpp and
src/analyze/accumulatedtracedata.cpp. Lines begin with a letter; numbers are hexadecimal. `v VERSION
FORMAT` comes first, `c` is a time in milliseconds. Formats 0 to 3 have the same lines of calls: 1
numbers pairs, 2 adds inlined frames, 3 gives strings a length; heaptrack refuses newer formats than
its own, and so does this reader. With --raw a call is

    + SIZE STACK POINTER                   - POINTER

and without it, where `a` numbers the pairs of a size and a stack from 0,

    a SIZE STACK                           + PAIR                           - PAIR

so that a free does not tell which object of its pair it frees: the youngest is taken. A realloc is
a free and an allocation, in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spanwise.errors import InvalidError, UnsupportedError
from spanwise.recordings.addresses import Addresses, Row, batches, checked_size, read_calls
from spanwise.recordings.content import Content

REMARK = (
    "made from a file that heaptrack wrote: threads and alignments are not known, a realloc is a"
    " free and an allocation, and times are those of its stamps"
)
REMARK_OF_PAIRS = (
    f"{REMARK}; a free tells size and stack only, so the youngest such object is freed"
)

_FORMAT_MAX = 3
_BEGIN = re.compile(rb"v ([0-9a-f]{1,16}) ([0-9a-f]{1,16})\r?\n")
_CALL = re.compile(rb"([-+ac])((?: [0-9a-f]{1,16})+)\s*")
_OF_CALLS = (b"+ ", b"- ", b"a ", b"c ")
_FIELDS = {"a": 2, "c": 1, "+": 1, "-": 1}


def is_one(content: bytes) -> bool:
    """Whether a file begins like heaptrack's."""
    return _BEGIN.match(content) is not None


def operations(content: Content) -> tuple[Iterator[NDArray[np.void]], str]:
    """The calls as operations, block by block, and the remark that goes with them.

    Raises:
        TraceFormatError: it is cut or damaged; the message has the line.
        InvalidError: it is no file of heaptrack, or has no call.
        UnsupportedError: its format is newer than those that are known.
    """
    version = _BEGIN.match(content.head)
    if version is None:
        raise InvalidError(f"{content.name}: is no file of heaptrack: its first line is no version")
    if int(version[2], 16) > _FORMAT_MAX:
        raise UnsupportedError(
            f"{content.name}: line 1: is of heaptrack's format {int(version[2], 16)}; formats to"
            f" {_FORMAT_MAX} are read: record it with heaptrack 1.3 to 1.5"
        )
    raw = _raw(content)
    calls = read_calls(content, _CALL, _History(raw), lambda line: line[:2] in _OF_CALLS)
    return batches(calls), REMARK if raw else REMARK_OF_PAIRS


def _raw(content: Content) -> bool:
    """Whether its calls have sizes and pointers: decided by the first line of either kind."""
    for line in content.lines():
        if line[:2] in (b"a ", b"+ "):
            return line[:2] == b"+ "
    return True


class _History:
    """Live addresses; of pairs, an address of its own for each object."""

    def __init__(self, raw: bool) -> None:
        self.done = 0
        self._raw = raw
        self._addresses = Addresses()
        self._sizes: list[int] = []  # of each pair
        self._live: list[list[int]] = []  # of each pair the objects, the youngest last
        self._next = 1

    def call(self, found: re.Match[bytes]) -> list[Row]:
        """The operations of a line."""
        word, numbers = found[1].decode(), [int(one, 16) for one in found[2].split()]
        if len(numbers) != (3 if word == "+" and self._raw else _FIELDS[word]):
            raise ValueError(f"{word} has {len(numbers)} numbers")
        if word == "c":
            self._addresses.advance(numbers[0] * 1_000_000)
            return []
        if word == "a":
            self._sizes.append(checked_size(numbers[0]))
            self._live.append([])
            return []
        self.done += 1
        if word == "+":
            size, address = self._born(numbers)
            made = self._addresses.alloc(address, size)
        else:
            made = self._addresses.free(self._dead(numbers[0]))
        return [(*row[:3], 0, *row[3:]) for row in made]

    def _born(self, numbers: list[int]) -> tuple[int, int]:
        """Size and address of an allocation."""
        if self._raw:
            return checked_size(numbers[0]), numbers[2]
        pair = self._known(numbers[0])
        address, self._next = self._next, self._next + 1
        self._live[pair].append(address)
        return self._sizes[pair], address

    def _dead(self, number: int) -> int:
        """The address of the object that a line frees; 0: of none."""
        if self._raw:
            return number
        live = self._live[self._known(number)]
        return live.pop() if live else 0

    def _known(self, pair: int) -> int:
        if pair >= len(self._sizes):
            raise ValueError(f"pair {pair:x} was not told before")
        return pair
