# SPDX-License-Identifier: Apache-2.0
"""Lanes of a collector in the Trace Event Format, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from spanwise import _lib
from spanwise.plots.collectors import LANE_NAMES
from spanwise.results.files import write_whole

if TYPE_CHECKING:
    from spanwise.gc.events import CollectorEvents

_PID = 1


def write(events: CollectorEvents, path: str | os.PathLike[str]) -> None:
    """As `CollectorEvents.to_perfetto`."""
    write_whole(path, perfetto(events))


def perfetto(events: CollectorEvents) -> str:
    """The file's text: the lanes, each a thread of one process, then intervals in microseconds."""
    made = [_meta("process_name", 0, {"name": f"collector of {events.source}"})]
    for lane, name in enumerate(LANE_NAMES, 1):
        made.append(_meta("thread_name", lane, {"name": name}))
        made.append(_meta("thread_sort_index", lane, {"sort_index": lane}))
    for row in events.mutator():
        made.append(_interval("mutator", row, {}))
    for row in events.array:
        args = {"cycle": int(row["cycle"]), "thread": int(row["thread"])}
        made.append(_interval(str(row["kind"]), row, args))
    content = {
        "traceEvents": made,
        "displayTimeUnit": "ms",
        "otherData": {"exporter": f"spanwise {_lib.version()}", "lost": events.lost},
    }
    return json.dumps(content, separators=(",", ":")) + "\n"


def _meta(name: str, lane: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": _PID, "tid": lane, "name": name, "args": args}


def _interval(kind: str, row: Any, args: dict[str, int]) -> dict[str, Any]:
    start, length = int(row["start_ns"]) / 1000, int(row["ns"]) / 1000
    lane = LANE_NAMES.index(kind) + 1
    return {
        **{"ph": "X", "pid": _PID, "tid": lane, "name": kind, "cat": "gc"},
        **{"ts": start, "dur": length, "args": args},
    }
