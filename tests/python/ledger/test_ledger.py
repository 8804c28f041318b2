# SPDX-License-Identifier: Apache-2.0
"""Ledgers: the identity, moments, measures, and that the simulator equals the heap."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from spanwise.ledger.parts import PARTS

from tests.python.helpers import (
    ALLOC,
    FREE,
    REALLOC,
    assert_identity,
    histories,
    make_ops,
    parts_of,
    random_ops,
)

TABLES = ("go", "c16", "pow2", "geometric-1.2")


def live_ledger(
    ops: NDArray[np.void], table: str, options: sw.HeapOptions | None = None
) -> sw.Ledger:
    """Return the ledger of a real heap after the operations, with the recording's clock."""
    with sw.Heap(table, manual_clock=True, options=options) as heap:
        heap.run(ops, touch="ends")
        ledger = heap.ledger()
        heap.verify()
        return ledger


def assert_same(model: sw.Ledger, live: sw.Ledger) -> None:
    assert parts_of(model) == parts_of(live)
    assert (model.classes == live.classes).all()
    assert model.stats is not None  # which knew the peak before it ran
    known = replace(model.stats, steady_held_over_requested=None, peak_resident_bytes=None)
    assert known == live.stats  # a real heap does not track writes
    for name in ("spans", "large_objects", "largest_hole_bytes", "free_runs", "returned_bytes"):
        assert getattr(model, name) == getattr(live, name), name


# --- the model is the heap ------------------------------------------------------------------------


@given(
    histories(),
    st.sampled_from(TABLES),
    st.sampled_from(["lifo", "address", "fullest", "lasting"]),
    st.sampled_from([None, 0, 100, float("inf")]),
    st.sampled_from([0, 1, 3]),
)
def test_simulated_ledger_equals_live_one(
    ops: NDArray[np.void],
    table: str,
    placement: str,
    decay_ms: float | None,
    batch: int,
) -> None:
    options = sw.HeapOptions(None, placement, decay_ms, batch)
    model = sw.Recording.from_ops(ops).ledger(table, "end", options=options)
    assert_same(model, live_ledger(ops, table, options))
    assert_identity(model)


# --- moments --------------------------------------------------------------------------------------


def test_peak_is_the_first_maximum_of_requested_bytes() -> None:
    ops = make_ops((ALLOC, 0, 100), (ALLOC, 1, 50), (FREE, 1, 0), (REALLOC, 0, 150), (FREE, 0, 0))
    recording = sw.Recording.from_ops(ops)
    assert recording.summary.peak_op == 2
    ledger = recording.ledger("go", "peak")
    assert (ledger.requested_bytes, ledger.live_objects, ledger.events) == (150, 2, 2)
    assert ledger.time_ns == 1000
    assert ledger.at == "peak"
    end = recording.ledger("go", "end")
    assert (end.requested_bytes, end.live_objects, end.events, end.time_ns) == (0, 0, 5, 4000)


@pytest.mark.parametrize(
    "at", ["start", -1, "1.5m", float("nan"), float("inf"), True, "", 2e10, "#", "#-1", "#1.5"]
)
def test_bad_moment(at: Any) -> None:
    with pytest.raises(ValueError, match="give peak, peak-resident, end, an operation such as"):
        sw.Recording.from_ops(random_ops(1, 5)).ledger("go", at)


@pytest.mark.parametrize("stored", [False, True])
def test_an_operation_is_a_moment(stored: bool, tmp_path: Any) -> None:
    """The ledger after N operations equals that at the end of a recording of the first N."""
    ops = random_ops(9, 4000)
    recording = sw.Recording.from_ops(ops, tmp_path / "a.swt" if stored else None)
    for count in (0, 1, 1777, 4000):
        ledger = recording.ledger("go", f"#{count}")
        assert parts_of(ledger) == parts_of(sw.Recording.from_ops(ops[:count]).ledger("go", "end"))
        assert ledger.events == count
        assert ledger.at == f"operation {count:,}"
    part = sw.Recording.from_ops(ops[:1777])
    assert (recording.live_histogram("#1777") == part.live_histogram("end")).all()
    assert recording.live_sites("go", "#1777").ledger == recording.ledger("go", "#1777")
    assert recording.map("go", "#1777").ledger == recording.ledger("go", "#1777")
    swept = sw.sweep(recording, "go", at="#1777")[0]
    assert swept["held_bytes"] == part.ledger("go", "end").held_bytes
    with pytest.raises(sw.InvalidError, match=r"moment '#4001' is after its end; it has 4,000 op"):
        recording.ledger("go", "#4001")
    both = sw.RecordingSet([part, recording])
    held = [one.ledger("go", at).held_bytes for one, at in ((part, "end"), (recording, "#3000"))]
    assert both.ledger("go", "#3000").held_bytes == sum(held)
    with pytest.raises(sw.InvalidError, match="'#4001' is after its end"):
        both.ledger("go", "#4001")


# --- measures -------------------------------------------------------------------------------------


def test_johnstone_wilson_ratios() -> None:
    """All four, from held and requested bytes after each operation of a heap run step by step."""
    ops = random_ops(22, 400)
    held, requested = [], []
    with sw.Heap("go", manual_clock=True) as heap:
        for i in range(len(ops)):
            stats = heap.run(ops[i : i + 1])
            held.append(heap.held_bytes)
            requested.append(stats.requested_bytes)
    h, r = np.array(held, float), np.array(requested, float)
    some = r > 0
    expected = {
        "jw_mean": (h[some] / r[some]).mean(),
        "jw_at_peak_requested": h[r.argmax()] / r.max(),
        "jw_at_peak_held": h.max() / r[h.argmax()],
        "jw_of_peaks": h.max() / r.max(),
    }
    measures = sw.Recording.from_ops(ops).ledger("go").measures
    for name, value in expected.items():
        assert measures[name] == pytest.approx(value, rel=1e-12), name


# --- forms ----------------------------------------------------------------------------------------


def test_text() -> None:
    ledger = sw.Recording.from_ops(make_ops((ALLOC, 0, 33)), name="mine").ledger("go")
    lines = str(ledger).splitlines()
    assert lines[0] == "ledger of mine under go at peak-resident: 1 object live, after 1 event"
    assert lines[1].split() == ["resident", "held", "bytes", "held", "of", "held"]
    assert lines[3].split()[:6] == ["requested", "33", "B", "33", "B", "33"]
    assert lines[4].split()[:7] == ["round-up", "15", "B", "15", "B", "15", "0.0"]
    assert len({len(line) for line in lines[1:-2]}) == 1  # aligned
    assert lines[-1].split()[0] == "all"
    assert repr(ledger) == str(ledger)
    assert ledger._repr_html_().count("<tr>") == 10
    assert ledger.class_table().splitlines()[2].split()[0] == "48"


def test_compare() -> None:
    recording = sw.workloads.phase_shift(grow=2000)
    comparison = recording.compare(["go", "c16", sw.SizeClassTable.pow2()])
    assert [ledger.table for ledger in comparison.ledgers] == ["go", "c16", "pow2"]
    assert len({ledger.requested_bytes for ledger in comparison.ledgers}) == 1
    most = [
        recording.ledger(one.table, "peak-resident").peak_resident_bytes
        for one in comparison.ledgers
    ]
    assert [one.peak_resident_bytes for one in comparison.ledgers] == most
    best = comparison.ledgers[most.index(min(one for one in most if one is not None))]
    assert comparison.best() is best and comparison.judged_by == "peak_resident_bytes"
    said = (
        rf"{best.table} has a peak resident of .*, the least: .* less than .*; it holds .*"
        " at peak-resident under go"
    )
    assert re.fullmatch(rf"{said}\.", str(comparison).splitlines()[-1])
    assert recording.compare(["go", "go"]).verdict().endswith(", and go as much.")
    assert comparison.to_dict()["best"] == best.table
    assert sw.Comparison(comparison.ledgers[:1]).verdict().startswith("go has a peak resident of ")
    with pytest.raises(ValueError, match="nothing to compare"):
        sw.Comparison([])
    with pytest.raises(TypeError, match=r"list, not Ledger; for a single one pass \[it\]"):
        sw.Comparison(comparison.ledgers[0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="each of ledgers must be Ledger, not str"):
        sw.Comparison("go")  # type: ignore[arg-type]


def test_sets_add_up(tmp_path: Any) -> None:
    paths = []
    for seed in range(3):
        paths.append(tmp_path / f"job.{seed}.swt")
        sw.Recording.from_ops(random_ops(seed, 2000), paths[-1])
    together = sw.RecordingSet.open([tmp_path / "job.*.swt"])
    ledger = together.ledger("go")
    assert_identity(ledger)
    assert len(together) == len(ledger.parts) == 3
    for name in (*PARTS, "held_bytes", "live_objects", "events"):
        assert getattr(ledger, name) == sum(getattr(part, name) for part in ledger.parts), name
    alone = [sw.Recording.open(path).ledger("go") for path in paths]
    assert [part.held_bytes for part in ledger.parts] == [one.held_bytes for one in alone]
    counts = sum(int(sw.Recording.open(path).histogram()["count"].sum()) for path in paths)
    assert int(together.histogram()["count"].sum()) == counts
    with pytest.raises(ValueError, match=r"nope\.\*: no file matches"):
        sw.RecordingSet.open([tmp_path / "nope.*"])
