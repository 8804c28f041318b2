# SPDX-License-Identifier: Apache-2.0
"""Pictures of pauses, cycles, latencies and arenas, read back from the figure, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from spanwise import plots
from spanwise.plots import comparisons
from spanwise.plots.comparisons import latencies
from spanwise.plots.style import log_ticks

from tests.python.plots.drawn import KIB, MIB, bars, legend, line, rows, segments


def test_few_ticks_of_a_logarithmic_axis() -> None:
    assert log_ticks(0.9, 6.5, 4).tolist() == [1, 2, 5]
    assert log_ticks(2.1, 5.5, 3).tolist() == [3, 5]
    assert log_ticks(2.1, 5.5, 4).tolist() == [2.5, 3, 4, 5]
    assert log_ticks(0.5, 40, 4).tolist() == [1, 3, 10, 30]
    assert log_ticks(0.5, 2e3, 4).tolist() == [1, 10, 100, 1000]
    assert log_ticks(0.5, 2e5, 4).tolist() == [10, 1000, 100_000]  # every second power
    for width, most in ((4, 4), (12, 7)):
        ax: Any = plots.new_axes(width=width)
        plots.pauses(rows("phase ns", ("mark", 3_000_000), ("mark", 8_900_000)), ax)
        low, high = ax.get_xlim()
        assert 2 <= sum(low <= tick <= high for tick in ax.get_xticks()) <= most
        assert not ax.xaxis.get_minorticklocs().size


def test_latencies_rise_with_the_percentage() -> None:
    """Of 1,000 messages the n-th slowest took 1,000 / n µs: at 90 % 10 µs, at 99.9 % 1,000 µs."""

    def latency_ns(percent: float) -> float:
        return 1e3 / (1 - percent / 100)

    run = SimpleNamespace(strategy="s", messages=1000, latency_ns=latency_ns)
    ax: Any = latencies([run])
    ranks, times = line(ax, "s")
    assert (ranks[0], ranks[-1]) == (1, 1000)
    assert ax.get_ylabel() == "latency, ms" or ax.get_ylabel() == "latency, µs"
    unit = {"latency, ms": 1000, "latency, µs": 1}[ax.get_ylabel()]
    assert [time * unit for time in times] == pytest.approx(ranks, rel=1e-2)
    ticks = dict(zip((t.get_text() for t in ax.get_xticklabels()), ax.get_xticks(), strict=True))
    assert ticks["0"] == 1 and ticks["90"] == pytest.approx(10)
    assert ticks["99.9"] == pytest.approx(1000)


def test_pauses_are_shares_of_calls() -> None:
    """Of four calls of 10, 20, 30 and 40 ns a quarter took no more than 10 ns, and all 40 ns."""
    given = [("mark", 30), ("idle", 5), ("mark", 10), ("mark", 40), ("mark", 20)]
    ax: Any = comparisons.pauses(rows("phase ns", *given))
    assert line(ax, "mark (4)") == [[10, 20, 30, 40], [25, 50, 75, 100]]
    assert line(ax, "idle (1)") == [[5], [100]]
    assert ax.get_xlabel() == "length of a pause, ns" and ax.get_xscale() == "log"
    assert ax.get_legend().get_title().get_text() == "began while"
    assert comparisons.pauses(rows("phase ns", ("mark", 30))).get_legend() is None  # one line


def test_labels_name_heaps_on_one_axes() -> None:
    ax: Any = Figure().subplots()
    given = [("mark", 30), ("idle", 5), ("mark", 10)]
    for label, count in (("paced", 3), ("in steps", 2)):
        comparisons.pauses(rows("phase ns", *given[:count]), ax, label=label)
    assert line(ax, "paced (3)")[0] == [5, 10, 30] and line(ax, "in steps (2)")[0] == [5, 30]
    assert legend(ax) == ["paced (3)", "in steps (2)"]
    assert len({one.get_linestyle() for one in ax.lines}) == 2

    ax = Figure().subplots()
    left = rows("window_ns utilisation", (1000, 0.0), (4000, 0.75))
    for label in ("paced", "in steps"):
        comparisons.utilisation(left, ax, label=label)
    assert legend(ax) == ["paced", "in steps"] and line(ax, "paced") == [[1, 4], [0, 75]]
    assert legend(comparisons.utilisation(left)) == []

    ax = Figure().subplots()
    counts = rows("from_ns to_ns calls", (1000, 2000, 3), (2000, 4000, 5))
    for label in ("paced", "in steps"):
        comparisons.pause_histogram(counts, ax, label=label)
    assert legend(ax) == ["paced", "in steps"]
    assert [one.get_fill() for one in ax.patches] == [False, False]  # one hides no other
    assert legend(comparisons.pause_histogram(counts)) == []

    ax = Figure().subplots()
    cycles = rows("number marked_bytes freed_bytes", (1, 4 * MIB, 2 * MIB), (2, 3 * MIB, 5 * MIB))
    comparisons.cycles(cycles, ax, label="paced")
    comparisons.cycles(rows("number marked_bytes", (1, 512 * KIB)), ax, label="in steps")
    assert legend(ax) == ["paced, kept", "paced, freed", "in steps, kept"]
    assert line(ax, "paced, freed") == [[1, 2], [2, 5]]
    assert line(ax, "in steps, kept") == [[1], [0.5]] and ax.get_ylabel() == "slots, MiB"


def test_pictures_on_one_axis_have_one_unit() -> None:
    """14 ms, and 22 us, which are 0.022 ms on the same Axes and on one that shares its axis."""
    figure = Figure()
    one, other = figure.subplots(1, 2, sharex=True)
    comparisons.pauses(rows("phase ns", ("idle", 14_000_000)), one)
    for ax in (one, other):
        comparisons.pauses(rows("phase ns", ("mark", 22_000)), ax)
        assert line(ax, "mark (1)") == [[0.022], [100]]
        assert ax.get_xlabel() == "length of a pause, ms"


def test_cycles_are_stacked() -> None:
    given = [(1, 4 * KIB, 2 * KIB, KIB), (2, 3 * KIB, 5 * KIB, 0)]
    names = "number marked_bytes freed_bytes pending_bytes"
    ax: Any = comparisons.cycles(rows(names, *given))
    assert bars(ax) == {
        "kept": [(0.6, 0, 0.8, 4), (1.6, 0, 0.8, 3)],
        "freed": [(0.6, 4, 0.8, 2), (1.6, 3, 0.8, 5)],
        "freed by hand": [(0.6, 6, 0.8, 1), (1.6, 8, 0.8, 0)],
    }
    assert ax.get_ylabel() == "slots, KiB"


def test_a_histogram_of_pauses() -> None:
    ax: Any = comparisons.pause_histogram(
        rows("from_ns to_ns calls", (1000, 2000, 3), (2000, 4000, 0), (4000, 8000, 5))
    )
    (stairs,) = ax.patches
    values, edges, baseline = stairs.get_data()
    assert (values.tolist(), edges.tolist(), baseline) == ([3, 0, 5], [1, 2, 4, 8], 0)
    assert ax.get_xlabel() == "length of a pause, µs" and ax.get_xscale() == "log"


def test_utilisation_is_a_percentage() -> None:
    ax: Any = comparisons.utilisation(rows("window_ns utilisation", (1000, 0.0), (4000, 0.75)))
    (drawn,) = ax.lines
    assert [np.asarray(data).tolist() for data in drawn.get_data()] == [[1, 4], [0, 75]]
    assert ax.get_xlabel() == "length of a window, µs" and ax.get_ylim() == (0, 105)


def test_lanes_begin_and_last() -> None:
    """By hand: the program runs from 4 to 10 and from 16 to 24 µs, which is 14 of 20."""
    events = rows("kind start_ns ns", ("mark", 10_000, 6000))
    ax: Any = comparisons.lanes(events, rows("start_ns ns", (4000, 6_000), (16_000, 8000)))
    whole, gaps, gap_lines, bars, bar_lines = ax.collections
    assert segments(gap_lines) == [[[13, 0.13], [13, 0.4]]]
    assert segments(bar_lines) == [[[13, 1.13], [13, 1.4]]] and bar_lines.get_linewidth()[0] > 0.7
    assert gaps.get_facecolor().tolist() == gap_lines.get_color().tolist() == [[1, 1, 1, 1]]
    boxes = [
        [np.asarray(path.vertices).min(axis=0), np.asarray(path.vertices).max(axis=0)]
        for one in (whole, gaps, bars)
        for path in one.get_paths()
    ]
    assert np.round(boxes, 6).tolist() == [
        [[4, -0.4], [24, 0.4]],
        [[10, -0.4], [16, 0.4]],
        [[10, 0.6], [16, 1.4]],
    ]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["mutator, 70 %", "mark (1)"] and ax.get_ylim()[0] > ax.get_ylim()[1]


def test_lives_of_arenas() -> None:
    """Times begin with the first event; one arena was made before it, and one is not freed."""
    events = rows(
        "event arena time_ns",
        *(("arena.new", 2, 5_000), ("arena.free", 1, 7_000), ("arena.alert", 0, 8_000)),
        *(("arena.new", 3, 9_000), ("arena.free", 2, 11_000), ("arena.free", 9, 13_000)),
    )
    ax: Any = plots.arena_lifetimes(events)
    freed, kept = ax.collections
    assert segments(freed) == [[[0, 1], [2, 1]], [[0, 2], [6, 2]], [[0, 9], [8, 9]]]
    assert segments(kept) == [[[4, 3], [8, 3]]]
    (alert,) = ax.lines
    assert np.asarray(alert.get_xdata()).tolist() == [3, 3]
    assert ax.get_xlabel() == "time since the first event, µs"
