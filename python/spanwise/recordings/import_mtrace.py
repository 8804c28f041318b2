# SPDX-License-Identifier: Apache-2.0
"""The file that glibc's mtrace() writes ($MALLOC_TRACE): a call a line.

Source: glibc, malloc/mtrace-impl.c, and its reader malloc/mtrace.pl:

    = Start                                = End
    @ CALLER + POINTER SIZE                @ CALLER - POINTER
    @ CALLER < OLD_POINTER                 @ CALLER > POINTER SIZE
    @ CALLER ! OLD_POINTER SIZE

A realloc is the two lines `<` and `>`, or the line `!` where it failed. The caller may be absent.
Neither times nor threads nor alignments are told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spanwise.recordings.addresses import (
    STEP_NS,
    Addresses,
    Made,
    batches,
    checked_size,
    read_calls,
)
from spanwise.recordings.content import Content

_BEGIN = re.compile(rb"= Start\r?\n")
_MARK = re.compile(rb"= (Start|End)")
_NUMBER = rb"(0x[0-9a-f]{1,16}|0|\(nil\))"
_CALL = re.compile(rb"(?:@ .*? )??([-+<>!]) " + _NUMBER + rb"(?: " + _NUMBER + rb")?")
_SIZED = b"+>!"


def is_one(content: bytes) -> bool:
    """Whether it begins as such a file."""
    return _BEGIN.match(content) is not None


def operations(content: Content) -> Iterator[NDArray[np.void]]:
    """The calls as operations, block by block, all of one thread and a microsecond apart.

    Raises:
        TraceFormatError: naming the line that is no call, or cut.
        InvalidError: there is no call.
    """
    calls = read_calls(content, _CALL, _History(), lambda line: _MARK.fullmatch(line) is None)
    return batches([(*row[:3], 0, *row[3:]) for row in made] for made in calls)


class _History:
    """Live addresses, and the realloc whose second line is still to come."""

    def __init__(self) -> None:
        self.done = 0
        self._addresses = Addresses()
        self._old: int | None = None

    def call(self, found: re.Match[bytes]) -> list[Made]:
        """The operations of a line; none of the first line of a realloc."""
        word, address, size = found[1], _value(found[2]), found[3]
        if (size is None) == (word in _SIZED):
            raise ValueError(f"{word.decode()} has {'no' if size is None else 'a'} size")
        if (word == b">") != (self._old is not None):
            raise ValueError("a realloc is a line with < and the next with >")
        if word == b"<":
            self._old = address
            return []
        old, self._old = self._old, None
        self._addresses.now_ns = STEP_NS * self.done
        self.done += 1
        if word == b"-":
            return self._addresses.free(address)
        bytes_asked = checked_size(_value(size))
        if word == b"+":
            return self._addresses.alloc(address, bytes_asked)
        return self._addresses.realloc(address, old, bytes_asked) if old is not None else []


def _value(text: bytes) -> int:
    return 0 if text == b"(nil)" else int(text, 16)
