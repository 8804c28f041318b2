# SPDX-License-Identifier: Apache-2.0
"""Flame graphs: counts equal the ledger's, widths are proportional, names are escaped."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.report import flame
from spanwise.report.moments import StackData, codes_of, is_runtime

from tests.python.helpers import make_ops, needs_recorder, random_ops

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
    data = StackData(live, 3, 4, allocated=allocated).to_dict()
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
