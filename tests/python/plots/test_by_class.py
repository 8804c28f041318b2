# SPDX-License-Identifier: Apache-2.0
"""The picture of waste by class, by hand and beside the rows of a ledger."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise import plots
from spanwise.plots.style import PART_HATCHES

from tests.python.helpers import random_ops


def three_classes() -> sw.Ledger:
    """Under go: 100 objects of 33 B, 9 of 1,000 B of which the first is freed, one of 40,000 B.

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


def bars(ax: Any, unit: int) -> dict[str, dict[str, int]]:
    """Bytes of each bar: by class, and by part in the order in which they are stacked."""
    names = [label.get_text() for label in ax.get_yticklabels()]
    found: dict[str, dict[str, int]] = defaultdict(dict)
    ends = [0.0] * len(names)
    for container in ax.containers:
        for row, bar in enumerate(container):
            if bar.get_width():
                assert bar.get_x() == pytest.approx(ends[row])  # none lies on another
                ends[row] += bar.get_width()
                found[names[row]][container.get_label()] = round(unit * bar.get_width())
    return dict(found)


def test_three_classes_by_hand() -> None:
    one = three_classes()
    ax = plots.waste_by_class(one)
    assert bars(ax, 1024) == {
        "1,024 B": {"round-up": 192, "free slots": 1024, "cached": 7168},
        "48 B": {"round-up": 1500, "tail": 32, "cached": 3360},
        "large objects": {"large rounding": 960},
    }
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["1,024 B", "48 B", "large objects"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first one is at the top
    assert ax.get_xlabel() == "held beyond requested, KiB; and the share of all waste"
    whole = one.waste_bytes
    told = [text.get_text() for text in ax.texts]
    assert told == [
        f"8.2 KiB, {8384 / whole:.1%}".replace("%", " %"),
        f"4.8 KiB, {4892 / whole:.1%}".replace("%", " %"),
        f"960 B, {960 / whole:.1%}".replace("%", " %"),
    ]
    title = f"heap at now, table go:\nclasses have 13.9 KiB of {whole / 1024:.1f} KiB waste"
    assert ax.get_title(loc="left") == title


def test_few_classes_are_those_with_most() -> None:
    ax = plots.waste_by_class(three_classes(), classes=2)
    assert list(bars(ax, 1024)) == ["1,024 B", "48 B"]
    assert ax.get_title(loc="left").endswith(" waste; the 2 of 3 with most")
    figure: Any = ax.figure
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["round-up", "tail", "free slots", "cached"]  # of the bars that are drawn


def test_bars_are_the_ledgers_parts() -> None:
    """All classes of a recording together; metadata and free pages are of none."""
    one = sw.Recording.from_ops(random_ops(9, 4000), name="mine").ledger("go")
    ax = plots.waste_by_class(one, classes=1000)
    unit = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20}[ax.get_xlabel().split()[3].rstrip(";")]
    sums: dict[str, int] = defaultdict(int)
    for parts in bars(ax, unit).values():
        for name, size in parts.items():
            sums[name] += size
    assert sums == {
        "round-up": one.roundup_bytes,
        "large rounding": one.large_rounding_bytes,
        "tail": one.tail_bytes,
        "free slots": one.free_slot_bytes,
        "cached": one.cached_bytes,
    }
    assert ax.get_title(loc="left").startswith("mine at peak, table go:\n")


def test_parts_differ_in_grey(tmp_path: Path) -> None:
    ax: Any = plots.waste_by_class(three_classes())
    looks = {(one[0].get_facecolor(), one[0].get_hatch()) for one in ax.containers}
    assert len(looks) == 5 and len({colour for colour, _ in looks}) == 3
    known = {None, *PART_HATCHES.values()}
    assert all(hatch in known for _, hatch in looks)
    plots.save(ax, tmp_path / "a.png")


def test_where_it_is_told_and_what_is_refused() -> None:
    one = three_classes()
    ax = plots.new_axes()
    assert plots.waste_by_class(one, ax) is ax and ax.get_legend() is not None
    with pytest.raises(sw.InvalidError, match="classes 0: at least one class must be drawn"):
        plots.waste_by_class(one, classes=0)
    with sw.Heap("go", dry=True) as heap, pytest.raises(sw.InvalidError, match="no waste to draw"):
        plots.waste_by_class(heap.ledger())
