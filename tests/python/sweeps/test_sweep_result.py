# SPDX-License-Identifier: Apache-2.0
"""Rankings of sweeps, by hand from made-up rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from spanwise.sweeps.result import Sweep, latest
from spanwise.sweeps.tasks import ROW_FIELDS


def row(recording: str, table: str, held: int, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(ROW_FIELDS, 0)
    values.update(recording=recording, recording_sha256=f"sha of {recording}", table=table)
    values.update(table_hash=f"{ord(table):016x}", at="peak", worker="here", error=None)
    values.update(held_bytes=held, waste_bytes=held - 10, requested_bytes=10, seconds=0.5)
    values.update(peak_resident_bytes=held)
    return {**values, **changes}


def sweep_of(*rows: dict[str, Any]) -> Sweep:
    names = dict.fromkeys(one["table"] for one in rows)
    plain = {"page_bytes": 8192, "sizes": [16], "pages": [1]}
    return Sweep(rows, [{"hash": f"{ord(n):016x}", "name": n, **plain} for n in names])


ROWS = (
    row("x", "a", 100),
    row("x", "b", 90, waste_bytes=89),
    row("x", "c", 10),
    row("y", "a", 200),
    row("y", "b", 205, waste_bytes=250),
    row("y", "c", 0, error="it broke"),
)


def test_rankings_are_of_sums() -> None:
    """Table c failed with one recording: it is in no ranking of both."""
    swept = sweep_of(*ROWS)
    assert swept.ranking() == [("b", 295), ("a", 300)]
    assert swept.ranking("waste_bytes") == [("a", 280), ("b", 339)]
    assert swept.ranking("seconds") == [("a", 1.0), ("b", 1.0)]  # of equal ones the first
    assert swept.ranking(recording="x") == [("c", 10), ("b", 90), ("a", 100)]
    assert swept.ranking(recording="y") == [("a", 200), ("b", 205)]
    assert [one["table"] for one in swept.failures] == ["c"]
    assert swept.to_dict()["best"] == "b"


def test_who_refuses_more_is_left_out() -> None:
    """Of each recording those count that refused least."""
    swept = sweep_of(
        row("x", "a", 50, failed=3),
        row("x", "b", 60, failed=2),
        row("x", "c", 70, failed=2),
        row("y", "a", 50),
        row("y", "b", 60),
        row("y", "c", 65, failed=1),
    )
    assert swept.ranking() == [("b", 120)]
    assert swept.ranking(recording="x") == [("b", 60), ("c", 70)]
    assert swept.ranking(recording="y") == [("a", 50), ("b", 60)]


def test_ranking_of_resident_bytes() -> None:
    """The peak resident bytes rank by default."""
    swept = sweep_of(row("x", "a", 100, resident_bytes=70), row("x", "b", 90, resident_bytes=80))
    assert swept.ranking("resident_bytes") == [("a", 70), ("b", 80)]
    assert swept.ranking() == [("b", 90), ("a", 100)]
    most = sweep_of(
        *(row("x", t, h, peak_resident_bytes=170 - h) for t, h in (("a", 90), ("b", 80)))
    )
    assert most.judged_by == "peak_resident_bytes"
    assert most.ranking() == [("a", 80), ("b", 90)] and most.to_dict()["best"] == "a"


def test_text_of_a_sweep() -> None:
    swept = sweep_of(*ROWS)
    assert swept.title == "sweep of 2 recordings under 3 tables at peak, 1 row failed"
    assert [line[:4:3] for line in swept._text_rows()] == [("b", "295"), ("a", "300")]
    assert swept._text_rows()[1][-2:] == ("280", "93.3 %")


def test_arrays_of_rows() -> None:
    rows = sweep_of(row("x", "a", 100), row("y", "a", 0, error="no", held_bytes=None, seconds=None))
    columns = rows.array
    assert columns["ok"].tolist() == [True, False]
    assert columns["held_bytes"].tolist() == [100, 0]
    assert columns["table_hash"].tolist() == [ord("a")] * 2
    assert columns["seconds"][0] == 0.5 and np.isnan(columns["seconds"][1])


def test_of_rows_about_the_same_the_last_counts() -> None:
    rows = latest([row("x", "a", 1), row("x", "b", 2), row("x", "a", 3)])
    assert [(one["table"], one["held_bytes"]) for one in rows] == [("a", 3), ("b", 2)]
