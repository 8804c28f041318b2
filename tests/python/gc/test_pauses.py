# SPDX-License-Identifier: Apache-2.0
"""Histograms of pauses and mutator utilisation, beside models that count each nanosecond."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main

SAMPLES = Path(__file__).with_name("gctrace-samples.txt")
STOPPED = (
    "gc 1 @0.010s 4%: 1.000+3.000+1.000 ms clock, 1.000+0/3.000/0+1.000 ms cpu, 8->8->3 MB,"
    " 4 MB goal, 1 P\n"
    "gc 2 @0.020s 4%: 0.000+2.000+0.000 ms clock, 0.000+0/2.000/0+0.000 ms cpu, 8->8->3 MB,"
    " 4 MB goal, 1 P\n"
)


def least_left(pauses: list[tuple[int, int]], total: int, window: int) -> float:
    """The share, by a look at every nanosecond in which a window may begin."""
    paused = [0] * total
    for start, length in pauses:
        for at in range(start, min(start + length, total)):
            paused[at] = 1
    worst = max(sum(paused[at : at + window]) for at in range(total - window + 1))
    return 1 - worst / window


@pytest.mark.parametrize("seed", range(40))
def test_utilisation_is_that_of_every_window(seed: int) -> None:
    random = np.random.default_rng(seed)
    total, count = 120, int(random.integers(0, 9))
    pauses = [(int(random.integers(0, total)), int(random.integers(0, 30))) for _ in range(count)]
    windows = [1, 2, 3, 7, 20, 59, 119, 120]
    rows = sw.mutator_utilisation([p[0] for p in pauses], [p[1] for p in pauses], total, windows)
    assert rows["window_ns"].tolist() == windows
    expected = [least_left(pauses, total, window) for window in windows]
    assert rows["utilisation"] == pytest.approx(expected, abs=1e-12)


def test_utilisation_by_hand() -> None:
    # Two pauses of 2 with 4 between them, in 20: a window of 8 has both, one of 4 has one.
    rows = sw.mutator_utilisation([5, 11], [2, 2], 20, [2, 4, 8, 16, 20])
    assert rows["utilisation"].tolist() == [0, 0.5, 0.5, 0.75, 0.8]
    curve = sw.mutator_utilisation([5, 11], [2, 4], 20)
    assert (len(curve), curve["window_ns"][0], curve["window_ns"][-1]) == (41, 1, 20)
    assert curve["utilisation"][0] == 0
    assert (sw.mutator_utilisation([], [], 9, [3])["utilisation"] == 1).all()


def test_wrong_times() -> None:
    for starts, lengths, total, windows in (
        ([1], [1], 0, [1]),
        ([1], [1, 2], 9, [1]),
        ([1], [1], 9, [0]),
        ([1], [1], 9, [10]),
    ):
        with pytest.raises(sw.InvalidError):
            sw.mutator_utilisation(starts, lengths, total, windows)
    for wrong in ([-1], [2.0**53], [float("nan")]):
        with pytest.raises(sw.InvalidError):
            sw.pause_histogram(wrong)


def edges_by_hand(most: int) -> list[int]:
    """0, 1, 2, 3, then four steps in each doubling."""
    edges, step = [0, 1, 2, 3], 1
    while edges[-1] <= most:
        edges += [step * i for i in range(4, 8)]
        step *= 2
    return edges


def test_every_pause_is_in_its_bucket() -> None:
    edges = edges_by_hand(1 << 20)
    assert edges[:14] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
    lengths = [0, 3, 4, 7, 8, 9, 10, 15, 16, 19, 20, 1023, 1024, 1279, 1280, (1 << 20) - 1]
    rows = sw.pause_histogram(lengths)
    assert rows["from_ns"].tolist() == edges[: len(rows)]
    assert rows["to_ns"].tolist() == edges[1 : len(rows) + 1]
    counted = [sum(low <= ns < high for ns in lengths) for low, high in itertools.pairwise(edges)]
    assert rows["calls"].tolist() == counted[: len(rows)]
    assert rows["calls"].sum() == len(lengths)
    assert len(sw.pause_histogram([])) == 0
    assert sw.pause_histogram([17]).tolist() == [(16, 20, 1)]
    assert sw.pause_histogram([2**53 - 1])["to_ns"].tolist() == [2**53]


def test_pauses_of_a_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    with sw.CollectedHeap() as heap:
        kind = heap.add_type("pair", 16, [0, 1])
        heap.build(kind, sw.binary_tree(9))
        for _ in range(5):
            heap.collect()
        pauses, histogram = heap.pauses, heap.pause_histogram()
        assert histogram["calls"].sum() == len(pauses) == 5
        ends = pauses["at_ns"] + pauses["ns"]
        assert (pauses["at_ns"][1:] >= ends[:-1]).all()
        longest = float(pauses["ns"].max())
        rows = heap.utilisation([longest / 2, longest])
        assert rows["utilisation"].tolist() == [0, 0]
        share = heap.utilisation()["utilisation"]
        assert 0 < share[-1] < 1
        axes = heap.plot_utilisation(), heap.plot_pause_histogram()
        assert [ax.get_xscale() for ax in axes] == ["log", "log"]
        assert re.fullmatch(r"length of a window, [nµm]?s", axes[0].get_xlabel())


def test_pauses_of_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = sw.parse_gctrace(STOPPED.splitlines())
    # Stopped: 5 ms that end at 10 ms, 2 ms that end at 20 ms. Else 1 + 1 ms and twice 0.
    assert trace.pause_histogram(stopped=True)["calls"].sum() == 2
    assert trace.pause_histogram()["calls"].sum() == 4
    windows = [2e6, 10e6, 20e6]
    left = trace.utilisation(windows, stopped=True)["utilisation"]
    assert left == pytest.approx([0, 0.5, 0.65], abs=1e-9)
    # From 10 ms on: 1 ms of pause, 3 of marking, 1 of pause; the time ends at 22 ms.
    beside = trace.utilisation([1e6, 5e6, 10e6])["utilisation"]
    assert beside == pytest.approx([0, 0.6, 0.8])
    (tmp_path / "gc.txt").write_text(STOPPED, encoding="utf-8")
    assert main(["gctrace", str(tmp_path / "gc.txt"), "--pauses", "--stopped"]) == 0
    told = capsys.readouterr().out
    assert "least share of a window" in told
    assert "65.0 %" in told
    assert main(["gctrace", str(tmp_path / "gc.txt"), "--pauses", "--stopped", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["utilisation"][-1]["utilisation"] == pytest.approx(0.65)
    assert sum(row["calls"] for row in found["pause_histogram"]) == 2
    with pytest.raises(sw.InvalidError, match="no gctrace line"):
        sw.parse_gctrace([]).utilisation()


def test_lines_of_go(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    trace = sw.read_gctrace(SAMPLES)
    assert trace.pause_histogram()["calls"].sum() == 10
    assert main(["gctrace", str(SAMPLES), "--pauses"]) == 0
    assert "any" in capsys.readouterr().out
    assert trace.processes[-1].plot_utilisation().get_xscale() == "log"
    assert trace.plot_pause_histogram().get_ylabel() == "pauses"
