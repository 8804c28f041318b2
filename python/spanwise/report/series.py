# SPDX-License-Identifier: Apache-2.0
"""Formats of numbers over time and of one moment: trace events, OpenMetrics."""

from __future__ import annotations

from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.report.trace_events import Event, counter
from spanwise.results.rows import Rows


def counters(rows: Rows) -> list[Event]:
    """A time line with all parts as counters of the Trace Event Format.

    Args:
        rows: of `Recording.timeline(detail="parts")`.
    """
    events: list[Event] = []
    before_ns = before_bytes = 0
    for row in rows:
        time_ns, bytes_now = int(row["time_ns"]), int(row["requested_bytes"])
        parts = {title: int(row[name]) for name, title in PARTS.items()}
        events.append(counter("ledger, bytes", time_ns, parts))
        events.append(counter("live, bytes", time_ns, {"requested": bytes_now}))
        events.append(counter("resident, bytes", time_ns, {"resident": int(row["resident_bytes"])}))
        events.append(counter("live objects", time_ns, {"objects": int(row["live_objects"])}))
        if time_ns > before_ns:
            rate = (bytes_now - before_bytes) * 1e9 / (time_ns - before_ns)
            events.append(counter("growth, bytes/s", time_ns, {"requested": round(rate)}))
            before_ns, before_bytes = time_ns, bytes_now
    return events


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
