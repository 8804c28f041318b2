# SPDX-License-Identifier: Apache-2.0
"""Turns a history of addresses, as lists of calls have it, into operations on objects.

A free of an unknown address is left out, a realloc of one is an allocation, and an address that is
given out while it is live is freed before, as in a recording (docs/design/trace.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import OPS_DTYPE, lib
from spanwise.errors import InvalidError, TraceFormatError
from spanwise.recordings.content import Content

STEP_NS = 1000
"""The time from one call to the next, in nanoseconds, if the file has no times."""

_SIZE_MAX = (1 << 63) - 1
_BATCH = 1 << 16

Row = tuple[int, int, int, int, int, int, int]
"""time_ns, size, object, thread, kind, align_log2, flags."""

Made = tuple[int, int, int, int, int, int]
"""The same without the thread."""


class Addresses:
    """Live addresses and the ids of their objects; an id whose object is freed is used again.

    Attributes:
        now_ns: the time of the operations that are made; it never falls.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self._live: dict[int, int] = {}
        self._free_ids: list[int] = []
        self._next_id = 0

    def __contains__(self, address: int) -> bool:
        """Whether an object lives there."""
        return address in self._live

    def advance(self, time_ns: int) -> None:
        """Moves the time on to `time_ns`, unless it is there already.

        Raises:
            ValueError: no recording can have it.
        """
        self.now_ns = max(self.now_ns, checked_size(time_ns, "time"))

    def alloc(self, address: int, size: int, align_log2: int = 0, flags: int = 0) -> list[Made]:
        """An allocation; at 0 it failed, and nothing is made."""
        if address == 0:
            return []
        before = self.free(address)
        if self._free_ids:
            self._live[address] = self._free_ids.pop()
        else:
            self._live[address] = self._next_id
            self._next_id += 1
        kind = int(lib.SW_OP_ALLOC)
        return [*before, (self.now_ns, size, self._live[address], kind, align_log2, flags)]

    def free(self, address: int) -> list[Made]:
        """A free; of an unknown address nothing is made."""
        known = self._live.pop(address, None)
        if known is None:
            return []
        self._free_ids.append(known)
        return [(self.now_ns, 0, known, int(lib.SW_OP_FREE), 0, 0)]

    def realloc(self, address: int, old: int, size: int) -> list[Made]:
        """A realloc of `old` to `address`; to 0 it failed, or it freed if `size` is 0."""
        if address == 0:
            return self.free(old) if size == 0 else []
        known = self._live.pop(old, None)
        if known is None:
            return self.alloc(address, size)
        before = self.free(address)
        self._live[address] = known
        return [*before, (self.now_ns, size, known, int(lib.SW_OP_REALLOC), 0, 0)]


def checked_size(size: int, noun: str = "size") -> int:
    """The size, or another number.

    Raises:
        ValueError: no recording can have it.
    """
    if size > _SIZE_MAX:
        shown = size if size < 1 << 128 else "of more than 128 bits"
        raise ValueError(f"{noun} {shown} is too large")
    return size


class History(Protocol):
    """What the calls of a file do, one line after another."""

    done: int

    def call(self, found: re.Match[bytes]) -> list[Any]:
        """The operations of a line; ValueError: it is no call after all."""
        ...


def read_calls(
    content: Content,
    pattern: re.Pattern[bytes],
    history: History,
    wanted: Callable[[bytes], bool] = bool,
) -> Iterator[list[Any]]:
    """The operations of each line of a list of calls.

    Args:
        content: the list.
        pattern: of a line that is a call.
        history: what turns a call into operations, and counts in `done`.
        wanted: whether a line is to be a call; blank ones are not.

    Raises:
        TraceFormatError: naming the line that is no call, or cut.
        ValueError: as `history`; `content.place()` has the line.
        InvalidError: there is no call.
    """
    for line in content.lines():
        text = line.rstrip(b"\r")
        if not text.strip() or not wanted(text):
            continue
        found = pattern.fullmatch(text)
        if found is None or content.cut:
            what = "is cut short" if content.cut else "is no call"
            shown = text[:60].decode("utf-8", "replace").strip()
            raise TraceFormatError(f"{content.name}: {content.place()} {what}: {shown!r}")
        yield history.call(found)
    if not history.done:
        raise InvalidError(f"{content.name}: has no call; nothing to make")


def batches(calls: Iterable[list[Row]]) -> Iterator[NDArray[np.void]]:
    """The operations of calls as arrays of OPS_DTYPE, some 65,536 operations each."""
    rows: list[Row] = []
    for made in calls:
        rows += made
        if len(rows) >= _BATCH:
            yield np.array(_columns(rows), OPS_DTYPE)
            rows = []
    yield np.array(_columns(rows), OPS_DTYPE)


def _columns(rows: list[Row]) -> list[tuple[int, ...]]:
    """The rows in the order of OPS_DTYPE's fields."""
    fields = ("time_ns", "size", "object", "thread", "kind", "align_log2", "flags")
    place = [fields.index(n) if n in fields else None for n in OPS_DTYPE.names or ()]
    return [tuple(0 if i is None else row[i] for i in place) for row in rows]
