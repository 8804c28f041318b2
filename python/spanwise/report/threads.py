# SPDX-License-Identifier: Apache-2.0
"""What each thread of a recording allocated over time: lanes, and the rate of all of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import lib
from spanwise.report.trace_events import Event, counter, interval, name_of

_FREE, _END = int(lib.SW_OP_FREE), int(lib.SW_OP_THREAD_END)


class Windows:
    """Operations by thread and window of time.

    Attributes:
        length_ns: of a window; windows begin at 0.
        count: how many windows there are.
        sums: of each thread and window with an operation: requests, bytes asked for, frees.
    """

    def __init__(self, duration_ns: int, most: int) -> None:
        """Spreads windows over a recording.

        Args:
            duration_ns: of the recording.
            most: windows at most.
        """
        self.length_ns = max(1, -(-(duration_ns + 1) // most))
        self.count = duration_ns // self.length_ns + 1
        self.sums: dict[tuple[int, int], NDArray[np.int64]] = {}

    def add(self, ops: NDArray[np.void]) -> None:
        """Adds operations; a resize is a request of its new size."""
        ops = ops[ops["kind"] != _END]
        key = ops["thread"].astype(np.int64) * self.count
        key += (ops["time_ns"] // self.length_ns).astype(np.int64)
        keys, inverse = np.unique(key, return_inverse=True)
        sums = np.zeros((len(keys), 3), np.int64)
        free = ops["kind"] == _FREE
        for column, values in enumerate((~free, ops["size"].astype(np.int64), free)):
            np.add.at(sums[:, column], inverse, values)
        for place, row in zip(keys.tolist(), sums, strict=True):
            where = divmod(place, self.count)
            self.sums[where] = self.sums[where] + row if where in self.sums else row


def lanes(blocks: Iterable[NDArray[np.void]], duration_ns: int, most: int) -> list[Event]:
    """A lane a thread, with a box for windows in a row in which it called malloc or free.

    Above them is the counter "allocated, bytes/s": what all threads asked for in a window.

    Args:
        blocks: the operations.
        duration_ns: of the recording.
        most: windows at most.
    """
    windows = Windows(duration_ns, most)
    for block in blocks:
        windows.add(block)
    threads = sorted({thread for thread, _ in windows.sums})
    events = [name_of("thread_name", thread + 1, f"thread {thread}") for thread in threads]
    return [*events, *_rates(windows), *_boxes(windows)]


def _rates(windows: Windows) -> list[Event]:
    asked = np.zeros(windows.count, np.int64)
    for (_, window), sums in windows.sums.items():
        asked[window] += sums[1]
    rates = np.round(asked * 1e9 / windows.length_ns).astype(np.int64)
    changed = np.flatnonzero(np.diff(rates, prepend=-1))
    return [
        counter("allocated, bytes/s", window * windows.length_ns, {"requested": int(rates[window])})
        for window in changed.tolist()
    ]


def _boxes(windows: Windows) -> list[Event]:
    """Windows of a thread that follow each other are one box."""
    events: list[Event] = []
    before = (-1, -1)
    first, total = 0, np.zeros(3, np.int64)
    for thread, window in [*sorted(windows.sums), (-1, -1)]:
        if (thread, window - 1) != before:
            if before[0] >= 0:
                events.append(_box(windows, before[0], (first, before[1] + 1), total))
            first, total = window, np.zeros(3, np.int64)
        if thread >= 0:
            total = total + windows.sums[thread, window]
        before = thread, window
    return events


def _box(windows: Windows, thread: int, span: tuple[int, int], sums: NDArray[np.int64]) -> Event:
    start, end = (window * windows.length_ns for window in span)
    names = ("requests", "requested_bytes", "frees")
    args = dict(zip(names, sums.tolist(), strict=True))
    return interval("allocates", thread + 1, start, end - start, args)
