# SPDX-License-Identifier: Apache-2.0
"""Flame graphs in a browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import spanwise as sw
from spanwise.report import export

from tests.python.browser import browse, needs_browser, probe
from tests.python.helpers import make_ops


@needs_browser
def test_the_flame_graph_zooms_and_searches(named_page: Path, tmp_path: Path) -> None:
    """By hand: 16 of 20 bytes go through line 90, and 10 were allocated by leaf."""
    script = r"""
    const find = (name) => document.getElementById("flame-" + name);
    const set = (name, key, value, event) => {
        find(name)[key] = value;
        find(name).dispatchEvent(new Event(event));
    };
    const groups = () => [...document.querySelectorAll("#flame g")];
    const width = (g) => Number(g.querySelector("rect").getAttribute("width"));
    const look = () => groups().map((g) => {
        const [name, bytes] = g.getAttribute("aria-label").split("\n");
        return [name, Number(/\((\d+) bytes/.exec(bytes)[1]), Math.round(width(g) / unit)];
    });
    const unit = (width(groups()[0]) + 0.5) / 20;
    const click = (name) => {
        const g = groups().find((one) => one.getAttribute("aria-label").startsWith(name));
        g.querySelector("rect").dispatchEvent(new MouseEvent("click", { bubbles: true }));
    };
    const search = (text) => {
        set("search", "value", text, "input");
        return [find("share").textContent, document.querySelectorAll("#flame .match").length];
    };
    set("of", "value", "round-up", "change");
    output = { whole: look(), found: ["LEAF", "c:90", "^other", "("].map(search) };
    click("middle");
    output.zoomed = look();
    find("reset").click();
    output.reset = look();
    set("view", "value", "inverted", "change");
    output.inverted = look();
    set("view", "value", "icicle", "change");
    set("hide", "checked", true, "change");
    output.hidden = look();
    const focused = () => document.activeElement.getAttribute("aria-label").split("\n")[0];
    const press = (key) => document.activeElement.dispatchEvent(
        new KeyboardEvent("keydown", { key, bubbles: true }));
    document.querySelector('#flame [tabindex="0"]').focus();
    output.keys = ["ArrowDown", "ArrowRight", "ArrowLeft", "Enter", "Escape"].map((key) => {
        press(key);
        return focused();
    });
    set("merge", "checked", true, "change");
    output.merged = [look(), search("main")];
    set("of", "value", "allocations", "change");
    output.allocations = groups().map((g) => g.getAttribute("aria-label"));
    """
    output = probe(tmp_path, named_page, script)
    root, start = ["round-up at peak-resident", 20, 20], ["_start in a", 20, 20]
    other = "<other> in libz.so.1"
    below = [
        ["main (a.c:90)", 16, 16],
        ["middle (a.c:20)", 16, 16],
        [other, 10, 10],
        ["leaf (a.c:1)", 6, 6],
        ["main (a.c:91)", 4, 4],
        ["leaf (a.c:1)", 4, 4],
    ]
    assert output["whole"] == output["reset"] == [root, start, *below]
    assert output["hidden"] == [root, *below]
    assert output["keys"] == [below[0][0], below[4][0], below[0][0], below[0][0], root[0]]
    merged, found = output["merged"]  # lines 90 and 91 of main are one box, and so are the leaves
    assert merged[1] == ["main (a.c)", 20, 20] and found == ["matched 100.0 % (20 B)", 1]
    assert [one[0] for one in merged[2:]] == ["middle (a.c)", other, "leaf (a.c)", "leaf (a.c)"]
    assert output["allocations"][0] == "allocations\n3, 100.0 % of all"
    assert output["found"] == [
        ["matched 50.0 % (10 B)", 2],
        ["matched 80.0 % (16 B)", 1],
        ["matched 0.0 % (0 B)", 0],
        ["invalid regular expression", 0],
    ]
    assert output["zoomed"] == [
        root,
        start,
        ["main (a.c:90)", 16, 20],
        ["middle (a.c:20)", 16, 20],
        [other, 10, 12],  # 10 / 16 of the width is 12.5 of 20; half a pixel less
        ["leaf (a.c:1)", 6, 7],
    ]
    assert [one[:2] for one in output["inverted"] if one[0] in (other, "leaf (a.c:1)")] == [
        [other, 10],
        ["leaf (a.c:1)", 10],
    ]


@needs_browser
def test_the_difference_of_two_recordings(tmp_path: Path) -> None:
    """By hand: a grows from 10 to 30 bytes, b of 20 ends, c of 5 begins."""
    both: list[sw.LiveSites] = []
    for sizes in ({1: 10, 2: 20}, {1: 30, 3: 5}):
        ops = make_ops(*((0, i, size) for i, size in enumerate(sizes.values())))
        ops["site"] = list(sizes)
        live = sw.Recording.from_ops(ops, name=f"{len(both)}.swt").live_sites("go")
        sites = (replace(s, names=("?abc"[s.id], "main"), frames=("0x1",)) for s in live.sites)
        both.append(replace(live, sites=tuple(sites)))
    page = tmp_path / "x.html"
    said = export.write_flame(both[1], page, "requested", both[0])
    assert said == "35 B requested at peak-resident of 1.swt under go, 30 B in 0.swt"
    counts = ((1, 2), (4, 0, 8))  # allocations of a and b, then of a, b and c
    allocated = [
        [sw.Site(i, count, 99, ("0x1",), ("?abc"[i], "main")) for i, count in enumerate(one, 1)]
        for one in counts
    ]
    export.write_flame(both[1], page, "requested", both[0], allocated[::-1])
    script = """
    const of = document.getElementById("flame-of"), chosen = of.value;
    of.value = "allocations";
    of.dispatchEvent(new Event("change"));
    const allocations = [...document.querySelectorAll("#flame g")]
        .map((g) => g.getAttribute("aria-label").split("\\n")[1]);
    of.value = chosen;
    of.dispatchEvent(new Event("change"));
    output = [...document.querySelectorAll("#flame g")].map((g) => [
        g.getAttribute("aria-label").split("\\n"), g.querySelector("rect").classList[1],
        Number(g.querySelector("rect").getAttribute("width")), g.lastChild.textContent]);
    output.unshift(allocations);
    """
    allocations, *output = probe(tmp_path, page, script)
    assert allocations == [
        *["3 before, 12 now: +9 (300.0 %)"] * 2,
        "0 before, 8 now: +8",
        "1 before, 4 now: +3 (300.0 %)",
        "2 before, 0 now: -2 (-100.0 %)",
    ]
    assert [(*label, shade) for label, shade, _, _ in output[1:]] == [
        ("main", "30 B before, 35 B (35 bytes) now: +5 B (16.7 %)", "more-1"),
        ("a", "10 B before, 30 B (30 bytes) now: +20 B (200.0 %)", "more-3"),
        ("b", "20 B before, 0 B (0 bytes) now: -20 B (-100.0 %)", "less-4"),
        ("c", "0 B before, 5 B (5 bytes) now: +5 B", "more-4"),
    ]
    whole = output[0][2] + 0.5
    assert [round(55 * (one[2] + 0.5) / whole) for one in output[1:]] == [55, 30, 20, 5]
    assert [one[3][:1] for one in output[1:]] == ["▲", "▲", "▼", "▲"]
    assert "more-3" in browse(tmp_path, page)  # the policy lets the page's script run
    assert 'id="flame-merge" type="checkbox" checked' in page.read_text(encoding="utf-8")
    assert probe(tmp_path, page, "output = document.documentElement.scrollWidth;", 400) == 400


@needs_browser
def test_names_fit_their_boxes(named_page: Path, tmp_path: Path) -> None:
    """Names are cut to the width of their box; wide letters such as m too."""
    script = r"""
    const find = (name) => document.getElementById("flame-" + name);
    data.names.forEach((name, i) => { data.names[i] = name.replace("leaf", "m".repeat(200)); });
    find("hide").dispatchEvent(new Event("change"));
    output = [...document.querySelectorAll("#flame g")].filter((g) => g.querySelector("text"))
        .map((g) => [g.lastChild.textContent, g.lastChild.getBBox().width,
            g.querySelector("rect").getBBox().width]);
    """
    output = probe(tmp_path, named_page, script)
    assert all(text <= box - 3 for _, text, box in output)
    cut = [(name, text, box) for name, text, box in output if name.startswith("mm")]
    assert len(cut) == 2
    assert all(name.endswith("m…") and text > box - 25 for name, text, box in cut)


@needs_browser
def test_a_site_is_found_in_the_flame_graph(named_page: Path, tmp_path: Path) -> None:
    script = """
    const rows = [...document.querySelectorAll("#call-sites tbody tr")];
    const row = rows.find((one) => one.textContent.includes("other"));
    const look = () => [document.getElementById("flame-search").value,
        document.querySelector("#flame .match").previousSibling.textContent.split("\\n")[0]];
    row.querySelector("button.link").click();
    output = [look()];
    rows.find((one) => one !== row).querySelector("button.link").click();
    output.push(look());
    document.getElementById("flame-merge").click();
    output.push(look());
    """
    assert probe(tmp_path, named_page, script) == [
        ["^<other> in libz\\.so\\.1$", "<other> in libz.so.1"],
        ["^leaf \\(a\\.c:1\\)$", "leaf (a.c:1)"],
        ["^leaf \\(a\\.c\\)$", "leaf (a.c)"],
    ]
