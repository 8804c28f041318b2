# SPDX-License-Identifier: Apache-2.0
"""Rankings of sweeps and of frontiers, by hand from rows that are made up; caches of a frontier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from numpy.typing import NDArray
from spanwise import _lib
from spanwise.optimizer.frontier import FRONTIER_DTYPE, Frontier, _row, _SpreadSource, peak_ledger
from spanwise.recordings.sources import Batch
from spanwise.results.rows import as_rows
from spanwise.sweeps.result import Sweep, latest
from spanwise.sweeps.tasks import ROW_FIELDS

from tests.python.helpers import ALLOC, FREE, make_ops

# --- sweeps ---------------------------------------------------------------------------------------


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
    """A row of a file that does not know them is in no ranking of them, and makes no bar's line."""
    swept = sweep_of(row("x", "a", 100, resident_bytes=70), row("x", "b", 90, resident_bytes=80))
    assert swept.ranking("resident_bytes") == [("a", 70), ("b", 80)]
    assert swept.ranking() == [("b", 90), ("a", 100)]
    most = sweep_of(
        *(row("x", t, h, peak_resident_bytes=170 - h) for t, h in (("a", 90), ("b", 80)))
    )
    assert most.judged_by == "peak_resident_bytes"
    assert most.ranking() == [("a", 80), ("b", 90)] and most.to_dict()["best"] == "a"
    older = sweep_of(row("x", "a", 90), row("x", "b", 80, peak_resident_bytes=None))
    assert older.judged_by == "held_bytes" and older.ranking() == [("b", 80), ("a", 90)]
    old = sweep_of(row("x", "a", 100, resident_bytes=70), row("x", "b", 90, resident_bytes=None))
    assert old.ranking("resident_bytes") == [("a", 70)]
    assert "unknown" in str(old)


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


# --- frontiers ------------------------------------------------------------------------------------


def frontier_row(classes: int, scale: int, caches: int, resident: int) -> tuple[int, ...]:
    """What is held falls where what is resident rises: it has no say in what is lowest."""
    return (classes, scale, caches, 1, 2, 3, 4, 5, 6, 7, 1000 - resident, resident)


FRONTIER = Frontier(
    as_rows(
        np.array(
            [
                frontier_row(40, 1, 0, 300),
                frontier_row(10, 1, 0, 250),
                frontier_row(20, 1, 0, 200),
                frontier_row(30, 1, 0, 200),
                frontier_row(20, 2, 0, 150),
                frontier_row(30, 1, 4, 100),
                frontier_row(10, 1, 4, 120),
            ],
            FRONTIER_DTYPE,
        )
    )
)


def test_the_lowest_point_of_each_curve() -> None:
    """Of equal ones the fewest classes."""
    assert FRONTIER.curves() == [(1, 0), (1, 4), (2, 0)]
    assert FRONTIER.curve()["classes"].tolist() == [10, 20, 30, 40]
    assert FRONTIER.curve()["resident_bytes"].tolist() == [250, 200, 200, 300]
    assert int(FRONTIER.best()["classes"]) == 20
    figures = ("span_scale", "caches", "classes", "resident_bytes", "held_bytes")
    assert [tuple(m[figure] for figure in figures) for m in _minima()] == [
        (1, 0, 20, 200, 800),
        (1, 4, 30, 100, 900),
        (2, 0, 20, 150, 850),
    ]


def _minima() -> list[dict[str, int]]:
    found: list[dict[str, int]] = FRONTIER.to_dict()["minima"]
    return found


def test_the_text_marks_the_lowest_points() -> None:
    marked = [line.split() for line in str(FRONTIER).splitlines() if line.endswith("least")]
    assert [(line[0], line[1], line[2]) for line in marked] == [
        ("20", "x1", "recorded"),
        ("30", "x1", "4"),
        ("20", "x2", "recorded"),
    ]


def test_a_row_names_the_terms_of_its_ledger() -> None:
    ops = make_ops(*((ALLOC, i, 33) for i in range(5)), (ALLOC, 5, 40_000), (ALLOC, 6, 2 << 20))
    ledger = sw.Recording.from_ops(np.concatenate([ops, _free_last()])).ledger("go", "end")
    made = np.array([_row(ledger, 67, 3, 2)], FRONTIER_DTYPE)[0]
    terms = {name: int(made[name]) for name in FRONTIER_DTYPE.names or ()}
    held = terms.pop("held_bytes")
    metadata = terms.pop("metadata_bytes")
    # Of the small span the first system page was written, of the large ones everything.
    assert ledger.resident is not None
    touched_metadata = ledger.resident.metadata_bytes
    assert terms.pop("resident_bytes") == 4096 + 40_960 + (2 << 20) + touched_metadata
    assert touched_metadata < metadata
    # 33 bytes take slots of 48 in a span of 8 KiB: 170 of them, 32 bytes of tail; 40,000 bytes
    # take five pages; the 2 MiB that were freed are free pages.
    assert terms == {
        **{"classes": 67, "span_scale": 3, "caches": 2},
        **{"requested_bytes": 5 * 33 + 40_000, "roundup_bytes": 5 * 15, "tail_bytes": 32},
        **{"free_slot_bytes": 0, "cached_bytes": 165 * 48},
        "other_bytes": 40_960 - 40_000 + (2 << 20),
    }
    assert held == 8192 + 40_960 + (2 << 20) + metadata


def _free_last() -> NDArray[np.void]:
    last = make_ops((FREE, 6, 0))
    last["time_ns"] = 10_000
    return last


class OneBatch:
    """Operations of objects 0, 1, 2, 7 by thread 9."""

    def __init__(self) -> None:
        self.ops = make_ops(
            (ALLOC, 0, 1), (ALLOC, 1, 1), (ALLOC, 2, 1), (ALLOC, 7, 1), (FREE, 1, 0)
        )
        self.ops["thread"] = 9

    def batches(self) -> Iterator[Batch]:
        """All of them at once."""
        yield Batch(_lib.pointer(self.ops, "const sw_op *"), len(self.ops))


@pytest.mark.parametrize(("caches", "threads"), [(1, [0] * 5), (3, [0, 1, 2, 1, 1])])
def test_objects_are_dealt_out_to_caches(caches: int, threads: list[int]) -> None:
    source = OneBatch()
    batches = _SpreadSource(source, caches).batches()  # type: ignore[arg-type]
    spread = next(batches).array()  # valid until the next is asked for
    assert spread["thread"].tolist() == threads
    assert source.ops["thread"].tolist() == [9] * 5  # which stays as it was
    for name in ("time_ns", "kind", "object", "size"):
        assert (spread[name] == source.ops[name]).all(), name


def test_each_cache_has_a_span_of_its_own() -> None:
    """Four objects of one class: one span of 170 slots for each cache that they are dealt to."""
    recording = sw.Recording.from_ops(make_ops(*((ALLOC, i, 48) for i in range(4))))
    table = sw.SizeClassTable.go()
    for caches in (1, 2, 4):
        ledger = peak_ledger([recording], table, caches)
        assert ledger.spans == caches
        assert ledger.cached_bytes == (caches * 170 - 4) * 48
    both = peak_ledger([recording, recording], table)
    assert (both.requested_bytes, both.spans) == (2 * 4 * 48, 2)


def test_the_peak_is_where_a_frontier_looks() -> None:
    """What comes after it has no part in it."""
    ops = make_ops((ALLOC, 0, 48), (ALLOC, 1, 100), (FREE, 1, 0), (ALLOC, 2, 99), (FREE, 0, 0))
    recording = sw.Recording.from_ops(ops)
    for caches in (0, 1, 2):
        ledger = peak_ledger([recording], sw.SizeClassTable.go(), caches)
        assert (ledger.requested_bytes, ledger.live_objects) == (148, 2), caches
