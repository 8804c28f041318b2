# SPDX-License-Identifier: Apache-2.0
"""What pictures show: no line hides another, parts add up to held bytes, units fit the axes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise import plots
from spanwise.measure.replay_result import SAMPLES_DTYPE
from spanwise.optimizer.pareto import PARETO_DTYPE
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


def test_equal_curves_of_a_pareto_front_are_one_line_with_both_names() -> None:
    ax = pareto({(1, 0): [300, 200], (1, 1): [300, 200], (2, 0): [300, 250]}).plot()
    labels = [line.get_label() for line in ax.lines if not str(line.get_label()).startswith("_")]
    assert labels == ["caches as recorded = 1 cache", "caches as recorded, spans x2"]


def test_bars_show_what_is_resident() -> None:
    """Each bar has a line at the resident bytes, unless one of the ledgers does not have them."""
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
    assert ax.get_title() == "heap at now, table go: 4 spans of slots"


def test_classes_of_tables_lie_below_the_sizes() -> None:
    tables = [sw.SizeClassTable.go(), sw.SizeClassTable.pow2()]
    ax = plots.boundaries(RECORDING.histogram(), tables, title="mine")
    ticks = ax.collections
    for table, lines in zip(tables, ticks, strict=True):
        places = [float(np.asarray(path.vertices)[0, 0]) for path in lines.get_paths()]
        assert places == table.classes["size_bytes"].tolist()
        assert all(np.asarray(path.vertices)[:, 1].max() < 0 for path in lines.get_paths())
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[-2:] == [f"{table.name} ({len(table)})" for table in tables]


def test_round_up_by_size_and_table() -> None:
    """By hand: 100 of 33 B lose 15 each under go and 31 under pow2, 4 of 1,000 B lose 24 each."""
    rows = as_rows(np.array([(33, 100), (1000, 4)], [("size_bytes", "<u8"), ("count", "<u8")]))
    ax = plots.boundaries(rows, [sw.SizeClassTable.go(), sw.SizeClassTable.pow2()])
    drawn = [steps.get_data() for steps in ax.patches]  # type: ignore[attr-defined]
    for (values, edges, _), small in zip(drawn, (1500, 3100), strict=True):
        assert edges[0] == 1 and edges[-1] > 1000
        places = np.searchsorted(edges, (33, 1000), side="right") - 1
        assert (1024 * values[places]).tolist() == [small, 96]
        assert 1024 * values.sum() == small + 96
    texts = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert texts == ["go: 1.6 KiB of round-up", "pow2: 3.1 KiB of round-up"]
    assert ax.get_ylabel() == "round-up of all requests, KiB"


# --- waste by class -------------------------------------------------------------------------------


def three_classes() -> sw.Ledger:
    """Under go: 100 objects of 33 B, 9 of 1,000 B the first of them freed, one of 40,000 B.

    33 B: one span of 8,192 B with 170 slots of 48 B. Round-up 100 * 15 = 1,500; the 70 slots from
    which the next requests come are cached, 3,360; 8,192 - 170 * 48 = 32 is the tail.
    1,000 B: two spans of 8 slots of 1,024 B. Round-up 8 * 24 = 192; a free slot in the full span,
    1,024; 7 cached slots in the other, 7,168; no tail.
    40,000 B: five pages of 8,192 B, so 960 are rounding.
    """
    with sw.Heap("go", dry=True) as heap:
        for _ in range(100):
            heap.alloc(33)
        middle = [heap.alloc(1000) for _ in range(9)]
        middle[0].free()
        heap.alloc(40_000)
        return heap.ledger()


def class_bars(ax: Any, unit: int) -> dict[str, dict[str, int]]:
    """Bytes of each bar: by class, and by part in the order in which they are stacked."""
    names = [label.get_text() for label in ax.get_yticklabels()]
    found: dict[str, dict[str, int]] = defaultdict(dict)
    ends = [0.0] * len(names)
    for container in ax.containers:
        for row, bar in enumerate(container):
            if bar.get_width():
                assert bar.get_x() == pytest.approx(ends[row])  # without overlap
                ends[row] += bar.get_width()
                found[names[row]][container.get_label()] = round(unit * bar.get_width())
    return dict(found)


def test_three_classes_by_hand() -> None:
    one = three_classes()
    ax = plots.waste_by_class(one)
    assert class_bars(ax, 1024) == {
        "1,024 B": {"round-up": 192, "free slots": 1024, "cached": 7168},
        "48 B": {"round-up": 1500, "tail": 32, "cached": 3360},
        "large objects": {"large rounding": 960},
    }
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["1,024 B", "48 B", "large objects"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first one is at the top
    assert ax.get_xlabel() == "held beyond requested, KiB; and the share of all waste"
    whole = one.waste_bytes
    labels = [text.get_text() for text in ax.texts]
    assert labels == [
        f"8.2 KiB, {8384 / whole:.1%}".replace("%", " %"),
        f"4.8 KiB, {4892 / whole:.1%}".replace("%", " %"),
        f"960 B, {960 / whole:.1%}".replace("%", " %"),
    ]
    title = f"heap at now, table go:\nclasses have 13.9 KiB of {whole / 1024:.1f} KiB waste"
    assert ax.get_title() == title


def test_few_classes_are_those_with_most() -> None:
    ax = plots.waste_by_class(three_classes(), classes=2)
    assert list(class_bars(ax, 1024)) == ["1,024 B", "48 B"]
    assert ax.get_title().endswith(" waste; the 2 of 3 with the most")
    figure: Any = ax.figure
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["round-up", "tail", "free slots", "cached"]  # of the bars that are drawn


def test_bars_are_the_ledgers_parts() -> None:
    """All classes of a recording together; metadata and free pages are of none."""
    one = sw.Recording.from_ops(random_ops(9, 4000), name="mine").ledger("go")
    ax = plots.waste_by_class(one, classes=1000)
    unit = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20}[ax.get_xlabel().split()[3].rstrip(";")]
    sums: dict[str, int] = defaultdict(int)
    for parts in class_bars(ax, unit).values():
        for name, size in parts.items():
            sums[name] += size
    assert sums == {
        "round-up": one.roundup_bytes,
        "large rounding": one.large_rounding_bytes,
        "tail": one.tail_bytes,
        "free slots": one.free_slot_bytes,
        "cached": one.cached_bytes,
    }
    assert ax.get_title().startswith("mine at peak-resident, table go:\n")


def test_given_axes_and_wrong_arguments() -> None:
    one = three_classes()
    ax = plots.new_axes()
    assert plots.waste_by_class(one, ax) is ax and ax.get_legend() is not None
    with pytest.raises(sw.InvalidError, match="classes 0: at least one class must be drawn"):
        plots.waste_by_class(one, classes=0)
    with sw.Heap("go", dry=True) as heap, pytest.raises(sw.InvalidError, match="no waste to draw"):
        plots.waste_by_class(heap.ledger())
