# SPDX-License-Identifier: Apache-2.0
"""Measures of held over live bytes: without the start, and beside a heap of one thread, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import spanwise as sw

from tests.python.helpers import ALLOC, FREE, make_ops, random_ops


@pytest.mark.parametrize("stored", [False, True])
def test_the_steady_mean(stored: bool, tmp_path: Path) -> None:
    """The mean over the moments from the first one at which half of the peak is live."""
    ops = random_ops(5, 1200)
    recording = sw.Recording.from_ops(ops, tmp_path / "a.swt" if stored else None)
    rows = recording.timeline(samples=1200)
    live = np.asarray(rows["requested_bytes"]).astype(float)
    held = np.asarray(rows["held_bytes"]).astype(float)
    assert len(rows) == len(ops)
    first = int(np.argmax(live >= live.max() / 2))
    steady = live[first:] > 0
    measures = recording.ledger(at="end").measures
    assert measures["jw_mean"].value == pytest.approx((held[live > 0] / live[live > 0]).mean())
    expected = (held[first:][steady] / live[first:][steady]).mean()
    assert measures["jw_mean_steady"].value == pytest.approx(expected)
    assert expected < measures["jw_mean"].value
    assert "half of the peak" in measures["jw_mean_steady"].definition


def test_where_there_is_no_steady_mean() -> None:
    assert sw.Recording.from_ops(make_ops()).ledger().measures["jw_mean_steady"].value is None
    with sw.Heap("go") as heap:
        heap.run(make_ops((ALLOC, 0, 100)))
        assert heap.ledger().measures["jw_mean_steady"].value is None


def churned_by(threads: int) -> sw.Recording:
    """100 objects of 1,000 bytes at a time; each thread in turn allocates and frees its own."""
    rows = []
    for thread in range(threads):
        rows += [(ALLOC, 100 * thread + i, 1000) for i in range(100)]
        rows += [(FREE, 100 * thread + i, 0) for i in range(100)]
    ops = make_ops(*rows)
    ops["thread"] = np.repeat(np.arange(threads), 200)
    return sw.Recording.from_ops(ops)


def test_blowup() -> None:
    """One thread has none; of many each keeps a span, which one thread would have used again."""
    assert churned_by(1).blowup("go") == 1.0
    recording = churned_by(20)
    alone = sw.Recording.from_ops(np.asarray(recording.ops).copy())
    ops = np.asarray(alone.ops).copy()
    ops["thread"] = 0
    most = sw.Recording.from_ops(ops).ledger("go").stats
    told = recording.ledger("go").stats
    assert most is not None and told is not None
    assert recording.blowup("go") == told.peak_held_bytes / most.peak_held_bytes > 1.05
    assert sw.Recording.from_ops(make_ops()).blowup() is None
