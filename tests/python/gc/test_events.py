# SPDX-License-Identifier: Apache-2.0
"""Events of a collected heap: those of known calls, also as lanes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.gc.events import EVENT_DTYPE, as_events


def by_hand(rows: list[tuple[str, int, int, int, int]], total: int = 0) -> sw.CollectorEvents:
    return as_events("by hand", [np.array(rows, EVENT_DTYPE)], 0, total)


def kinds(events: sw.CollectorEvents) -> list[str]:
    return [str(kind) for kind in events.array["kind"]]


TWO = by_hand(
    [
        ("mark", 1, 7, 110, 20),
        ("sweep", 1, 7, 130, 30),
        ("pause", 1, 7, 100, 70),
        ("assist", 1, 7, 90, 90),
        ("cycle", 1, 7, 100, 70),
        ("sweep", 1, 8, 300, 10),
        ("pause", 2, 7, 400, 50),
    ],
    1000,
)


def test_sums_and_what_is_left_to_the_program() -> None:
    assert [tuple(row) for row in np.asarray(TWO.sums()).tolist()] == [
        ("cycle", 1, 70),
        ("pause", 2, 120),
        ("mark", 1, 20),
        ("sweep", 2, 40),
        ("assist", 1, 90),
        ("wait", 0, 0),
        ("finalize", 0, 0),
    ]
    runs = [tuple(row) for row in np.asarray(TWO.mutator()).tolist()]
    assert runs == [(0, 100), (170, 230), (450, 550)]
    assert sum(length for _, length in runs) + 120 == TWO.total_ns
    # The worst window of 350 ns has both pauses: 100 to 450.
    least = TWO.utilisation([70, 350, 1000])["utilisation"]
    assert least == pytest.approx([0, 1 - 120 / 350, 0.88])


def test_no_events() -> None:
    none = by_hand([], 50)
    assert [tuple(row) for row in np.asarray(none.mutator()).tolist()] == [(0, 50)]
    assert none.sums()["events"].sum() == 0
    assert (none.utilisation([10])["utilisation"] == 1).all()
    assert "0 events" in str(none)


def test_lost_events_move_the_start_of_the_program() -> None:
    part = np.array([("pause", 3, 7, 400, 50)], EVENT_DTYPE)
    events = as_events("by hand", [part], 9, 500)
    assert [tuple(row) for row in np.asarray(events.mutator()).tolist()] == [(450, 50)]
    assert "9 lost" in str(events)


def test_lanes_of_perfetto(tmp_path: Path) -> None:
    path = tmp_path / "lanes.json"
    TWO.to_perfetto(path)
    found = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert list(names.values()) == [
        *("mutator", "assist", "mark", "sweep", "pause", "wait", "finalize", "cycle")
    ]
    spans = [e for e in found if e["ph"] == "X"]
    assert all(names[e["tid"]] == e["name"] for e in spans)
    assert [(e["name"], e["ts"], e["dur"]) for e in spans] == [
        ("mutator", 0, 0.1),
        ("mutator", 0.17, 0.23),
        ("mutator", 0.45, 0.55),
        ("assist", 0.09, 0.09),
        ("pause", 0.1, 0.07),
        ("cycle", 0.1, 0.07),
        ("mark", 0.11, 0.02),
        ("sweep", 0.13, 0.03),
        ("sweep", 0.3, 0.01),
        ("pause", 0.4, 0.05),
    ]
    assert spans[-2]["args"] == {"cycle": 1, "thread": 8}
    with pytest.raises(OSError, match="nowhere"):
        TWO.to_perfetto(tmp_path / "nowhere" / "lanes.json")


def test_lanes_as_a_picture() -> None:
    ax = TWO.plot()
    labels = [label.get_text() for label in ax.get_yticklabels()]
    found = "mutator (3), assist (1), mark (1), sweep (2), pause (2), cycle (1)"
    assert ", ".join(labels) == found
    assert ax.get_xlabel().endswith("ns")
