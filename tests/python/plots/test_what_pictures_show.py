# SPDX-License-Identifier: Apache-2.0
"""What pictures show: no line hides another, parts add up to held bytes, units fit the axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise import plots
from spanwise.measure.replay_result import SAMPLES_DTYPE
from spanwise.optimizer.pareto import PARETO_DTYPE
from spanwise.plots.collectors import pauses
from spanwise.plots.comparisons import latencies
from spanwise.plots.style import PART_HATCHES, time_scale_of
from spanwise.results.rows import as_rows

from tests.python.helpers import random_ops

RECORDING = sw.Recording.from_ops(random_ops(9, 4000), name="mine")


def pareto(curves: dict[tuple[int, int], list[int]]) -> sw.ParetoFront:
    """Curves by (span_scale, caches): resident at 8, 16, 32 ... classes; 100 are requested."""
    rows = [
        (8 << i, *pair, 100, 0, 0, 0, 0, 0, 0, 1000, resident)
        for pair, values in curves.items()
        for i, resident in enumerate(values)
    ]
    return sw.ParetoFront(as_rows(np.array(rows, PARETO_DTYPE)))


@dataclass
class _Latencies:
    """A run of 1000 messages, of which the n-th slowest took 1000 / n microseconds."""

    strategy: str
    messages: int = 1000

    def latency_ns(self, percent: float) -> float:
        return 1e6 / max(1000 * (1 - percent / 100), 1)


def test_equal_curves_of_a_pareto_front_are_one_line_with_both_names() -> None:
    ax = pareto({(1, 0): [300, 200], (1, 1): [300, 200], (2, 0): [300, 250]}).plot()
    labels = [line.get_label() for line in ax.lines if not str(line.get_label()).startswith("_")]
    assert labels == ["caches as recorded = 1 cache", "caches as recorded, spans x2"]


def test_parts_are_told_apart_with_seven_colours() -> None:
    looks = {(colour, PART_HATCHES.get(name)) for name, colour in plots.PART_COLOURS.items()}
    assert len(looks) == len(plots.PART_COLOURS) == 10
    assert len(set(plots.PART_COLOURS.values())) <= 7


def test_eight_curves_have_eight_marks_and_seven_colours() -> None:
    pairs = [(1, caches) for caches in range(6)] + [(2, 0), (4, 0)]
    points = pareto({pair: [300 + i, 200 + i] for i, pair in enumerate(pairs)})
    named = [line for line in points.plot().lines if not str(line.get_label()).startswith("_")]
    assert len(named) == 8
    assert len({line.get_color() for line in named}) == 7
    assert len({line.get_marker() for line in named}) == 8  # also in grey


def test_bars_show_what_is_resident() -> None:
    """A line in each bar; none where one of the ledgers does not know."""
    both = [RECORDING.ledger("go"), RECORDING.ledger("pow2")]
    ax = plots.ledgers(both)
    (lines,) = (one for one in ax.collections if one.get_label() == "resident")
    places = [np.asarray(segment.vertices)[0, 0] for segment in lines.get_paths()]
    scale = 1 << 20
    assert "MiB" in ax.get_xlabel()
    assert places == pytest.approx([(one.resident_bytes or 0) / scale for one in both])
    unknown = plots.ledgers([both[0], replace(both[1], resident=None)])
    assert not [one for one in unknown.collections if one.get_label() == "resident"]


def test_a_time_line_splits_what_is_held() -> None:
    """The layers end where the next begins, the last one at held bytes."""
    samples = as_rows(np.zeros(3, RECORDING.timeline("go").dtype))
    samples["time_ns"] = [0, 5_000_000, 9_000_000]
    samples["requested_bytes"], samples["slot_bytes"] = [1, 2, 3], [2, 4, 6]
    samples["held_bytes"], samples["free_page_bytes"] = [9, 10, 11], [1, 2, 3]
    ax = plots.timeline(samples, title="mine")
    tops = [layer.get_paths()[0].get_extents().y1 for layer in ax.collections]
    bottoms = [layer.get_paths()[0].get_extents().y0 for layer in ax.collections]
    assert tops == [3, 6, 8, 11] and bottoms == [0, 1, 2, 8]
    labels = [layer.get_label() for layer in ax.collections]
    assert labels == ["requested", "round-up", "free slots, caches, metadata", "free pages"]
    assert ax.get_xlabel() == "time of the recording, ms" and ax.get_xlim() == (0, 9)


@pytest.mark.parametrize(
    ("most_ns", "unit"), [(1, "ns"), (1999, "ns"), (2000, "µs"), (2_000_000, "ms"), (2e9, "s")]
)
def test_times_have_a_fitting_unit(most_ns: float, unit: str) -> None:
    assert time_scale_of(most_ns)[1] == unit


def test_replays_are_drawn_over_the_recordings_time() -> None:
    samples = np.zeros(2, SAMPLES_DTYPE)
    samples["time_ns"], samples["rss_bytes"], samples["op"] = [0, 4_000_000], [1, 9], [1, 100]
    some = as_rows(samples)
    fields: Any = (*[1] * 13, {}, "", None, some, some)
    run = sw.Run(*fields)
    one = sw.Replay("mine", "a", 1, 1, 0, 9, 9, "pages", None, (run,))
    ax = plots.replays([one, replace(one, allocator="b")])
    assert ax.get_xlabel() == "time of the recording, ms" and ax.get_xlim() == (0, 4)
    styles = [line.get_linestyle() for line in ax.lines]
    assert len(set(styles)) == 2
    samples["time_ns"] = 0
    assert plots.replays([one]).get_xlabel() == "operations"


def test_lines_of_pauses_and_latencies_differ_in_grey() -> None:
    rows = np.array(
        [(b"idle", 5), (b"marking", 3), (b"sweeping", 9000)], [("phase", "S8"), ("ns", "u8")]
    )
    ax = pauses(as_rows(rows))
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--", "-."]
    assert ax.get_xlabel() == "time of a call, µs"
    runs = [_Latencies(name) for name in "abc"]
    ax = latencies(runs)
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--", "-."]
    # Of 1000 messages one is above 99.9 %: the axis has no percentage beyond.
    assert [mark.get_text() for mark in ax.get_xticklabels()] == ["0", "90", "99", "99.9"]


def test_a_picture_of_waste_names_its_table() -> None:
    assert "under go" in sw.SizeClassTable.go().plot_waste().get_title(loc="left")


def test_waste_alone_is_the_waste() -> None:
    one, other = RECORDING.ledger("go"), RECORDING.ledger("pow2")
    ax = plots.ledgers([one, other], waste_only=True)
    ends = np.zeros(2)
    for bar in ax.patches:
        ends[round(bar.get_y() + bar.get_height() / 2)] += bar.get_width()  # type: ignore[attr-defined]
    unit = {"KiB": 1 << 10, "MiB": 1 << 20}[ax.get_xlabel().rpartition(" ")[2]]
    assert ends * unit == pytest.approx([one.waste_bytes, other.waste_bytes])
    labels = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert "requested" not in labels and "resident" not in labels


def test_occupancy_has_each_span_once() -> None:
    """Go's class of 1024 bytes has 8 slots: spans with 8, 8, 4 and 1 live objects."""
    with sw.Heap("go", dry=True) as heap:
        blocks = [heap.alloc(1000) for _ in range(32)]
        for kept, first in ((4, 16), (1, 24)):
            for block in blocks[first + kept : first + 8]:
                block.free()
        ax = plots.occupancy(heap.ledger())
    heights = [bar.get_height() for bar in ax.patches]  # type: ignore[attr-defined]
    assert heights == [0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 2]
    assert ax.get_title(loc="left") == "heap at now, table go: 4 spans of slots"


def test_classes_of_tables_lie_below_the_sizes() -> None:
    tables = [sw.SizeClassTable.go(), sw.SizeClassTable.pow2()]
    ax = plots.boundaries(RECORDING.histogram(), tables, title="mine")
    _, *ticks = ax.collections
    for table, lines in zip(tables, ticks, strict=True):
        places = [float(np.asarray(path.vertices)[0, 0]) for path in lines.get_paths()]
        assert places == table.classes["size_bytes"].tolist()
        assert all(np.asarray(path.vertices)[:, 1].max() < 0.5 for path in lines.get_paths())
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[-2:] == [f"{table.name} ({len(table)})" for table in tables]
