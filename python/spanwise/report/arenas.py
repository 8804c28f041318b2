# SPDX-License-Identifier: Apache-2.0
"""Arenas in the Trace Event Format: a lane each, from its creation to its end."""

from __future__ import annotations

import os

import numpy as np

from spanwise.report.trace_events import Event, counter, instant, of_life, text_of
from spanwise.results.files import write_whole
from spanwise.results.rows import AnyRows


def write(rows: AnyRows, path: str | os.PathLike[str]) -> None:
    """As `ArenaTracker.to_perfetto`."""
    write_whole(path, text_of("arenas", events_of(rows)))


def events_of(rows: AnyRows) -> list[Event]:
    """The events, in the order of time, which begins with the first row."""
    made: list[Event] = []
    live: dict[int, int] = {}  # the bytes of objects of each arena
    first = last = 0
    for i, row in enumerate(np.asarray(rows)):
        first = int(row["time_ns"]) if i == 0 else first
        last = int(row["time_ns"]) - first
        made += _event(row, last, live)
    ends = [
        of_life("e", "arena", arena, last, lane=0, args={"freed": False}) for arena in sorted(live)
    ]
    return [*made, *ends]


def _event(row: np.void, now: int, live: dict[int, int]) -> list[Event]:
    """The events of one row; an arena whose creation was not seen begins here."""
    arena, lane, what = int(row["arena"]), int(row["thread"]), str(row["event"])
    if what == "arena.alert":
        args = {"untracked_bytes": int(row["size"]), "old_bytes": int(row["length"])}
        return [instant("alert", now, args)]
    made = []
    if arena not in live:
        live[arena] = 0
        seen = what == "arena.new"
        made.append(of_life("b", "arena", arena, now, lane=lane, args={"creation_seen": seen}))
    if what == "arena.alloc":
        live[arena] += int(row["length"])
        args = {"bytes": int(row["length"]), "offset": int(row["offset"])}
        made.append(of_life("n", "arena", arena, now, lane=lane, args=args))
    if what == "arena.free":
        args = {"freed": True, "bytes": live.pop(arena)}
        made.append(of_life("e", "arena", arena, now, lane=lane, args=args))
    made.append(counter("live arenas", now, {"arenas": len(live)}))
    made.append(counter("bytes of live arenas", now, {"allocated": sum(live.values())}))
    return made
