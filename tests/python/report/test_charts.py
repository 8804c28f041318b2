# SPDX-License-Identifier: Apache-2.0
"""The charts of a report: bytes, counts and moments, read back from coordinates in the SVG."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.ledger.ledger import LEDGER_CLASS_DTYPE
from spanwise.ledger.parts import PARTS
from spanwise.recordings.timeline import PARTS_DTYPE
from spanwise.report import charts, sections
from spanwise.report import export as perfetto
from spanwise.report import facts as facts_module
from spanwise.report.facts import Facts
from spanwise.results.rows import as_rows

from tests.python.helpers import make_ops

KIB = 1 << 10
LEFT, RIGHT = 64, 820 - 26
"""The places of the least and of the most value of an axis from left to right."""


def ledger(resident: int | None = None, **parts: int) -> Any:
    """Return the parts of a ledger that charts need."""
    known = {name: parts.get(name.removesuffix("_bytes"), 0) for name in PARTS}
    held = sum(known.values())
    waste = held - known["requested_bytes"]
    return SimpleNamespace(**known, held_bytes=held, waste_bytes=waste, resident_bytes=resident)


def shapes(text: str, tag: str, class_: str) -> list[dict[str, float]]:
    """The places and lengths of the elements of a class; patches of legends have another."""
    names = ("x", "y", "x1", "x2", "y1", "y2", "width", "height")
    return [
        {name: float(one.attrib[name]) for name in names if name in one.attrib}
        for one in ET.fromstring(text).iter(tag)
        if one.attrib.get("class") == class_
    ]


def texts(text: str) -> list[str]:
    return ["".join(one.itertext()) for one in ET.fromstring(text).iter("text")]


def line_points(text: str) -> list[tuple[float, float]]:
    (one,) = ET.fromstring(text).iter("polyline")
    pairs = (point.split(",") for point in one.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


def test_the_bar_of_a_ledger() -> None:
    """Held are 8 KiB, 730 places wide: 4 requested, 1 of round-up, 3 of free pages; resident 6."""
    text = charts.ledger_bar(ledger(6 * KIB, requested=4 * KIB, roundup=KIB, free_page=3 * KIB))

    def bar(x: float, y: float, width: float) -> Any:
        return pytest.approx({"x": LEFT + x, "y": y, "width": width, "height": 32}, abs=0.01)

    assert shapes(text, "rect", "part-requested") == [bar(0, 22, 365)]
    # The second bar is the waste alone, 4 KiB.
    assert shapes(text, "rect", "part-roundup") == [bar(365, 22, 91.25), bar(0, 106, 182.5)]
    assert shapes(text, "rect", "part-free-page") == [
        bar(456.25, 22, 273.75),
        bar(182.5, 106, 547.5),
    ]
    (resident,) = shapes(text, "line", "resident")
    assert resident["x1"] == resident["x2"] == LEFT + 547.5
    shares = {"50.0 %", "12.5 %", "37.5 %", "25.0 %", "75.0 %"}
    assert shares | {"resident 6.0 KiB"} <= set(texts(text))


def test_the_bar_of_a_small_screen_fits_it() -> None:
    """Ten parts of 1 KiB, 34.6 places each from 10 on; its key is in rows within 376 places."""
    sizes = {name.removesuffix("_bytes"): KIB for name in PARTS}
    text = charts.ledger_bar(ledger(len(PARTS) * KIB, **sizes), charts.NARROW)
    root = ET.fromstring(text)
    (picture,) = root
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    assert root.attrib["class"] == "narrow" and width == 376
    (first,) = shapes(text, "rect", "part-requested")
    assert first["x"] == 10 and first["width"] == pytest.approx(346 / len(PARTS), abs=0.01)
    named = [one for one in root.iter("text") if (one.text or "").endswith("1.0 KiB")]
    assert len(named) == len(PARTS)
    for one in named:
        assert float(one.attrib["x"]) + 7 * len(one.text or "") <= width
        assert float(one.attrib["y"]) < height


def moments() -> sw.Rows:
    """Held are 4, 8 and 8 KiB at 0, 4 and 8 ms; requested 2, 4, 6 of them, resident 1, 3, 7."""
    found = np.zeros(3, PARTS_DTYPE)
    found["op"], found["time_ns"] = [1, 10, 20], [0, 4_000_000, 8_000_000]
    found["held_bytes"] = [4 * KIB, 8 * KIB, 8 * KIB]
    found["requested_bytes"] = [2 * KIB, 4 * KIB, 6 * KIB]
    found["free_page_bytes"] = [2 * KIB, 4 * KIB, 2 * KIB]
    found["resident_bytes"] = [KIB, 3 * KIB, 7 * KIB]
    return as_rows(found)


def test_held_bytes_over_time() -> None:
    """Heights are from 250 up to 24, which is 8 KiB."""
    text = charts.timeline(moments(), 10)

    def y(kib: float) -> float:
        return 250 - 226 * kib / 8

    middle = (LEFT + RIGHT) / 2
    xs, ys = zip(*line_points(text), strict=True)
    assert xs == (LEFT, middle, middle, RIGHT, RIGHT)
    assert ys == pytest.approx([y(1), y(1), y(3), y(3), y(7)], abs=0.06)
    paths = {one.attrib["class"]: one.attrib["d"] for one in ET.fromstring(text).iter("path")}
    for name, (a, b), (c, d) in (
        ("part-requested", (2, 4), (0, 0)),
        ("part-free-page", (4, 8), (2, 4)),
    ):
        lines = re.findall(r"([MHVZ])([\d. ]*)", paths[name])
        assert "".join(one for one, _ in lines) == "MHVHVHVHZ"
        assert lines[0][1] == f"{LEFT:.1f} {y(a):.1f}"
        there, back = [middle, y(b), RIGHT], [y(d), middle, y(c), LEFT]
        assert [float(to) for _, to in lines[1:-1]] == pytest.approx([*there, *back], abs=0.06)
    (peak,) = shapes(text, "line", "peak")
    assert peak["x1"] == peak["x2"] == middle
    assert charts.place_in_time(moments(), 5, 2_000_000) == (LEFT + middle) / 2


def test_the_time_line_has_the_end_of_a_burst() -> None:
    """By hand: 1,000 objects of 100 bytes in 1 ms, 900 are freed, and after 1 s comes one more."""
    ops = make_ops(*((0, i, 100) for i in range(1000)), *((1, i, 0) for i in range(900)))
    ops = np.concatenate([ops, make_ops((0, 1000, 100))])
    ops["time_ns"] = [*range(0, 1_900_000, 1000), 10**9]
    one = sw.Recording.from_ops(ops)
    rows = facts_module._timeline(one, sw.SizeClassTable.go(), None, lambda _: None)
    found = list(zip(rows["op"].tolist(), rows["requested_bytes"].tolist(), strict=True))
    assert found[-2:] == [(1900, 100 * 100), (1901, 101 * 100)]
    assert found == sorted(set(found)) and 75 <= len(found) <= 85


def test_growth_is_what_was_requested_since_the_last_moment() -> None:
    """4 KiB in the first 4 ms, then 2 KiB in 4 ms: 1,024,000 and 512,000 bytes a second."""
    events = perfetto.counters(moments())
    growth = [(e["ts"], e["args"]) for e in events if e["name"] == "growth, bytes/s"]
    assert growth == [(4000, {"requested": 1_024_000}), (8000, {"requested": 512_000})]
    resident = [e["args"]["resident"] for e in events if e["name"] == "resident, bytes"]
    assert resident == [KIB, 3 * KIB, 7 * KIB]


def test_without_times_the_axis_is_of_operations() -> None:
    found = moments().copy()
    found["time_ns"] = 0
    text = charts.timeline(as_rows(found), 20)
    assert [x for x, _ in line_points(text)[::2]] == pytest.approx(
        [LEFT, LEFT + 730 * 9 / 19, RIGHT], abs=0.06
    )
    assert "operations" in texts(text)
    (peak,) = shapes(text, "line", "peak")
    assert peak["x1"] == RIGHT


def histogram(*given: tuple[int, int]) -> sw.Rows:
    return as_rows(np.array(list(given), [("size_bytes", "<u8"), ("count", "<u8")]))


def test_requests_by_size() -> None:
    """Both axes are logarithmic: sizes from 1 to 32 KiB, counts from 0.5 to 1.3 of the most."""
    go = sw.SizeClassTable.go()
    text = charts.sizes(histogram((0, 1), (32, 100), (1024, 10)), go)

    def x(size: float) -> float:
        return LEFT + 730 * math.log2(size) / 15

    def y(count: float) -> float:
        return 220 - 196 * math.log(count / 0.5) / math.log(130 / 0.5)

    bars = shapes(text, "line", "bar")
    assert [one["x1"] for one in bars] == pytest.approx([x(1), x(32), x(1024)], abs=0.01)
    assert [one["y2"] for one in bars] == pytest.approx([y(1), y(100), y(10)], abs=0.01)
    assert {one["y1"] for one in bars} == {220}
    assert texts(text)[:4] == ["requests", "1", "10", "100"]
    many = charts.sizes(histogram((32, 2 * 10**6)), go)
    assert texts(many)[4:8] == ["1 k", "10 k", "100 k", "1 M"]
    classes = [one["x1"] for one in shapes(text, "line", "boundary")]
    assert classes == pytest.approx([x(size) for size in go.classes["size_bytes"]], abs=0.01)


def test_many_sizes_are_added_up() -> None:
    """1,000 sizes of 3 requests each: no request is lost, and the first bar is of size 1."""
    asked, counts = charts._binned(histogram(*((size, 3) for size in range(1, 1001))))
    assert len(asked) <= charts.MOST_BARS + 1 and counts.sum() == 3000
    assert (asked[0], counts[0], counts[-2] > counts[0]) == (1, 3, True)


def test_waste_by_class() -> None:
    """By hand: 6 KiB of 1,024 B, 2 KiB of large objects; the axis ends at 1.22 of the most."""
    classes = np.zeros(3, LEDGER_CLASS_DTYPE)
    classes["cls"], classes["size_bytes"] = [0, 1, 2], [0, 48, 1024]
    classes["roundup_bytes"], classes["free_slot_bytes"] = [2 * KIB, 0, KIB], [0, 0, 5 * KIB]
    one = SimpleNamespace(classes=classes, waste_bytes=16 * KIB, held_bytes=64 * KIB)
    text = charts.waste_by_class(one)  # type: ignore[arg-type]
    kib = (RIGHT - LEFT - 20) / (6 * 1.22)
    bars = [shapes(text, "rect", f"part-{name}") for name in ("roundup", "free-slot")]
    assert [[(b["x"], b["y"], b["width"]) for b in part] for part in bars] == [
        [
            (LEFT + 20, 8, pytest.approx(kib, abs=0.01)),
            (LEFT + 20, 28, pytest.approx(2 * kib, abs=0.01)),
        ],
        [(pytest.approx(LEFT + 20 + kib, abs=0.01), 8, pytest.approx(5 * kib, abs=0.01))],
    ]
    assert texts(text)[:4] == ["1,024 B", "6.0 KiB, 37.5 %", "large", "2.0 KiB, 12.5 %"]


def test_narrow_charts_fit_into_their_width() -> None:
    """No text begins before the picture or ends after it, with 6.5 places per character."""
    classes = np.zeros(2, LEDGER_CLASS_DTYPE)
    classes["cls"], classes["size_bytes"], classes["roundup_bytes"] = [0, 1], [0, 28_672], 123 * KIB
    waste: Any = SimpleNamespace(classes=classes, waste_bytes=246 * KIB, held_bytes=300 * KIB)
    own = ("glibc", ((0, 2 * KIB), (4_000_000, 900 * KIB)))
    pictures = (
        charts.timeline(moments(), 10, own, charts.NARROW),
        charts.sizes(histogram((32, 10**6)), sw.SizeClassTable.go(), {32: 9}, width=charts.NARROW),
        charts.waste_by_class(waste, charts.NARROW),
    )
    for picture in pictures:
        root = ET.fromstring(picture)
        assert root.attrib["class"] == "narrow" and "id=" not in picture
        assert root[0].attrib["viewBox"].startswith("0 0 376 ")
        for one in root.iter("text"):
            long = 6.5 * len(one.text or "")
            before = {"start": 0.0, "middle": long / 2, "end": long}[one.attrib["text-anchor"]]
            left = float(one.attrib["x"]) - before
            assert left >= 0 and left + long <= 376, one.text
        for one in root.iter("rect"):
            assert float(one.attrib["x"]) + float(one.attrib["width"]) <= 376
    middle = charts.place_in_time(moments(), 10, 4_000_000, charts.NARROW)
    assert middle == (52 + 362) / 2


@pytest.mark.parametrize(
    ("high", "count", "marks"),
    [
        (10, 5, [0, 2, 4, 6, 8, 10]),
        (7, 5, [0, 2, 4, 6]),
        (0.3, 3, [0, 0.1, 0.2, 0.3]),
        (900, 4, [0, 500]),
        (0, 5, [0]),
    ],
)
def test_marks_of_an_axis(high: float, count: int, marks: list[float]) -> None:
    assert charts.ticks(high, count) == pytest.approx(marks)


def test_windows_are_at_most_the_number_wanted() -> None:
    """Ten nanoseconds in at most four windows: they are 3 ns long, and the last one is short."""
    windows = perfetto.Windows(9, 4)
    assert (windows.length_ns, windows.count) == (3, 4)


def test_places_on_a_logarithmic_axis() -> None:
    """From 0.5 to 8 are four doublings; what lies outside is at the ends."""
    axis = charts.Scale(0.5, 8, 100, 20, log=True)
    places = [axis.at(value) for value in (0.1, 0.5, 0.5**0.5, 2, 8, 99)]
    assert places == pytest.approx([100, 100, 90, 60, 20, 20])


# --- sentences and tables of the page -------------------------------------------------------------


def facts(advice: Any = None) -> Facts:
    """By hand, under go: 40 objects of 33 bytes, slots of 48, at a site; a span has 170 slots."""
    ops = make_ops(*((0, i, 33) for i in range(40)))
    ops["site"] = 1
    one = sw.Recording.from_ops(ops, name="mine")
    go = sw.SizeClassTable.go()
    peak = (one.ledger(go, "peak"), one.after_peak(go))
    timeline, sites = one.timeline(go, detail="parts"), one.live_sites(go, "peak")
    return Facts(one, go, *peak, timeline, one.histogram(), (), sites, advice, "")


def cells(text: str) -> list[list[str]]:
    """Return the rows of the last table."""
    rows = re.findall(r"<tr>(.*?)</tr>", text[text.rindex("<tbody>") :])
    return [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in rows]


def test_the_answer_names_the_largest_part_of_the_waste() -> None:
    """By hand: of 2,000 bytes 1,000 are requested, 10 round-up, 520 free slots, 470 metadata."""
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0)
    parts |= {"requested_bytes": 1000, "roundup_bytes": 10}
    parts |= {"free_slot_bytes": 520, "metadata_bytes": 470}
    found = facts()
    found = replace(found, ledger=replace(found.ledger, **parts, held_bytes=2000, resident=None))
    assert found.worst_part() == "free_slot_bytes"
    assert found.answer() == (
        "In spanwise's heap, by simulation, when resident bytes peak, mine has requested 1000 B,"
        " and the table go holds 2.0 KiB for it: 50.0 % is waste, most of it free slots (520 B)."
    )


def test_the_table_of_call_sites() -> None:
    """Waste is 600 of round-up and what is free of the span of 8 KiB; then that, then requested."""
    kept = 8192 - 40 * 48
    (row,) = cells(sections.call_sites(facts()).content)
    assert row[:4] == [f"{(600 + kept) / KIB:.1f} KiB", f"{kept / KIB:.1f} KiB", "1.3 KiB", "40"]


def test_the_table_of_tables() -> None:
    """Go's has 67 classes, and c16's as many as its table has; large objects are none."""
    one = facts()
    advice = sw.optimize(one.recording, 32, "peak")
    output = {row[5]: row for row in cells(sections.advice(facts(advice)).content)}
    assert output["go (this report&#x27;s)"][4] == "67"
    assert output["c16"][4] == str(len(sw.SizeClassTable.c16()))
    evaluated = {one.table: one for one in advice.evaluation.comparison.ledgers}
    held = evaluated["c16"].held_bytes
    assert output["c16"][0] == f"{held / KIB:.1f} KiB"
    own = evaluated["c16"].peak_resident_bytes
    assert own is not None and output["c16"][3] == f"{own / KIB:.1f} KiB"
    assert output["c16"][2] == f"{100 * evaluated['c16'].waste_bytes / held:.1f} %"
