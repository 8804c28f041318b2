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

import io
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spanwise.errors import InvalidError, TraceFormatError
from spanwise.recordings.addresses import STEP_NS, Addresses, Made, batches, checked_size

_BEGIN = re.compile(rb"= Start\r?\n")
_MARK = re.compile(rb"= (Start|End)")
_NUMBER = rb"(0x[0-9a-f]+|0|\(nil\))"
_CALL = re.compile(rb"(?:@ .*? )??([-+<>!]) " + _NUMBER + rb"(?: " + _NUMBER + rb")?")
_SIZED = b"+>!"


def is_one(content: bytes) -> bool:
    """Whether it begins as such a file."""
    return _BEGIN.match(content) is not None


def operations(content: bytes, name: str) -> Iterator[NDArray[np.void]]:
    """The calls as operations, block by block, all of one thread and a microsecond apart.

    Raises:
        TraceFormatError: naming the line that is no call, or cut.
        InvalidError: there is no call.
    """
    calls = ([(*row[:3], 0, *row[3:]) for row in made] for made in _calls(content, name))
    return batches(calls)


def _calls(content: bytes, name: str) -> Iterator[list[Made]]:
    history = _History()
    for number, line in enumerate(io.BytesIO(content), 1):
        text = line.rstrip(b"\r\n")
        if not text or _MARK.fullmatch(text):
            continue
        found = _CALL.fullmatch(text)
        if found is None or not line.endswith(b"\n"):
            what = "is cut short" if not line.endswith(b"\n") else "is no call"
            shown = text[:60].decode("utf-8", "replace")
            raise TraceFormatError(f"{name}: line {number} {what}: {shown!r}")
        try:
            yield history.call(found)
        except ValueError as error:
            raise TraceFormatError(f"{name}: line {number}: {error}") from None
    if not history.done:
        raise InvalidError(f"{name}: has no call; nothing to make")


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
