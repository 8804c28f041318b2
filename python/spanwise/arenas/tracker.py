# SPDX-License-Identifier: Apache-2.0
"""A tracker of arenas: where they were created, and which leak (docs/design/arena.md)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

import numpy as np

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Owner
from spanwise.errors import StateError
from spanwise.results.rows import AnyRows, Result, Rows, as_rows

_EVENT_DTYPE = np.dtype(
    [
        ("time_ns", np.uint64),
        ("event", "U12"),
        ("arena", np.uint64),
        ("address", np.uint64),
        ("size", np.uint64),
        ("offset", np.uint64),
        ("length", np.uint64),
        ("thread", np.uint64),
    ]
)

_BATCH = 256


@dataclass(frozen=True)
class TrackedArena(Result):
    """A live arena, as its tracker sees it.

    Attributes:
        id: 1, 2, ... in the order of creation.
        tag: the arena's tag; None: it has none.
        made_ns: time of its creation, on the tracker's clock.
        age_ns: its age at the time of the query.
        thread: thread id of its creator.
        chunk_bytes: bytes of its chunks.
        own_bytes: requested bytes of objects that are too big for a chunk.
        frames: return addresses of its creation, innermost first.
    """

    id: int
    tag: str | None
    made_ns: int
    age_ns: int = field(compare=False)
    thread: int
    chunk_bytes: int
    own_bytes: int
    frames: tuple[int, ...]


@dataclass(frozen=True)
class TrackerTotals(Result):
    """Totals of all arenas from two sources: the library's counters and the tracker.

    Attributes:
        now_ns: time on the tracker's clock.
        arenas: live arenas, by the library's counter.
        tracked_arenas: live arenas, by the tracker.
        chunk_bytes: bytes of chunks in use, by the chunk cache.
        tracked_chunk_bytes: bytes of chunks, by the tracked arenas.
        tracked_own_bytes: objects of tracked arenas that also count as live bytes of a heap.
        missed: arenas that were not tracked for lack of memory.
        events: events recorded so far.
        lost: events overwritten before they were read.
        alerts: alerts raised so far.
    """

    now_ns: int = field(compare=False)
    arenas: int
    tracked_arenas: int
    chunk_bytes: int
    tracked_chunk_bytes: int
    tracked_own_bytes: int
    missed: int
    events: int
    lost: int
    alerts: int

    @property
    def agree(self) -> bool:
        """Whether the two sources agree."""
        same_bytes = self.chunk_bytes == self.tracked_chunk_bytes
        return self.arenas == self.tracked_arenas and same_bytes

    @property
    def difference(self) -> str:
        """Text that describes the difference; "" if the sources agree."""
        if self.agree:
            return ""
        arenas = self.arenas - self.tracked_arenas
        chunks = self.chunk_bytes - self.tracked_chunk_bytes
        return f"{arenas} arenas with {chunks:,} bytes of chunks are not tracked"


class ArenaTracker(Owner):
    """Tracks the arenas that are created while it is open. A process has at most one tracker.

    A heap's live bytes do not include arenas, except for objects that are too big for a chunk.
    `leaks(seconds)` lists the live arenas of at least that age, so `leaks(0)` lists all. After
    `close`, every call raises StateError.

    >>> with ArenaTracker() as tracker:
    ...     arena = Arena(tag="request")
    ...     [old.tag for old in tracker.leaks(0)]
    ['request']

    Args:
        frames: return addresses to record per arena, 0 to 8.
        events: the most events until `events` is called, up to 2^24; beyond that a new event
            overwrites the oldest.
        allocs: also record an event per object.
        manual_clock: the time starts at 0, and only `set_time` advances it.

    Raises:
        BlockBusyError: there already is a tracker.
        InvalidError: an argument is outside these limits.
        OutOfMemoryError: no memory.
    """

    def __init__(
        self,
        *,
        frames: SupportsIndex = 8,
        events: SupportsIndex = 1024,
        allocs: bool = False,
        manual_clock: bool = False,
    ) -> None:
        options = _lib.options_of(
            "sw_tracker_options",
            frames=_lib.as_index(frames, "frames", (1 << 32) - 1),
            events=_lib.as_index(events, "events"),
            allocs=int(allocs),
            manual_clock=int(manual_clock),
        )
        c_tracker = _lib.output_of(lib.sw_tracker_create, options)
        self._alerts = 0
        self._min_age_seconds: float = 0
        super().__init__(c_tracker, lib.sw_tracker_destroy)

    def set_time(self, seconds: float) -> None:
        """Set the time of a tracker with manual_clock.

        Raises:
            InvalidError: the time goes backwards, or the tracker has no manual clock.
        """
        self._checked(lib.sw_tracker_set_time, _lib.as_nanoseconds(seconds))

    def leaks(self, min_age_seconds: float = 0, tag: str | None = None) -> list[TrackedArena]:
        """Return live arenas of at least this age, oldest first.

        Args:
            min_age_seconds: minimum age on the tracker's clock.
            tag: only those with this tag; None: all.

        Raises:
            InvalidError: the age is negative.
        """
        min_age_ns = _lib.as_nanoseconds(min_age_seconds, "min_age_seconds")
        _lib.check_type(tag, (str, type(None)), "tag")
        c_tag = ffi.NULL if tag is None else ffi.new("char[]", tag.encode())
        with self._lock:
            c_tracker, count, capacity = self._open(), 1, 0
            while count > capacity:  # other threads may create arenas
                capacity = count + 16
                rows = ffi.new("sw_tracked_arena[]", capacity)
                count = lib.sw_tracker_leaks(c_tracker, min_age_ns, c_tag, rows, capacity)
        return [_tracked(rows[i]) for i in range(count)]

    def totals(self) -> TrackerTotals:
        """Return the totals of the library's counters and of the tracker."""
        out = ffi.new("sw_tracker_totals *")
        with self._lock:
            status = lib.sw_tracker_check(self._open(), out)
        totals = TrackerTotals(**_lib.struct_dict(out))
        if status != 0 and totals.agree:
            raise _lib.failure(status)
        return totals

    def check(self) -> None:
        """Check that the two sources agree.

        Raises:
            StateError: they differ (the message says by how much), or the tracker is closed.
        """
        totals = self.totals()
        if not totals.agree:
            raise StateError(f"{totals.difference}: they were created before the tracker")

    @staticmethod
    def to_perfetto(events: AnyRows, path: str | os.PathLike[str]) -> None:
        """Write rows of `events` as a file for Perfetto (the Trace Event Format).

        Each arena has a lane from its creation to its end, with its objects as instants; a live
        arena ends with the last event. Counters show the number of live arenas and their bytes.

        Args:
            events: rows of one call, or of several concatenated.
            path: of the file, which is written whole or not at all, replacing an existing one.

        Raises:
            OSError: the system refused to write.
        """
        from spanwise.report import export as perfetto  # noqa: PLC0415  reports know models

        _lib.as_iterable(events, "events")
        _lib.check_type(path, (str, os.PathLike), "path")
        perfetto.write_arenas(events, path)

    def events(self) -> Rows:
        """Take the events since the last call, oldest first.

        Columns: time_ns (of the tracker's clock), event, arena, address, size, offset, length,
        thread. `event` is "arena.new", "arena.alloc", "arena.free" or "arena.alert"; `arena` is the
        id of a tracked arena. For an allocation, `address` and `size` are those of the chunk,
        `offset` and `length` those of the object in it. For an alert, `size` is the untracked
        bytes and `length` the bytes in old arenas.
        """
        batch = ffi.new("sw_tracker_event[]", _BATCH)
        found: list[tuple[Any, ...]] = []
        with self._lock:
            count = _BATCH
            while count == _BATCH:
                count = lib.sw_tracker_read(self._open(), batch, _BATCH)
                found += [_event(batch[i]) for i in range(count)]
        return as_rows(np.array(found, _EVENT_DTYPE))

    # --- alerts ---

    def set_alert(
        self,
        *,
        period_seconds: float = 60,
        min_age_seconds: float = 300,
        threshold_bytes: SupportsIndex = 0,
    ) -> None:
        """Enable a check once per period, when an arena is created or freed or `look` is called.

        Args:
            period_seconds: minimum time between two checks, above 0.
            min_age_seconds: arenas of at least this age are old.
            threshold_bytes: an alert is raised for more untracked bytes than this, or for more
                bytes in old arenas.

        Raises:
            InvalidError: a number is negative, or the period is 0.
        """
        rule = _lib.options_of(
            "sw_tracker_rule",
            period_ns=_lib.as_nanoseconds(period_seconds, "period_seconds"),
            min_age_ns=_lib.as_nanoseconds(min_age_seconds, "min_age_seconds"),
            threshold_bytes=_lib.as_index(threshold_bytes, "threshold_bytes"),
        )
        with self._lock:
            check(lib.sw_tracker_set_alert(self._open(), rule))
            self._min_age_seconds = min_age_seconds

    def look(self) -> list[TrackedArena] | None:
        """Check for leaks if a period has passed.

        Returns:
            The old arenas if an alert was raised since the last call, else None. An alert is also
            an event.
        """
        with self._lock:
            lib.sw_tracker_look(self._open())
            alerts = self.totals().alerts
            if alerts == self._alerts:
                return None
            self._alerts = alerts
            return self.leaks(self._min_age_seconds)

    def __repr__(self) -> str:
        with self._lock:
            if self._c is None:
                return "<ArenaTracker, closed>"
            totals = self.totals()
        chunks = f"{totals.tracked_chunk_bytes:,} B of chunks"
        return f"<ArenaTracker of {totals.tracked_arenas:,} arenas, {chunks}>"


def _tracked(row: Any) -> TrackedArena:
    tag = None if row.tag == ffi.NULL else ffi.string(row.tag).decode()
    frames = tuple(int(row.frames[i]) for i in range(row.frame_count))
    numbers = (row.made_ns, row.age_ns, row.thread, row.chunk_bytes, row.own_bytes)
    return TrackedArena(row.id, tag, *numbers, frames)


def _event(event: Any) -> tuple[Any, ...]:
    name = _lib.text(lib.sw_tracker_event_name(event.kind))
    places = (event.address, event.size, event.offset, event.length)
    return (event.time_ns, name, event.arena, *places, event.thread)
