# SPDX-License-Identifier: Apache-2.0
"""Formats of numbers over time and of one moment: trace events, OpenMetrics."""

from __future__ import annotations

import json
from typing import Any

from spanwise import _lib
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.results.rows import Rows

_PID = 1


def perfetto(rows: Rows, program: str) -> str:
    """A time line with all parts as counters of the Trace Event Format; times in microseconds.

    Args:
        rows: of `Recording.timeline(detail="parts")`.
        program: name of the process.
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": _PID, "tid": 0, "name": "process_name", "args": {"name": program}}
    ]
    before_ns = before_bytes = 0
    for row in rows:
        time_ns, bytes_now = int(row["time_ns"]), int(row["requested_bytes"])
        parts = {title: int(row[name]) for name, title in PARTS.items()}
        events.append(_counter("ledger, bytes", time_ns, parts))
        events.append(
            _counter("resident, bytes", time_ns, {"resident": int(row["resident_bytes"])})
        )
        events.append(_counter("live objects", time_ns, {"objects": int(row["live_objects"])}))
        if time_ns > before_ns:
            rate = (bytes_now - before_bytes) * 1e9 / (time_ns - before_ns)
            events.append(_counter("growth, bytes/s", time_ns, {"requested": round(rate)}))
            before_ns, before_bytes = time_ns, bytes_now
    made = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"exporter": f"spanwise {_lib.version()}"},
    }
    return json.dumps(made, separators=(",", ":")) + "\n"


def _counter(name: str, time_ns: int, args: dict[str, int]) -> dict[str, Any]:
    return {"ph": "C", "pid": _PID, "tid": 0, "name": name, "ts": time_ns / 1000, "args": args}


def openmetrics(ledger: Ledger) -> str:
    """The ledger of one moment as gauges, with its table as a label."""
    label = f'{{table="{_escaped(ledger.table)}",source="{_escaped(ledger.source)}"}}'
    gauges = [
        (name, "bytes", f"{title} bytes of the heap", getattr(ledger, name))
        for name, title in PARTS.items()
    ]
    gauges += [
        ("held_bytes", "bytes", "what the heap has from the system", ledger.held_bytes),
        ("waste_bytes", "bytes", "held minus requested", ledger.waste_bytes),
        ("live_objects", "", "objects that are allocated", ledger.live_objects),
        ("spans", "", "spans of slots", ledger.spans),
    ]
    if ledger.resident_bytes is not None:
        gauges.append(("resident_bytes", "bytes", "held and written to", ledger.resident_bytes))
    lines = []
    for name, unit, text, value in gauges:
        lines.append(f"# TYPE spanwise_{name} gauge")
        if unit:
            lines.append(f"# UNIT spanwise_{name} {unit}")
        lines += [f"# HELP spanwise_{name} {text}", f"spanwise_{name}{label} {value}"]
    return "\n".join([*lines, "# EOF\n"])


def _escaped(text: str) -> str:
    """A value of a label, as the specification escapes it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
