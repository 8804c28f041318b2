# SPDX-License-Identifier: Apache-2.0
"""Widgets: the heap map, whose cells equal the maps, and sliders that redraw a picture."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import spanwise as sw
from spanwise import plots
from spanwise.plots import widget

from tests.python.browser import in_frame, needs_anywidget, needs_browser, page_of, seen_in
from tests.python.helpers import random_ops

RECORDING = sw.Recording.from_ops(random_ops(9, 4000), name="mine")
SCRIPT = Path(plots.__file__).with_name("widget.js")
PROBE = """
const el = document.getElementById("here"), seen = [];
const end = widget.render({ model, el });
const canvas = el.querySelector("canvas"), slider = el.querySelector("input");
function look() {
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    let sum = 0;
    data.forEach((value, i) => { sum = (sum * 31 + value * (i % 97 + 1)) % 2147483647; });
    for (let i = 0; i < data.length; i += 4)
        colours.add(data[i] * 65536 + data[i + 1] * 256 + data[i + 2]);
    const texts = [...el.querySelectorAll("div")].map((one) => one.textContent);
    const button = el.querySelector("button").textContent;
    const view = canvas.dataset.view, frame = state.frame;
    seen.push({ frame, view, sum, texts, colours: [...colours], button });
}
const box = canvas.getBoundingClientRect();
const at = (x, y) => ({ clientX: box.left + x * box.width, clientY: box.top + y * box.height });
look();
slider.value = "0";
slider.dispatchEvent(new Event("input"));
look();
for (let i = 0; i < 8; i++)
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -1, cancelable: true, ...at(0.5, 0) }));
look();
canvas.dispatchEvent(new PointerEvent("pointermove", at(0.001, 0.001)));
canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
look();
canvas.dispatchEvent(new Event("dblclick"));
canvas.dispatchEvent(new PointerEvent("pointermove", at(0.001, 0.001)));
look();
const choice = el.querySelector("select");
choice.selectedIndex = 1;
choice.dispatchEvent(new Event("change"));
look();
el.querySelector("button").click();
look();
setTimeout(() => {
    look();
    end();
    const key = [...el.querySelectorAll("p span span")].map((one) => one.style.background);
    const options = [...choice.options].map((one) => one.textContent);
    seen.push({ saved: model.saved, left: Object.keys(heard).length, key, options });
    document.body.dataset.seen = JSON.stringify(seen);
}, 5000);
"""


@needs_anywidget
def test_cells_are_the_maps() -> None:
    """A page of the table is a cell: its byte is taken from the tiles one by one."""
    maps = RECORDING.maps("go", samples=5)
    widget = plots.map_widget(maps)
    (about,) = widget.maps
    cells = np.frombuffer(widget.cells, np.uint8).reshape(len(maps), -1)
    assert about["cell_bytes"] == 8192 and about["count"] == cells.shape[1]
    assert about["count"] <= about["width"] * about["height"]
    assert [m.ledger.at for m in maps].index("peak-resident") == widget.frame
    assert [text.startswith("peak: ") for text in about["moments"]].count(True) == 1
    for found, one in zip(cells.astype(int), maps, strict=True):
        wanted = np.full(len(found), 255)
        for tile in one.array:
            first, count = int(tile["offset"]) // 8192, int(tile["bytes"]) // 8192
            code = {0: 100 * int(tile["live"]) / max(int(tile["slots"]), 1), 1: 101, 2: 102}
            wanted[first : first + count] = round(code[int(tile["kind"])])
        assert (np.abs(found - wanted) <= 1).all()
        exact = wanted > 100
        assert (found[exact] == wanted[exact]).all() and (found[~exact] <= 100).all()


@needs_anywidget
def test_a_front_end_without_widgets_gets_the_picture() -> None:
    data, _ = plots.map_widget(RECORDING.maps("go", samples=2))._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert "heap map of mine" in data["text/plain"] and plt.get_fignums() == []


def test_without_anywidget_there_is_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    from spanwise.plots import widget  # noqa: PLC0415  only here

    monkeypatch.setitem(sys.modules, "anywidget", None)  # its import fails
    widget._widget_type.cache_clear()
    still = plots.map_widget(RECORDING.maps("go", samples=2))
    assert still.shown.ledger.at == "peak-resident"
    assert still._repr_png_().startswith(b"\x89PNG") and plt.get_fignums() == []
    assert "pip install 'spanwise[widget]'" in repr(still)


def test_what_cannot_be_shown() -> None:
    with pytest.raises(sw.InvalidError, match="no map to draw"):
        plots.map_widget([])
    with pytest.raises(sw.InvalidError, match="no map to draw"):
        plots.map_widget({"go": []})
    with pytest.raises(sw.InvalidError, match="this map has no times of allocation"):
        plots.map_widget(RECORDING.maps("go", samples=2), by="age")
    with pytest.raises(sw.InvalidError, match="use one of occupancy, age, touched"):
        plots.map_widget(RECORDING.maps("go", samples=2), by="size")


@needs_anywidget
def test_an_empty_heap_has_one_cell() -> None:
    with sw.Heap("go", dry=True) as heap:
        widget = plots.map_widget([heap.map()])
    assert widget.maps[0]["count"] == 1 and widget.cells == b"\xff"


@needs_anywidget
@needs_browser
def test_the_script_in_a_browser(tmp_path: Path) -> None:
    tables = {table: RECORDING.maps(table, samples=5) for table in ("go", "pow2")}
    widget = plots.map_widget(tables)
    state = json.dumps({"maps": widget.maps, "table": 0, "frame": widget.frame})
    binary = {"cells": widget.cells, "palette": widget.palette}
    page = page_of(SCRIPT, state, binary, PROBE)
    first, scrubbed, zoomed, moved, whole, other, playing, played, ended = seen_in(page, tmp_path)
    moments = widget.maps[0]["moments"]
    # The slider changes the moment, its text and the picture, and notifies the notebook.
    assert first["frame"] == widget.frame and first["texts"][1] == moments[widget.frame]
    assert scrubbed["frame"] == 0 and scrubbed["texts"][1] == moments[0]
    assert first["sum"] != scrubbed["sum"] and len(first["colours"]) > 3
    # The wheel zooms about the pointer: 1.25 to the eighth, at the middle of the upper edge.
    assert first["view"] == scrubbed["view"] == "1.0000 0.0000 0.0000"
    part = 1 / 1.25**8
    assert zoomed["view"] == f"{1.25**8:.4f} {0.5 - part / 2:.4f} 0.0000"
    assert zoomed["sum"] != scrubbed["sum"]
    assert moved["view"] == f"{1.25**8:.4f} {0.5 - 0.6 * part:.4f} 0.0000"
    # The text describes the cell under the pointer, which is the first cell without zoom.
    assert whole["view"] == first["view"] and whole["sum"] == scrubbed["sum"]
    code = widget.cells[0]
    kinds = {101: "a large object", 102: "free pages, held", 255: "not held"}
    assert whole["texts"][2] == f"0 B: {kinds.get(code, f'{code} %')}"
    assert moved["texts"][2] != whole["texts"][2]
    # The other table's map is another one; playing ends at its last moment.
    assert other["frame"] == 0 and "table pow2" in other["texts"][0] != first["texts"][0]
    assert other["sum"] != whole["sum"] and other["button"] == "▶ play"
    last = len(widget.maps[1]["moments"]) - 1
    assert playing["button"] == "❚❚ pause" and playing["frame"] == 0
    assert played["frame"] == last and played["button"] == "▶ play"
    assert played["texts"][1] == widget.maps[1]["moments"][last]
    assert ended["left"] == 0 and ended["saved"] == 2 + last
    # The key has the colours of the palette.
    red, green, blue = widget.palette[3 * 101 : 3 * 102]
    assert len(ended["key"]) == 4 and f"rgb({red}, {green}, {blue})" in ended["key"][1]
    assert ended["options"] == ["go", "pow2"]


FRAMED = """
const el = document.getElementById("here");
const end = widget.render({ model, el });
const canvas = el.querySelector("canvas"), choice = el.querySelector("select");
const background = getComputedStyle(document.body).backgroundColor;
const texts = () => [...el.querySelectorAll("div")].map((one) => one.textContent);
const colours = [...el.querySelectorAll("div, p")].map((one) => getComputedStyle(one).color);
const right = [...el.querySelectorAll("*")].map((one) => one.getBoundingClientRect().right);
const seen = { origin, background, colours, right: Math.max(...right), first: texts() };
seen.wide = document.documentElement.scrollWidth;
seen.canvas = canvas.getBoundingClientRect().width;
choice.selectedIndex = 1;
choice.dispatchEvent(new Event("change"));
el.querySelector("button").click();
setTimeout(() => {
    end();
    done({ ...seen, frame: state.frame, last: texts(), saved: model.saved });
}, 5000);
"""
DARK = """
:root { color-scheme: dark; }
body { background: #1e1e1e; color: #cccccc; margin: 0; }
"""
"""As VS Code's dark theme."""


@needs_anywidget
@needs_browser
def test_the_widget_in_a_dark_sandbox_of_400_pixels(tmp_path: Path) -> None:
    tables = {table: RECORDING.maps(table, samples=5) for table in ("go", "pow2")}
    widget = plots.map_widget(tables)
    state = json.dumps({"maps": widget.maps, "table": 0, "frame": widget.frame})
    binary = {"cells": widget.cells, "palette": widget.palette}
    page = in_frame(SCRIPT, state, binary, FRAMED, width=400, style=DARK)
    seen = seen_in(page, tmp_path)
    assert seen["origin"] == "null"  # the frame has no access to the page
    assert seen["background"] == "rgb(30, 30, 30)"
    assert set(seen["colours"]) == {"rgb(204, 204, 204)"}  # the host's
    assert seen["wide"] <= 400 and seen["right"] <= 400 and 300 < seen["canvas"] <= 400
    assert seen["first"][1] == widget.maps[0]["moments"][widget.frame]
    # It plays the other table to its last moment.
    moments = widget.maps[1]["moments"]
    assert seen["frame"] == len(moments) - 1 and seen["last"][1] == moments[-1]
    assert "table pow2" in seen["last"][0] and seen["saved"] > 1


# --- sliders --------------------------------------------------------------------------------------


SLIDERS = Path(plots.__file__).with_name("sliders.js")
SLIDERS_PROBE = """
const el = document.getElementById("here"), seen = [];
const end = widget.render({ model, el });
const [first, second] = el.querySelectorAll("input"), image = el.querySelector("img");
const look = () => seen.push({ chosen: state.chosen, alt: image.alt, url: image.src });
look();
second.value = "0";
second.dispatchEvent(new Event("input"));
look();
model.set("picture", state.other);
look();
end();
seen.push({ saved: model.saved, left: Object.keys(heard).length });
await image.decode();
done([...seen, { width: image.naturalWidth, exported: Object.keys(widget) }]);
"""


def _drawing(drawn: list[tuple[str, int]]) -> Any:
    def draw(name: str, count: int = 2, file_count: int = 2) -> Any:
        drawn.append((name, count))
        ax = plots.new_axes(1, 1)
        ax.plot(range(count + file_count))
        return ax

    return draw


@needs_anywidget
def test_each_picture_is_drawn_once_when_it_is_chosen() -> None:
    drawn: list[tuple[str, int]] = []
    widget = plots.explore(_drawing(drawn), name=["a", "b"], count=range(2, 5))
    assert drawn == [("b", 3)] and widget.labels == [["name", ["a", "b"]], ["count", list("234")]]
    pictures = [widget.picture]
    for chosen in ([0, 1], [0, 2], [1, 1]):
        widget.chosen = chosen
        pictures.append(widget.picture)
    assert drawn == [("b", 3), ("a", 3), ("a", 4)]
    assert pictures[0] == pictures[1] == pictures[3] != pictures[2]  # the name is not drawn
    data, _ = widget._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert base64.b64decode(data["image/png"]) == pictures[3] and plt.get_fignums() == []


def test_without_anywidget_there_is_the_middle_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)  # its import fails
    widget._widget_type.cache_clear()
    drawn: list[tuple[str, int]] = []
    still = plots.explore(_drawing(drawn), name=["a"], count=[2, 3, 4])
    assert still._repr_png_().startswith(b"\x89PNG") and drawn == [("a", 3)]
    assert repr(still).startswith("<picture of name a, count 3>") and plt.get_fignums() == []


def test_nothing_to_choose() -> None:
    nothing: list[dict[str, list[int]]] = [{}, {"count": []}]
    for choices in nothing:
        with pytest.raises(sw.InvalidError, match="at least one parameter"):
            plots.explore(_drawing([]), **choices)


@needs_anywidget
@needs_browser
def test_the_sliders_in_a_browser(tmp_path: Path) -> None:
    """A slider changes the index of its value; a picture from the kernel replaces the old one."""
    widget = plots.explore(_drawing([]), name=["a", "b"], file_count=[2, 3])
    state = {"labels": widget.labels, "chosen": widget.chosen}
    binary = {"picture": widget.picture}
    widget.chosen = [1, 0]
    binary["other"] = widget.picture
    page = in_frame(SLIDERS, json.dumps(state), binary, SLIDERS_PROBE, width=700, style="")
    first, moved, redrawn, ended, image = seen_in(page, tmp_path)
    assert (first["chosen"], first["alt"]) == ([1, 1], "name: b, file count: 3")
    assert (moved["chosen"], moved["alt"]) == ([1, 0], "name: b, file count: 2")
    before, after = (base64.b64encode(picture).decode() for picture in binary.values())
    urls = [f"data:image/png;base64,{picture}" for picture in (before, before, after)]
    assert before != after and [first["url"], moved["url"], redrawn["url"]] == urls
    assert ended == {"saved": 1, "left": 0}
    assert image == {"width": 150, "exported": ["render"]}
