# SPDX-License-Identifier: Apache-2.0
"""The data of each picture, read back from the figure, equals the input, by hand."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import spanwise as sw
from spanwise import plots
from spanwise.measure.bench_result import ROW_FIELDS as BENCH_ROW
from spanwise.measure.bench_result import BenchResult
from spanwise.measure.replay_result import SAMPLES_DTYPE
from spanwise.optimizer.pareto import PARETO_DTYPE
from spanwise.plots.style import pyplot
from spanwise.recordings.span_pinning import PINNED_SPANS_DTYPE, SpanPinning
from spanwise.recordings.summary import LIFETIMES_DTYPE
from spanwise.results.rows import as_rows

from tests.python.helpers import random_ops
from tests.python.plots.drawn import KIB, MIB, bars, ledger, line, rows, segments

# --- a caller's Axes ------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_nothing_covers_the_data_of_a_small_axes(layout: Any) -> None:
    """Legends have a frame and end above the bars; text ends within the Axes."""
    with sw.Heap("go") as heap, sw.RangeAllocator(1 << 20) as ranges:
        live = [heap.alloc(size) for size in range(100, 9000, 37)]
        for block in live[::3]:
            block.free()
        heap.alloc(300_000)
        one = heap.ledger()
        figure, axes = pyplot().subplots(2, 2, figsize=(9, 7), layout=layout)
        a, b, c, d = axes.flat
        ranges.plot(a)
        one.plot(b)
        heap.map().plot(c)
        plots.waste_by_class(one, d)
    figure.canvas.draw()
    for ax, top in ((a, 1), (b, -0.31), (c, 0), (d, -0.36)):
        legend = ax.get_legend()
        _, data_top = ax.transData.transform((0, top))
        assert legend.get_frame_on() and legend.get_window_extent().y0 >= data_top
        for text in (ax.title, ax.xaxis.label, legend, *ax.texts):
            extent = text.get_window_extent()
            assert extent.x0 >= ax.bbox.x0 - 12 and extent.x1 <= ax.bbox.x1 + 12, text
    assert min(c.get_yticks()) == 0  # none above the map


# --- memory ---------------------------------------------------------------------------------------


def test_ledgers() -> None:
    """A bar per ledger has its parts from the left, and a line at the resident bytes."""
    one = ledger(requested=4 * KIB, roundup=KIB, free_page=3 * KIB, resident=6 * KIB)
    other = ledger(requested=2 * KIB, roundup=0, free_page=KIB, resident=2560)
    ax: Any = plots.ledgers([one, other])
    assert ax.get_xlabel() == "held, KiB"
    assert bars(ax) == {
        "requested": [(0, -0.31, 4, 0.62), (0, 0.69, 2, 0.62)],
        "round-up": [(4, -0.31, 1, 0.62), (2, 0.69, 0, 0.62)],
        "free pages": [(5, -0.31, 3, 0.62), (2, 0.69, 1, 0.62)],
    }
    (resident,) = ax.collections
    assert segments(resident) == [[[6, -0.31], [6, 0.31]], [[2.5, 0.69], [2.5, 1.31]]]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first one is at the top
    assert [text.get_text() for text in ax.texts] == [
        "8.0 KiB\n50.0 % of it waste",
        "3.0 KiB\n33.3 % of it waste",
    ]
    assert 8 < ax.get_xlim()[1] < 8 * 1.21 and ax.get_title() == "s at peak"
    labelled = plots.ledgers([one, other], labels=["lifo", "address"])
    assert labelled.get_title() == "s at peak, table t"
    assert [text.get_text() for text in labelled.get_yticklabels()] == ["lifo", "address"]
    other.table = "u"
    assert plots.ledgers([one, other], labels=["lifo", "address"]).get_title() == "s at peak"
    one.at = other.at = "now"
    one.source = ""
    assert plots.ledgers([one, other]).get_title() == "where the bytes are now"
    other.at = "end"
    assert plots.ledgers([one, other]).get_title() == "where the bytes are at different moments"
    one.at, other.at = "peak-resident", "peak-resident under t"  # of a comparison
    title = plots.ledgers([one, other]).get_title()
    assert title == "where the bytes are at peak-resident under t"
    other.resident_bytes = None  # lines for all of them or for none
    assert not plots.ledgers([one, other]).collections


def test_a_sample_of_a_time_line_lasts_until_the_next() -> None:
    samples = rows(
        "time_ns op requested_bytes slot_bytes held_bytes free_page_bytes",
        *((0, 0, 10, 20, 50, 5), (4_000_000, 1, 30, 40, 60, 6), (9_000_000, 2, 30, 40, 70, 7)),
    )
    ax: Any = plots.timeline(samples)
    (top,) = segments(ax.collections[0])
    assert [0, 10] in top and [4, 10] in top and [4, 30] in top and [0, 30] not in top


def test_replays() -> None:
    """A line per allocator shows resident bytes; the grey area shows requested bytes."""
    samples = np.zeros(3, SAMPLES_DTYPE)
    samples["time_ns"] = [0, 4_000_000, 8_000_000]
    samples["rss_bytes"], samples["requested_bytes"] = [10, 30, 50], [1, 2, 3]
    fields: Any = (*[1] * 13, {}, "", None, as_rows(samples), as_rows(samples))
    run = sw.Run(*fields)
    ax: Any = plots.replays([sw.Replay("mine", "a", 1, 1, 0, 9, 9, "pages", None, (run,))])
    assert line(ax, "a") == [[0, 4, 8], [10, 30, 50]]
    (area,) = segments(ax.collections[0])
    assert {y for _, y in area} == {0, 1, 2, 3}
    assert ax.get_xlabel() == "time of the recording, ms" and ax.get_xlim() == (0, 8)
    samples["time_ns"] = 0
    again = sw.Replay("mine", "b", 1, 1, 0, 9, 9, "pages", None, (run,))
    ax = plots.replays([again, again])
    assert ax.get_xlabel() == "operations" and len({one.get_linestyle() for one in ax.lines}) == 2


# --- sizes and classes ----------------------------------------------------------------------------


def test_waste_of_a_size_is_of_its_slot() -> None:
    """By hand: under go 33 bytes have a slot of 48, and 1,025 one of 1,152."""
    go = sw.SizeClassTable.go()
    _, percent = line(go.plot_waste(), "go")
    assert (percent[33 - 1], percent[48 - 1]) == (31.25, 0)
    assert percent[1025 - 1] == pytest.approx(100 * 127 / 1152, abs=1e-5)
    _, doubled = line(plots.waste([go, sw.SizeClassTable.pow2()]), "pow2")
    assert doubled[33 - 1] == pytest.approx(100 * 31 / 64, abs=1e-5)


def test_a_histogram_counts_requests() -> None:
    ax: Any = plots.histogram(rows("size_bytes count", (0, 3), (16, 40), (100, 7)))
    assert segments(ax.collections[0]) == [
        [[1, 0.5], [1, 3]],
        [[16, 0.5], [16, 40]],
        [[100, 0.5], [100, 7]],
    ]


def test_a_pareto_front_shows_what_is_resident_beyond_requested() -> None:
    """100 bytes are requested; held bytes fall where resident ones rise, and are not drawn."""
    given = [
        (8, 1, 0, 100, *[0] * 6, 900, 160),
        (16, 1, 0, 100, *[0] * 6, 800, 130),
        (32, 1, 0, 100, *[0] * 6, 700, 190),
    ]
    ax: Any = sw.ParetoFront(as_rows(np.array(given, PARETO_DTYPE))).plot()
    assert line(ax, "caches as recorded") == [[8, 16, 32], [60, 30, 90]]
    (ring,) = (one for one in ax.lines if one.get_markersize() == 11)
    assert [data.tolist() for data in map(np.asarray, ring.get_data())] == [[16], [30]]
    assert ax.get_ylabel() == "resident beyond requested, bytes"


def test_a_full_span_has_the_last_colour_of_the_map() -> None:
    """Spans of one page of go's class of 1,024 bytes, eight slots: all in use, and one."""
    with sw.Heap("go", dry=True) as heap:
        blocks = [heap.alloc(1024) for _ in range(16)]
        for block in blocks[9:]:
            block.free()
        ax = heap.map().plot()
    pixels = np.asarray(ax.images[0].get_array())
    side = pixels.shape[1] // int(ax.get_xlim()[1])
    full, one = (pixels[side // 2, side * cell + side // 2] for cell in (0, 1))
    colours = [np.array(mpl.colormaps["cividis_r"](share)[:3]) * 255 for share in (1.0, 1 / 8)]
    assert full == pytest.approx(colours[0], abs=2) and one == pytest.approx(colours[1], abs=2)


@pytest.mark.parametrize(
    ("sizes", "labels"),
    [
        ([1024], ["8 B", "32 B", "128 B", "512 B", "1.0 KiB"]),
        ([16, 48], ["8 B", "48 B"]),
        ([8], ["8 B", "16 B"]),
    ],
)
def test_the_colour_bar_ends_with_the_largest_class(sizes: list[int], labels: list[str]) -> None:
    with sw.Heap("go", dry=True) as heap:
        for size in sizes:
            heap.alloc(size)
        bar = heap.map().plot(by="class").figure.axes[1]
    assert [text.get_text() for text in bar.get_yticklabels()] == labels


def test_slots_of_a_short_span() -> None:
    """Go's class of 27,264 bytes has 3 slots in a span."""
    with sw.Heap("go", dry=True) as heap:
        heap.alloc(27_264)
        ax = heap.map().plot_slots(0)
    assert ax.get_xlabel() == "slots of 26.6 KiB, 3 a row; a dot is a free one"


# --- who holds ------------------------------------------------------------------------------------


def test_pinned_spans() -> None:
    """Each group has a bar of bytes that would be free without it, and one of pinned free bytes."""
    given = [(7, 1, 100, 3 * KIB, 1, 1, 8 * KIB), (9, 1, 100, 5 * KIB, 1, 0, 4 * KIB)]
    found = as_rows(np.array(given, PINNED_SPANS_DTYPE))
    one = SpanPinning(found, "thread", ledger(requested=100, resident=0), 2, 8 * KIB)
    ax: Any = plots.span_pinning(one)
    assert bars(ax) == {
        "released without the group": [(0, -0.39, 8, 0.38), (0, 0.61, 4, 0.38)],
        "free bytes that it keeps, shared evenly": [(0, 0.01, 3, 0.38), (0, 1.01, 5, 0.38)],
    }
    assert [label.get_text() for label in ax.get_yticklabels()] == ["7", "9"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_sizes_of_pinned_spans_stand_in_their_order() -> None:
    """Sizes are in ascending order, although larger slots come first in the rows."""
    given = [(64, 1, 100, 0, 1, 1, 8 * KIB), (16, 1, 100, 0, 1, 1, 4 * KIB)]
    found = as_rows(np.array(given, PINNED_SPANS_DTYPE))
    ax: Any = plots.span_pinning(
        SpanPinning(found, "size", ledger(requested=1, resident=0), 2, KIB)
    )
    assert [label.get_text() for label in ax.get_yticklabels()] == ["16 B", "64 B"]
    assert [width for _, _, width, _ in next(iter(bars(ax).values()))] == [4, 8]


def run_of(allocator: str, number: int, **values: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(BENCH_ROW)
    return row | {"program": "p", "input": "", "allocator": allocator, "round": number, **values}


def test_programs_under_allocators() -> None:
    """Five runs: the mark is the median, the bar from the least to the most, the ring 6 + 4."""
    found = BenchResult(
        [run_of("a", i, rss_bytes=size * MIB) for i, size in enumerate((5, 9, 6, 8, 7))]
        + [
            run_of("spanwise", i, rss_bytes=8 * MIB, predicted_bytes=6 * MIB, outside_bytes=4 * MIB)
            for i in range(5)
        ]
    )
    ax: Any = found.plot()
    assert ax.get_xlabel().startswith("peak RSS, MiB")
    assert segments(ax.collections[0]) == [[[5, -0.2], [9, -0.2]]]
    assert segments(ax.collections[1]) == [[[8, 0.2], [8, 0.2]]]
    assert line(ax, "a") == [[7], [-0.2]] and line(ax, "spanwise") == [[8], [0.2]]
    (ring,) = (one for one in ax.lines if one.get_markersize() == 10)
    assert np.asarray(ring.get_data()).ravel().tolist() == [10, 0.2]
    assert ax.get_ylim() == (0.5, -0.5)


# --- lifetimes ------------------------------------------------------------------------------------


def lives(*given: tuple[int, int, bool, int]) -> sw.Rows:
    """Rows of size, lifetime, freed, bytes."""
    return as_rows(
        np.array([(0, 0, s, life, freed, 1, n) for s, life, freed, n in given], LIFETIMES_DTYPE)
    )


def cells(ax: object) -> np.ndarray:
    """Return the values of the cells, 0 if empty."""
    mesh = ax.collections[0]  # type: ignore[attr-defined]
    return np.ma.filled(mesh.get_array(), 0)


def test_cells_by_hand() -> None:
    """16 and 64 B are rows 0 and 2; 1024 and 4096 ns columns 0 and 2; column 4 lives on."""
    given = lives(
        (16, 1024, True, 160), (64, 4096, True, 600), (16, 1 << 20, False, 48), (64, 4096, True, 40)
    )
    grid = cells(sw.plots.lifetimes(given))
    assert grid.shape == (3, 5)
    assert grid.tolist() == [[160, 0, 0, 0, 48], [0] * 5, [0, 0, 640, 0, 0]]


def test_no_object() -> None:
    with pytest.raises(sw.InvalidError, match="no object"):
        sw.plots.lifetimes(lives())


# --- what pictures show ---------------------------------------------------------------------------


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


def test_waste_alone_is_the_waste() -> None:
    one, other = RECORDING.ledger("go"), RECORDING.ledger("pow2")
    ax = plots.ledgers([one, other], waste_only=True)
    ends = np.zeros(2)
    for bar in ax.patches:
        ends[round(bar.get_y() + bar.get_height() / 2)] += bar.get_width()  # type: ignore[attr-defined]
    unit = {"KiB": 1 << 10, "MiB": 1 << 20}[ax.get_xlabel().rpartition(" ")[2]]
    assert ends * unit == pytest.approx([one.waste_bytes, other.waste_bytes])
    labels = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert "requested" not in labels and not any("resident" in label for label in labels)


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
    assert ax.get_title() == "heap now, table go: 4 spans of slots"


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
    ax = plots.boundaries(rows, [sw.SizeClassTable.go()], of="live objects")
    assert ax.get_ylabel().startswith("round-up of live objects, ")


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
    title = f"heap now, table go:\nclasses have 13.9 KiB of {whole / 1024:.1f} KiB waste"
    assert ax.get_title() == title


def test_few_classes_are_those_with_most() -> None:
    ax = plots.waste_by_class(three_classes(), classes=2)
    assert list(class_bars(ax, 1024)) == ["1,024 B", "48 B"]
    assert ax.get_title().endswith(" waste; the 2 of 3 with the most")
    figure: Any = ax.figure
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["round-up", "tail", "free slots", "cached"]  # of the bars that are drawn


def test_given_axes_and_wrong_arguments() -> None:
    one = three_classes()
    ax = plots.new_axes()
    assert plots.waste_by_class(one, ax) is ax and ax.get_legend() is not None
    with pytest.raises(sw.InvalidError, match="classes 0: at least one class must be drawn"):
        plots.waste_by_class(one, classes=0)
    with sw.Heap("go", dry=True) as heap, pytest.raises(sw.InvalidError, match="no waste to draw"):
        plots.waste_by_class(heap.ledger())
