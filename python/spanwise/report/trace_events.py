# SPDX-License-Identifier: Apache-2.0
"""Files in the Trace Event Format, which Perfetto and chrome://tracing open: one process.

Times come in nanoseconds and are written in microseconds, as the format has them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from spanwise import _lib

Event = dict[str, Any]

_PID = 1


def text_of(program: str, events: Sequence[Event]) -> str:
    """The file's text: the process's name, then the events."""
    made = {
        "traceEvents": [name_of("process_name", 0, program), *events],
        "displayTimeUnit": "ms",
        "otherData": {"exporter": f"spanwise {_lib.version()}"},
    }
    return json.dumps(made, separators=(",", ":")) + "\n"


def name_of(what: str, lane: int, name: str) -> Event:
    """The name of the process or of a lane: "process_name", "thread_name"."""
    return {"ph": "M", "pid": _PID, "tid": lane, "name": what, "args": {"name": name}}


def counter(name: str, time_ns: float, args: dict[str, int]) -> Event:
    """Values from this time on."""
    return {**_at("C", name, time_ns, 0), "args": args}


def interval(name: str, lane: int, time_ns: float, length_ns: float, args: dict[str, int]) -> Event:
    """A box in a lane."""
    return {**_at("X", name, time_ns, lane), "dur": length_ns / 1000, "args": args}


def instant(name: str, time_ns: float, args: dict[str, int]) -> Event:
    """A mark through all lanes."""
    return {**_at("i", name, time_ns, 0), "s": "g", "args": args}


def of_life(
    phase: str, kind: str, number: int, time_ns: float, *, lane: int, args: dict[str, Any]
) -> Event:
    """Begin ("b"), moment ("n") or end ("e") of something that has a lane of its own.

    Args:
        phase: one of these letters.
        kind: what it is; with its number the name of the lane.
        number: tells it from others of its kind.
        time_ns: when.
        lane: the thread that did it.
        args: what is known.
    """
    event = _at(phase, f"{kind} {number}", time_ns, lane)
    return {**event, "cat": kind, "id": number, "args": args}


def _at(phase: str, name: str, time_ns: float, lane: int) -> Event:
    return {"ph": phase, "pid": _PID, "tid": lane, "name": name, "ts": time_ns / 1000}
