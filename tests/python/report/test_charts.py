# SPDX-License-Identifier: Apache-2.0
"""The charts of a report, read back from the SVG, and flame graphs: counts are the ledgers."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.ledger.ledger import LEDGER_CLASS_DTYPE
from spanwise.ledger.parts import PARTS
from spanwise.recordings.timeline import PARTS_DTYPE
from spanwise.report import charts, flame, sections
from spanwise.report import export as perfetto
from spanwise.report import facts as facts_module
from spanwise.report.facts import Facts
from spanwise.report.moments import StackData, codes_of, is_runtime
from spanwise.results.rows import as_rows

from tests.python.helpers import make_ops, needs_recorder, random_ops

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
    assert "held at the simulated peak, KiB; % of held" in texts(text)


def test_bars_on_one_axis() -> None:
    """By hand: of 730 places for 16 KiB, 8 KiB held are 365; waste has an axis of its own."""
    text = charts.ledger_bar(ledger(6 * KIB, requested=4 * KIB, free_page=4 * KIB), 16 * KIB)
    free = [(one["x"] - LEFT, one["width"]) for one in shapes(text, "rect", "part-free-page")]
    assert free == [(182.5, 182.5), (0, 730)]
    own = [("part-requested", "requested", 12 * KIB), ("part-tail", "waste", 4 * KIB)]
    text = charts.own_bar(own, 16 * KIB)
    (wasted,) = shapes(text, "rect", "part-tail")
    assert (wasted["x"] - LEFT, wasted["width"]) == (547.5, 182.5)
    assert {"75.0 %", "25.0 %", "requested 12.0 KiB", "waste 4.0 KiB"} <= set(texts(text))


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


@pytest.mark.parametrize(("text", "place"), [("4 B", "362 middle"), ("64 KiB", "374 end")])
def test_the_last_value_of_an_axis_is_in_the_picture(text: str, place: str) -> None:
    """The axis ends 14 before the end of a narrow picture: room for half of "4 B"."""
    axis = charts.Scale(0, 4, 52, 362)
    drawn = charts.x_axis(axis, [0, 4], lambda mark: text if mark else "0", 100, "")
    (x, anchor), *_ = re.findall(
        rf'<text x="(\d+)" y="116" text-anchor="(\w+)"[^>]*>{text}<', drawn
    )
    assert f"{x} {anchor}" == place
    assert '<text x="52" y="116" text-anchor="middle"' in drawn


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


# --- flame graphs ---------------------------------------------------------------------------------


SVG = "{http://www.w3.org/2000/svg}"
CHAINS = (
    ("leaf (a.c:1)", "middle (a.c:20)", "main (a.c:90)"),
    ("leaf (a.c:1)", "main (a.c:91)"),
    ("other in libz.so.1", "middle (a.c:20)", "main (a.c:90)"),
)


def found(
    seed: int = 8, at: str = "peak", names: tuple[tuple[str, ...], ...] = CHAINS
) -> sw.LiveSites:
    """Live sites of a random history, with names given by hand."""
    ops = random_ops(seed, 3000)
    ops["site"] = np.where(ops["kind"] == 3, 0, 1 + ops["object"] % len(names))
    live = sw.Recording.from_ops(ops, name="mine").live_sites("go", at)
    return replace(live, sites=tuple(replace(one, names=names[one.id - 1]) for one in live))


def boxes(text: str) -> list[tuple[str, int, float, float, float]]:
    """Name, bytes, left, top and width of each box, from the text that a pointer shows."""
    made = []
    for group in ET.fromstring(text).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        if title is None or rect is None:
            continue
        output = title.text or ""
        match = re.search(r"\(([\d,]+) bytes\)", output)
        assert match is not None
        places = [float(rect.attrib[name]) for name in ("x", "y", "width")]
        made.append((output.split("\n")[0], int(match[1].replace(",", "")), *places))
    return made  # type: ignore[return-value]


@pytest.mark.parametrize("at", ["peak", "end"])
@pytest.mark.parametrize("of", flame.OF)
def test_the_counts_are_the_ledgers(of: str, at: str) -> None:
    live = found(at=at)
    ledger = live.ledger
    wanted = {
        "waste": ledger.held_bytes - ledger.requested_bytes,
        "round-up": ledger.roundup_bytes + ledger.large_rounding_bytes,
        "pinned": ledger.tail_bytes + ledger.free_slot_bytes + ledger.cached_bytes,
        "resident": ledger.resident_bytes,
        "requested": ledger.requested_bytes,
    }[of]
    root = flame.tree_of(live, of)
    assert root.value_bytes == wanted
    text = flame.file_of(root, flame.sentence(live, of))
    drawn = boxes(text)
    assert drawn[0][1] == wanted
    below = [one for one in drawn if one[3] == flame.ROW]
    assert sum(one[1] for one in below) == wanted
    assert {one[0] for one in below} <= {"main (a.c:90)", "main (a.c:91)", flame.NO_OBJECT}
    for _, count, left, _, width in drawn:
        assert width == pytest.approx(count / wanted * flame.FILE_WIDTH, abs=0.5)
        assert 0 <= left <= flame.FILE_WIDTH


def test_a_tree_by_hand() -> None:
    """Three sites of 6, 4 and 10 bytes of round-up; two of them go through middle."""
    ops = make_ops(*((0, i, size) for i, size in enumerate((2, 12, 54))))
    ops["site"] = [1, 2, 3]  # of slots of 8, 16 and 64: 6, 4 and 10 bytes
    live = sw.Recording.from_ops(ops).live_sites("go")
    live = replace(live, sites=tuple(replace(one, names=CHAINS[one.id - 1]) for one in live))
    root = flame.tree_of(live, "round-up")
    assert root.value_bytes == 20 and root.own_bytes == 0 and root.depth() == 4
    first, second = root.sorted()
    assert (first.name, first.value_bytes) == ("main (a.c:90)", 16)
    assert (second.name, second.value_bytes) == ("main (a.c:91)", 4)
    (middle,) = first.sorted()
    assert [(one.name, one.value_bytes, one.own_bytes) for one in middle.sorted()] == [
        ("other in libz.so.1", 10, 10),
        ("leaf (a.c:1)", 6, 6),
    ]
    assert flame.sentence(live, "round-up") == (
        "20 B round-up at peak-resident of operations under go; 50.0 % of it by other in libz.so.1"
    )


def test_boxes_that_are_too_narrow_are_one() -> None:
    """Of 4,001 siblings all but one are narrower than a pixel."""
    root = flame.Frame("all")
    for i in range(4000):
        root.add((f"small {i}",), 1)
    root.add(("large",), 6000)
    drawn = boxes(flame.file_of(root, "x"))
    assert [one[:2] for one in drawn] == [
        ("all", 10_000),
        ("large", 6000),
        ("[4,000 frames too narrow to be drawn]", 4000),
    ]


def test_names_are_wrapped_cut_and_escaped() -> None:
    assert flame.wrapped("f (a.c:1)", 400) == ["f (a.c:1)"]
    assert flame.wrapped("function_name (file_name.c:123)", 130) == [
        "function_name",
        "(file_name.c:123)",
    ]
    assert flame.wrapped("function_name (file_name.c:123)", 60) == ["functio…", "(file_n…"]
    assert flame.wrapped("no_place_at_all_in_this", 100) == ["no_place_at_al", "l_in_this"]
    assert flame.wrapped("[of no live object]", 60) == ["[of no", "live ob…"]
    assert flame.wrapped("x", 20) == []
    live = found(names=(("<script>alert(1)</script>&", 'main "x"'),))
    text = flame.file_of(flame.tree_of(live, "waste"), "a < b & c")
    assert "<script>" not in text and any('main "x"' in one[0] for one in boxes(text))
    assert set(re.findall(r"[a-z]+://[^\s\"'<]*", text)) == {"http://www.w3.org/2000/svg"}


def test_the_data_of_a_page_adds_up_to_the_ledger() -> None:
    """Stacks beyond the limit are one; with the rest of the ledger all quantities are complete."""
    live = found()
    allocated = [sw.Site(7, 5, 50, ("0x1",), names=("only",)), sw.Site(1, 2, 9, (), CHAINS[0])]
    data = StackData(live, 1, 2).to_dict()
    assert data["names"][data["stacks"][-1][0]] == "[1 more call sites]"
    first = [data["names"][frame] for frame in data["stacks"][0]]
    assert first == [*reversed(live[0].names)]
    for place, of in enumerate(flame.OF):
        assert sum(row[place] for row in data["values"]) == sum(flame.value_of(s, of) for s in live)
        assert data["totals"][place] == flame.total_of(live.ledger, of)
    assert data["totals"][5] == sum(row[5] for row in data["values"]) == live.ledger.live_objects
    for site in live:  # the first has a stack, however small its share
        others = (one for one in live.sites if one is not site)
        index = StackData(replace(live, sites=(site, *others)), 1, 1).index
        assert index[site.names] == 0
    data = StackData(live, 3, 4, allocated=(allocated,)).to_dict()
    assert data["of"][-1] == "allocations" and data["totals"][-1] == 7
    names = [data["names"][stack[-1]] for stack in data["stacks"]]
    assert len(names) == 4 and sum(row[-1] for row in data["values"]) == 7
    assert data["values"][names.index("only")] == [0, 0, 0, 0, 0, 0, 5]


def test_codes_are_logarithms_to_within_a_thousandth() -> None:
    values = np.array([0, 1, 2, 700, 10**6, 2**40 + 1, 2**62])
    codes = codes_of(values)
    assert codes[:3].tolist() == [0, 1024, 1623]  # 1024 * log2(3) is 1,623.0
    assert 2 ** (codes / 1024) - 1 == pytest.approx(values, rel=5e-4)
    assert np.round(2 ** (codes[:4] / 1024) - 1).tolist() == [0, 1, 2, 700]


def test_frames_of_runtimes_and_imports() -> None:
    for name in (
        *("_start in python3.11", "__libc_start_call_main (libc_start_call_main.h:58)"),
        *("_PyEval_EvalFrameDefault (ceval.c:5548)", "PyImport_ImportModuleLevelObject (i.c:1)"),
        *("_find_and_load (<frozen importlib._bootstrap>:1178)", "start_thread in libc.so.6"),
        "std::rt::lang_start (rt.rs:165)",
    ):
        assert is_runtime(name), name
    for name in ("PyUnicode_New (unicodeobject.c:1425)", "main (a.c:1)", "restart (a.c:2)", "0x1"):
        assert not is_runtime(name), name


def test_nothing_to_draw() -> None:
    live = sw.Recording.from_ops(make_ops((0, 0, 64), (1, 0, 0))).live_sites("go", "end")
    root = flame.tree_of(live, "round-up")
    assert boxes(flame.file_of(root, "nothing")) == [("round-up at end", 0, 0.0, 0.0, 1399.6)]


@needs_recorder()
def test_the_command_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CPython with its C call sites: the root of all stacks is where the program starts."""
    swt, svg = tmp_path / "a.swt", tmp_path / "a.svg"
    one = sw.record(["python3", "-c", "x = [bytearray(5000) for _ in range(99)]"], swt, stacks=6)
    capsys.readouterr()
    assert main(["flame", str(swt), "-o", str(svg), "--of", "resident", "--table", "go"]) == 0
    said = capsys.readouterr().out
    text = svg.read_text(encoding="utf-8")
    resident = one.ledger("go").resident_bytes
    assert boxes(text)[0][1] == resident and len(boxes(text)) > 10
    assert "resident at peak-resident of a.swt under go; " in said and f"wrote {svg}" in said
    assert main(["flame", str(swt), "-o", str(svg), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["of"] == "waste"
    assert main(["flame", str(swt), "-o", str(tmp_path / "b.html"), "--before", str(swt)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^(.*?) waste at .*, \1 in a.swt$", said, re.MULTILINE)
    page = tmp_path / "a.html"
    one.to_html(page, "go")
    whole = page.read_text(encoding="utf-8")
    assert 'id="flame-graph"' in whole


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swt = tmp_path / "a.swt"
    sw.Recording.from_ops(random_ops(3, 500), swt)
    for words, said in (
        (["-o", str(tmp_path / "a.svg")], "record the program with --stacks 16"),
        (["-o", str(tmp_path / "a.png")], "a flame graph ends in .svg or .html"),
        (["-o", str(tmp_path / "a.svg"), "--before", str(swt)], "ends in .html"),
        (["-o", str(tmp_path / "a.html"), "--before", "none.swt"], "none.swt"),
        (["-o", str(tmp_path / "no/a.svg")], "cannot be written"),
        (["-o", str(tmp_path / "a.svg"), "--at", "99999s"], "after its end"),
    ):
        assert main(["flame", str(swt), *words]) == 2
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1 and captured.out == ""
    with pytest.raises(sw.InvalidError, match="flame graph of 'time': use one of waste"):
        sw.Recording.open(swt).to_flame(tmp_path / "a.svg", "time")
    assert [one.name for one in tmp_path.iterdir()] == ["a.swt"]
