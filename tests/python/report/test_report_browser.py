# SPDX-License-Identifier: Apache-2.0
"""The report in a browser: print, tables, flame graph, and sections that follow each other."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise import _format
from spanwise.report import facts as facts_of
from spanwise.report.moments import StackData, changed_rows, packed

from tests.python.browser import Page, browse, needs_browser, probe, unpacked
from tests.python.helpers import make_ops, random_ops
from tests.python.report.conftest import write_named

PROBE = """
const slider = document.getElementById("when"), canvas = document.getElementById("map");
const moment = document.getElementById("moment"), line = document.getElementById("now");
const looks = [];
const look = () => {
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let i = 0; i < data.length; i += 4)
        colours.add(data[i] * 65536 + data[i + 1] * 256 + data[i + 2]);
    let sum = 0;
    data.forEach((value, i) => { sum = (sum * 31 + value * (i % 97 + 1)) % 2147483647; });
    looks.push([slider.value, moment.textContent, line.getAttribute("x1"), colours.size, sum]);
};
const head = Math.round(document.querySelector("header").getBoundingClientRect().bottom);
look();
slider.value = "0";
slider.dispatchEvent(new Event("input"));
look();
output = { looks, head };
"""


@needs_browser
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    sw.Recording.from_ops(random_ops(9, 4000), name="mine").to_html(page, "go")
    output = probe(tmp_path, page, PROBE)
    first, second = output["looks"]
    assert first[1].startswith("Peak: ") and not second[1].startswith("Peak: ")
    assert second[0] == "0" != first[0]
    assert first[1:3] != second[1:3] and first[4] != second[4]  # words, line and pixels moved
    assert first[3] > 3  # it has colours
    # The answer and its picture fit on the first printed page: A4 at 96 dots an inch, less margins.
    assert output["head"] < 1123 - 2 * 38
    assert 'data-drawn="' in browse(tmp_path, page)  # the policy lets the scripts of the page run
    pdf = tmp_path / "x.pdf"
    browse(tmp_path, page, "--no-pdf-header-footer", f"--print-to-pdf={pdf}")
    assert pdf.read_bytes()[:5] == b"%PDF-"
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())) <= 8


def with_sites() -> sw.Recording:
    """A recording with twelve call sites."""
    ops = random_ops(9, 4000).copy()
    ops["site"] = 1 + ops["object"] % 12
    return sw.Recording.from_ops(ops, name="mine")


@pytest.fixture(scope="module")
def sites_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of that recording."""
    page = tmp_path_factory.mktemp("sites") / "x.html"
    with_sites().to_html(page, "go")
    return page


@needs_browser
def test_tables_sort_and_filter(sites_page: Path, tmp_path: Path) -> None:
    """A click on a number sorts from high to low, the next from low to high."""
    script = """
    const table = document.querySelector("#call-sites table");
    const rows = () => [...table.tBodies[0].rows];
    const values = (column) => rows().map((row) => row.cells[column].textContent);
    const click = (column) => table.tHead.querySelectorAll("button")[column].click();
    const filter = document.querySelector("#call-sites input");
    click(3);
    output = { descending: values(3), sort: table.tHead.rows[0].cells[3].ariaSort };
    click(3);
    output.ascending = values(3);
    click(2);
    output.requested = values(3);
    filter.value = output.descending[0];
    filter.dispatchEvent(new Event("input"));
    output.shown = rows().filter((row) => row.getClientRects().length).map((row) => row.innerText);
    output.count = document.querySelector("#call-sites output").textContent;
    """
    output = probe(tmp_path, sites_page, script)
    sites = with_sites().live_sites("go").sites
    counts = sorted((one.live_objects for one in sites), reverse=True)
    assert [int(one) for one in output["descending"]] == counts
    assert output["ascending"] == output["descending"][::-1] and output["sort"] == "descending"
    largest = max(sites, key=lambda one: one.requested_bytes)
    assert int(output["requested"][0]) == largest.live_objects
    assert 1 <= len(output["shown"]) < 12 == len(counts)
    assert all(str(counts[0]) in row for row in output["shown"])
    assert output["count"] == f"{len(output['shown'])} of 12 rows"


@needs_browser
def test_call_sites_without_frames_of_a_runtime(tmp_path: Path) -> None:
    """Callers keep the folders of their files; frames of a runtime are shown if all are.

    Of recursive calls the innermost is shown.
    """
    importing = "exec_module (<frozen importlib._bootstrap_external>:940)"
    names = (
        (importing, "load (re/__init__.py:124)", importing, "<module> (app/main.py:1)"),
        (importing,),
        ("walk (t.c:9)", "walk (t.c:7)", "walk (t.c:7)", "walk (s.c:7)", "main (t.c:3)"),
    )
    page = tmp_path / "x.html"
    write_named(page, (54, 2, 2), names)
    script = r"""
    const cells = [...document.querySelectorAll("#call-sites tbody td:last-child")];
    output = [cells.map((cell) => cell.firstChild.textContent.split("\n"))];
    cells.find((cell) => cell.textContent.includes("load")).querySelector("button.link").click();
    output.push(document.getElementById("holders").textContent);
    output.push(data.stacks.map((_, stack) => distinctCallers(stack)));
    """
    callers, said, made = probe(tmp_path, page, script)
    walk = ["walk (t.c:9)", "walk (s.c:7)", "main (t.c:3)"]
    assert sorted(callers) == sorted(made) == [[importing], [names[0][1], names[0][3]], walk]
    assert f"objects of {names[0][1]} < {names[0][3]} at the peak" in said


@needs_browser
@pytest.mark.parametrize("width", [400, 1280])
def test_findings_are_a_list(sites_page: Path, tmp_path: Path, width: int) -> None:
    """A name is in the line of its text, or above it on a narrow screen."""
    script = """
    const box = (one) => one.getBoundingClientRect();
    output = [...document.querySelectorAll("#findings dt")].map((name) => {
        const from = box(name), to = box(name.nextElementSibling);
        return [from.top - to.top, from.right - to.left, from.bottom - to.top];
    });
    """
    found = probe(tmp_path, sites_page, script, width)
    assert found
    for top, right, bottom in found:
        assert bottom <= 1 if width == 400 else abs(top) <= 1 and right < 0


def objects_by_cell(
    recording: sw.Recording, at: str = "peak-resident"
) -> dict[int, dict[int, int]]:
    """Objects by cell and site at a moment, one by one: a cell is a page here."""
    made = recording.map("go", at)
    found: dict[int, dict[int, int]] = {}
    for tile in made.array:
        first, last = int(tile["offset"]), int(tile["offset"]) + int(tile["bytes"])
        for one in made.placed if made.placed is not None else ():
            if first <= int(one["offset"]) < last:
                for cell in range(first // 8192, last // 8192):
                    of_site = found.setdefault(cell, {})
                    of_site[int(one["site"])] = of_site.get(int(one["site"]), 0) + 1
    return found


def test_the_holders_of_each_cell(sites_page: Path) -> None:
    """The sites of a span's objects, in each of the span's cells, and how many of each."""
    page, recording = Page(sites_page.read_text(encoding="utf-8")), with_sites()
    peak = [one.id for one in recording.live_sites("go")]  # stacks are in this order
    assert len(peak) == 12
    rows: dict[int, list[int]] = {}
    seen = 0
    for frame in page.data("frames")["frames"]:
        is_peak = frame["at"] == "peak-resident"
        at = frame["at"] if is_peak else f"#{frame['op']}"
        wanted = objects_by_cell(recording, at)
        sites = [one.id for one in recording.live_sites("go", at)]
        shown = [peak[stack] for stack in frame["stacks"]]
        assert set(shown) == set(sites) and (shown == sites or not is_peak)
        for site, text in zip([*shown, 0], frame["counts"], strict=True):
            more = unpacked(text)
            before = rows.get(site, [0] * len(more))
            rows[site] = [(one + two) % 256 for one, two in zip(before, more, strict=True)]
            counts = [wanted.get(cell, {}).get(site, 0) for cell in range(len(more))]
            assert rows[site] == [min(count, 255) for count in counts]
            seen += sum(counts)
    assert seen > 1000


def test_runs_of_equal_values_are_short() -> None:
    """Runs at the limits of a control byte, without and with repetition."""
    rng = np.random.default_rng(3)
    runs = np.concatenate([[1, 2, 3, 4, 128, 129, 130, 131, 258, 259], rng.integers(1, 9, 200)])
    for values in (np.repeat(rng.integers(0, 250, len(runs)), runs), np.arange(250), [7], [5, 5]):
        made = np.array(values, np.uint8)
        assert unpacked(packed(made)) == made.tolist()
    assert len(base64.b64decode(packed(np.zeros(8192, np.uint8)))) <= 64 * 2


def test_counts_are_differences_from_an_earlier_moment() -> None:
    """By hand: 3 becomes 1 and then 255, modulo 256; the second site is not in the second row."""
    before: dict[int, Any] = {}
    row = partial(np.array, dtype=np.uint8)
    moments = {7: row([3, 0]), 9: row([2, 2])}, {7: row([1, 0])}, {9: row([2, 5]), 7: row([255, 0])}
    made = [[unpacked(text) for text in changed_rows(rows, before)] for rows in moments]
    assert made == [[[3, 0], [2, 2]], [[254, 0]], [[0, 3], [254, 0]]]


def test_sites_that_are_merged_hold_cells_together() -> None:
    """Sites 1 and 2 have the same name, and site 4 the frames of site 3."""
    live = with_sites().live_sites("go")
    names = {1: ("a",), 2: ("a",), 3: ("b",)}
    kept = [replace(one, names=names[one.id]) for one in live.sites if one.id in names]
    named = replace(live, sites=tuple(kept))
    merged = named.merged()
    every = [sw.Site(one, 1, 1, (f"0x{one}",), names.get(one, ())) for one in range(1, 4)]
    every += [sw.Site(4, 1, 1, ("0x3",), ("b",))]
    data = StackData(merged, 15, allocated=(every,))
    a = [one.names for one in merged.sites].index(("a",))
    assert data.stack_of == {1: a, 2: a, 3: 1 - a, 4: 1 - a}


def test_long_names_are_cut_in_the_middle() -> None:
    """By hand: 79 characters, an ellipsis and the last 40."""
    name = "a" * 100 + "b" * 60 + " (file.cc:12)"
    live = with_sites().live_sites("go")
    live = replace(live, sites=(replace(live.sites[0], names=(name, "main (a.c:1)")),))
    (site,) = facts_of.short_names(live).sites
    assert site.names == ("a" * 79 + "…" + "b" * 27 + " (file.cc:12)", "main (a.c:1)")


@needs_browser
def test_map_sites_and_time_line_are_linked(sites_page: Path, tmp_path: Path) -> None:
    script = """
    const find = (name) => document.getElementById(name);
    const canvas = find("map"), slider = find("when"), timeline = find("timeline");
    const rows = [...document.querySelectorAll("#call-sites tbody tr")];
    const pixels = () => canvas.getContext("2d").getImageData(0, 0, canvas.width, 4).data.join();
    const selected = () => rows.map((row, i) => (row.classList.contains("selected") ? i : -1))
        .filter((i) => i >= 0);
    const at = (cell) => {
        const box = canvas.getBoundingClientRect(), scale = box.width / canvas.width;
        return { clientX: box.left + (4 * cell + 2) * scale, clientY: box.top + 2 * scale };
    };
    const press = (kind, x) => {
        const { left, top, width } = timeline.getBoundingClientRect();
        const place = { clientX: left + (width * x) / 820, clientY: top + 9 };
        timeline.dispatchEvent(new PointerEvent(kind, place));
    };
    timeline.setPointerCapture = () => {};
    const before = pixels();
    rows[2].querySelector("button.link").click();
    output = { site: [find("holders").textContent, selected()] };
    output.paler = pixels() !== before;
    find("holders").querySelector("button").click();
    output.all = [pixels() === before, selected()];
    canvas.dispatchEvent(new MouseEvent("click", at(1)));
    output.cell = [[...find("holders").children].map((one) => one.textContent), selected()];
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
    output.next = find("holders").firstChild.textContent;
    press("pointerdown", 200);
    press("pointermove", 300);
    press("pointerup", 400);
    output.brushed = Number(slider.value);
    const press0 = (row) => row.cells[0].click();
    canvas.dispatchEvent(new MouseEvent("click", at(1)));
    const now = [...document.querySelectorAll("#call-sites tbody tr")];
    output.early = [find("holders").textContent, find("holders").children.length,
        Number(slider.value),
        now.filter((row) => row.classList.contains("selected")).map((row) => row.innerText)];
    press0(now[1]);
    output.row = [find("holders").textContent, find("flame-search")?.value ?? ""];
    press0(now[1]);
    output.again = find("holders").textContent;
    timeline.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
    output.key = Number(slider.value);
    timeline.dispatchEvent(new PointerEvent("pointermove", { clientX: 9999 }));
    output.pointed = [find("pointed").textContent];
    timeline.dispatchEvent(new PointerEvent("pointerleave"));
    output.pointed.push(find("pointed").textContent);
    const brush = timeline.querySelector(".brush");
    output.brush = [brush.getAttribute("y"), brush.getAttribute("height")];
    press("pointerdown", FROM);
    press("pointerup", TO);
    output.between = Number(slider.value);
    """
    frames = Page(sites_page.read_text(encoding="utf-8")).data("frames")["frames"]
    x, after = (frames[i]["x"] for i in (5, 6))
    ends = [str(x + share * (after - x)) for share in (0.8, 0.9)]
    output = probe(tmp_path, sites_page, script.replace("FROM", ends[0]).replace("TO", ends[1]))
    assert output["between"] == 5  # the heap is as it was before the interval
    sites = [one.id for one in with_sites().live_sites("go")]
    wanted = objects_by_cell(with_sites())
    held = sum(sites[2] in of_site for of_site in wanted.values())
    assert output["site"][0].startswith(f"{held} of ") and output["site"][1] == [2]
    assert output["paler"] and output["all"] == [True, []]
    counts = sorted(wanted[1].values(), reverse=True)
    assert [int(one.split(" of ")[0]) for one in output["cell"][0]] == counts
    assert output["cell"][1] == [i for i, site in enumerate(sites) if site in wanted[1]]
    assert "the cell at 16.0 KiB" in output["next"]
    inside = [i for i, one in enumerate(frames) if 200 <= one["x"] <= 400]
    assert output["brushed"] in inside
    assert frames[output["brushed"]]["resident"] == max(frames[i]["resident"] for i in inside)
    # All follow the moment: the map's cell, the sites in it, and the spans of a site.
    op = frames[output["brushed"]]["op"]
    early = objects_by_cell(with_sites(), f"#{op}")
    said, count, moment, chosen = output["early"]
    assert moment == output["brushed"] and len(chosen) == count == len(early[1]) > 1
    assert said.startswith("Objects in the spans of the cell at 8.0 KiB, at ")
    assert sorted(map(int, re.findall(r"(\d+) of ", said))) == sorted(early[1].values())
    second = [one.id for one in with_sites().live_sites("go", f"#{op}")][1]
    held = sum(second in of_site for of_site in early.values())
    assert output["row"][0].startswith(f"{held} of ") and "at the peak" not in output["row"][0]
    assert output["again"].startswith("Click on a cell") and output["key"] == moment - 1
    last = with_sites().ledger("go", "end")
    assert f"requested {_format.size(last.requested_bytes)}" in output["pointed"][0]
    assert f"held {_format.size(last.held_bytes)}" in output["pointed"][0]
    assert output["pointed"][1] != output["pointed"][0]
    timeline = with_sites().timeline("go", samples=80, detail="parts")
    shown = float(output["pointed"][1].split(" ")[0]) * 1e9
    row = timeline[np.argmin(np.abs(timeline["time_ns"] - shown))]
    assert f"requested {_format.size(int(row['requested_bytes']))}" in output["pointed"][1]
    assert output["brush"] == ["24", "226"]


@needs_browser
def test_charts_fit_a_phone(sites_page: Path, tmp_path: Path) -> None:
    """At 400 pixels nothing scrolls sideways, and an interval of the narrow time line selects."""
    script = """
    const isShown = (one) => one.getClientRects().length > 0;
    const parts = [...document.querySelectorAll(".wide, .narrow, section")].filter(isShown);
    const charts = [...document.querySelectorAll(".timeline")];
    const timeline = charts.find(isShown), box = timeline.getBoundingClientRect();
    timeline.setPointerCapture = () => {};
    const press = (kind, x) => timeline.dispatchEvent(new PointerEvent(kind,
        { clientX: box.left + (box.width * x) / 376, clientY: box.top + 40 }));
    press("pointerdown", 130);
    press("pointermove", 150);
    press("pointerup", 200);
    output = {
        over: parts.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText),
        wide: document.documentElement.scrollWidth,
        cut: [...document.querySelectorAll("main svg text")].filter(isShown).filter((one) => {
            const [text, all] = [one, one.closest("svg")].map((two) => two.getBoundingClientRect());
            return text.left < all.left - 1 || text.right > all.right + 1;
        }).map((one) => one.textContent),
        shown: [charts.length, charts.indexOf(timeline)],
        brushed: Number(document.getElementById("when").value),
        line: Number(timeline.querySelector(".now").getAttribute("x1")),
        text: [...document.querySelectorAll("main svg text")].filter(isShown)
            .map((one) => one.getBoundingClientRect().height).sort((a, b) => a - b)[0],
    };
    """
    output = probe(tmp_path, sites_page, script, width=400)
    assert output["over"] == output["cut"] == [] and output["wide"] <= 400
    assert output["shown"] == [2, 1] and output["text"] > 10  # legible: 12 pixels
    frames = Page(sites_page.read_text(encoding="utf-8")).data("frames")["frames"]

    def narrow(x: float) -> float:
        return 52 + (x - 64) * (362 - 52) / (794 - 64)

    inside = [i for i, one in enumerate(frames) if 130 <= narrow(one["x"]) <= 200]
    assert output["brushed"] in inside
    assert output["line"] == pytest.approx(narrow(frames[output["brushed"]]["x"]), abs=0.01)


@needs_browser
def test_all_sections_follow_the_time_line(named_page: Path, tmp_path: Path) -> None:
    """By hand: after the second operation sites 1 and 2 live, in slots of 8 and 16 bytes."""
    script = """
    const find = (name) => document.getElementById(name);
    const timeline = find("timeline");
    timeline.setPointerCapture = () => {};
    const press = (kind, x) => {
        const { left, top, width } = timeline.getBoundingClientRect();
        const place = { clientX: left + (width * x) / 820, clientY: top + 9 };
        timeline.dispatchEvent(new PointerEvent(kind, place));
    };
    const table = () => [...document.querySelectorAll("#call-sites tbody tr")].map((row) =>
        [...row.cells].map((cell, i) => (i < 4 ? cell.textContent : cell.firstChild.data)));
    const boxes = () => [...document.querySelectorAll("#size-chart .live")]
        .filter((box) => Number(box.getAttribute("height")) > 0).map((box) => box.textContent);
    const root = () => document.querySelector("#flame g").getAttribute("aria-label");
    const look = () => [table(), boxes(), root(), document.querySelector(".when").textContent];
    document.getElementById("flame-of").value = "requested";
    document.getElementById("flame-of").dispatchEvent(new Event("change"));
    output = { before: look() };
    press("pointerdown", 420);
    press("pointermove", 425);
    press("pointerup", 430);
    output.brushed = look();
    output.moment = find("shown").textContent;
    find("shown").querySelector("button").click();
    output.after = look();
    """
    output = probe(tmp_path, named_page, script)
    (table, boxes, root, when), where = output["brushed"], " at 1.000 us"
    assert when == "at 1.000 us" and output["moment"].startswith(
        "Sizes, heap map, call sites and flame graph show the heap at"
    )
    assert [row[2:4] for row in table] == [["2 B", "1"], ["12 B", "1"]]
    assert [row[4].split("\n")[0] for row in table] == ["leaf (a.c:1)", "leaf (a.c:1)"]
    assert boxes == [f"1 live in slots of {slot} B{where}" for slot in (8, 16)]
    assert root == "requested at 1.000 us\n14 B (14 bytes), 100.0 % of all"
    assert output["after"] == output["before"]
    assert output["before"][1] == [f"1 live in slots of {n} B at the peak" for n in (8, 16, 64)]
    assert output["before"][2].startswith("requested at peak-resident\n68 B (68 bytes)")


@needs_browser
def test_sizes_and_sites_are_linked(named_page: Path, tmp_path: Path) -> None:
    """By hand: 54 bytes of <other> are in a slot of 64, 2 of a leaf in one of 8."""
    script = """
    const chart = document.getElementById("size-chart"), said = document.getElementById("sizes-of");
    const boxes = () => [...chart.querySelectorAll(".live")]
        .filter((box) => Number(box.getAttribute("height")) > 0).map((box) => box.textContent);
    const selected = () => [...document.querySelectorAll("#call-sites tr.selected td:nth-child(3)")]
        .map((cell) => cell.textContent);
    const { left, top, width } = chart.querySelector("[data-slot='64']").getBoundingClientRect();
    chart.dispatchEvent(new MouseEvent("click", { clientX: left + width / 2, clientY: top }));
    output = { slot: [said.textContent, selected()] };
    said.querySelector("button").click();
    output.site = [said.textContent, selected(), boxes()];
    said.querySelectorAll("button")[1].click();
    output.all = [boxes().length, selected()];
    chart.dispatchEvent(new MouseEvent("click", { clientX: left + width / 2, clientY: top }));
    chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
    output.key = said.textContent;
    """
    output = probe(tmp_path, named_page, script)
    other = "<other> in libz.so.1 < middle (a.c:20) < main (a.c:90)"
    assert output["slot"][0].startswith("Live objects at the peak, slots of 64 B: 1 of <other>")
    assert output["slot"][1] == output["site"][1] == ["54 B"]
    assert output["site"][0] == f"Live objects at the peak, {other}: 1 in slots of 64 Bshow all"
    assert output["site"][2] == ["1 live in slots of 64 B at the peak"]
    assert output["all"] == [3, []] and "slots of 16 B: 1 of leaf" in output["key"]


def test_the_moments_are_those_of_live_sites() -> None:
    """Codes of each moment against a query of that moment; the peak's values are exact."""
    recording, table = with_sites(), sw.SizeClassTable.go()
    facts = facts_of.gather(recording, table, progress=None)
    data = StackData(facts.sites, 15, 200, allocated=(facts.allocated,), moments=facts.moments)
    made = data.to_dict()
    assert 24 <= len(made["moments"]) <= 25 and made["moments"][0]["at"] != made["at"]
    for one, shown in zip(facts.moments, made["moments"], strict=True):
        assert one.map.ledger.stats is not None
        at = f"#{one.map.ledger.stats.ops}"
        live, objects = recording.live_sites(table, at), recording.live_objects(table, at)
        assert shown["totals"][0] == live.ledger.waste_bytes
        codes = np.frombuffer(base64.b64decode(shown["codes"]), "<u2").reshape(-1, 7)
        wanted = np.zeros(codes.shape)
        for site in live:
            row = [site.waste_bytes, site.roundup_bytes, site.kept_free_bytes]
            row += [site.resident_bytes, site.requested_bytes, site.live_objects, 0]
            wanted[data.index[site.id]] = row
        assert 2.0 ** (codes / 1024) - 1 == pytest.approx(wanted, rel=5e-4)
        pairs = np.frombuffer(base64.b64decode(shown["pairs"]), "<u2").reshape(-1, 3).tolist()
        sums = dict.fromkeys(made["slots"], 0)
        for stack, slot, code in pairs:
            count = round(2 ** (code / 1024) - 1)
            ids = [site for site, row in data.index.items() if row == stack]
            mine = (objects.site == ids[0]) & (objects.slot_bytes == made["slots"][slot])
            assert count == mine.sum()
            sums[made["slots"][slot]] += count
        assert sum(sums.values()) == len(objects.site)


@needs_browser
def test_small_sites_have_no_row(tmp_path: Path) -> None:
    """By hand: 1,024 objects fill a span of 8,192 bytes, so two sites of one object have 8 each.

    While the span is not full each object keeps free slots, and their share is a thousandth.
    """
    ops = make_ops(*((0, i, 8) for i in range(1024)))
    ops["site"] = [1, 2, *[3] * 9, *[4] * 1013]
    page = tmp_path / "x.html"
    sw.Recording.from_ops(ops, name="mine").to_html(page, "go")
    script = """
    const look = () => [
        [...document.querySelectorAll("#call-sites tbody td:nth-child(3)")]
            .map((cell) => cell.textContent),
        document.getElementById("more-sites").textContent];
    const slider = document.getElementById("when");
    output = { peak: look() };
    slider.value = "0";
    slider.dispatchEvent(new Event("input"));
    output.early = look();
    """
    output = probe(tmp_path, page, script)
    assert output["peak"] == [
        ["72 B", "7.9 KiB"],
        "Other call sites: 0 B of waste, 16 B requested.",
    ]
    rows, others = output["early"]
    assert len(rows) == 4 and rows[-2:] == ["8 B", "8 B"] and others == ""


@needs_browser
def test_a_click_in_the_flame_graph_filters_the_other_sections(
    named_page: Path, tmp_path: Path
) -> None:
    """By hand: sites of 2 and 54 bytes go through middle; only the first lives after 1 us."""
    script = r"""
    const find = (name) => document.getElementById(name), timeline = find("timeline");
    timeline.setPointerCapture = () => {};
    const press = (kind, x) => {
        const { left, top, width } = timeline.getBoundingClientRect();
        timeline.dispatchEvent(new PointerEvent(kind,
            { clientX: left + (width * x) / 820, clientY: top + 9 }));
    };
    const names = () => [...document.querySelectorAll("#flame g")]
        .map((g) => g.getAttribute("aria-label").split("\n")[0]);
    const click = (name) => [...document.querySelectorAll("#flame g")]
        .find((g) => g.getAttribute("aria-label").startsWith(name)).querySelector("rect")
        .dispatchEvent(new MouseEvent("click", { bubbles: true }));
    const canvas = find("map");
    const pixel = (cell) => [...canvas.getContext("2d").getImageData(4 * cell + 2, 2, 1, 1).data];
    const look = () => ({
        sizes: [...document.querySelectorAll("#call-sites tbody td:nth-child(3)")]
            .map((cell) => cell.textContent),
        more: find("more-sites").textContent,
        boxes: [...document.querySelectorAll("#size-chart .live")]
            .filter((box) => Number(box.getAttribute("height")) > 0).map((box) => box.dataset.slot),
        map: find("holders").textContent, flame: names(), through: find("through").textContent,
        classes: [...find("sizes-of").children].map((one) => one.textContent),
        pixels: [0, 1, 2].map((cell) => pixel(cell).join()),
    });
    const set = (name, key, value) => {
        find(name)[key] = value;
        find(name).dispatchEvent(new Event("change"));
    };
    set("flame-of", "value", "requested");
    output = { whole: look() };
    click("middle");
    output.middle = look();
    press("pointerdown", 420);
    press("pointerup", 430);
    output.early = look();
    find("more-sites").querySelector("button").click();
    output.all = look();
    find("shown").querySelector("button").click();
    set("flame-view", "value", "inverted");
    click("leaf");
    output.leaf = look();
    document.querySelector("#call-sites tbody tr").click();
    output.site = look();
    click("leaf");
    set("flame-view", "value", "icicle");
    output.icicle = look();
    """
    output = probe(tmp_path, named_page, script)
    whole, middle, early, leaf = (output[name] for name in ("whole", "middle", "early", "leaf"))
    assert whole["sizes"] == ["2 B", "12 B", "54 B"] and whole["boxes"] == ["8", "16", "64"]
    assert whole["more"] == whole["through"] == ""
    assert middle["sizes"] == ["2 B", "54 B"] and middle["boxes"] == ["8", "64"]
    name = "calls through middle (a.c:20)"
    assert middle["more"] == f"Only {name}. show all "
    assert middle["through"] == f"Selected: {name}. call sites heap map sizes show all"
    assert re.match(
        rf"2 of \d+ cells are of spans with objects of {re.escape(name)} at the peak", middle["map"]
    )
    assert middle["classes"] == ["1 in slots of 8 B", "1 in slots of 64 B", "show all"]
    same = [one == two for one, two in zip(whole["pixels"], middle["pixels"], strict=True)]
    assert same == [True, False, True]  # the span of site 2 is pale
    assert "main (a.c:91)" in whole["flame"] and "main (a.c:91)" not in middle["flame"]
    # Another moment keeps the zoom and the filter.
    assert early["sizes"] == ["2 B"] and early["boxes"] == ["8"]
    assert "main (a.c:91)" not in early["flame"] and "middle (a.c:20)" in early["flame"]
    assert output["all"]["sizes"] == ["2 B", "12 B"] and output["all"]["through"] == ""
    assert "main (a.c:91)" in output["all"]["flame"]
    # In an inverted graph, the calls of a function; a click on a row selects its site only.
    assert leaf["sizes"] == ["2 B", "12 B"] and leaf["boxes"] == ["8", "16"]
    assert output["site"]["sizes"] == whole["sizes"] and output["site"]["boxes"] == ["8"]
    assert output["icicle"]["sizes"] == whole["sizes"] and output["icicle"]["through"] == ""
