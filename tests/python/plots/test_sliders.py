# SPDX-License-Identifier: Apache-2.0
"""Sliders that redraw a picture: which values are drawn, when, and what the script does."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
import spanwise as sw
from spanwise import plots
from spanwise.plots import widget as sliders

from tests.python.plots.browser import needs_anywidget, needs_browser, page_of, seen_in

SCRIPT = Path(plots.__file__).with_name("sliders.js")
PROBE = """
const el = document.getElementById("here"), seen = [];
const end = widget.render({ model, el });
const [first, second] = el.querySelectorAll("input"), image = el.querySelector("img");
const look = () => seen.push({ chosen: state.chosen, alt: image.alt, url: image.src });
look();
second.value = "0";
second.dispatchEvent(new Event("input"));
look();
model.set("picture", state.picture);
look();
end();
seen.push({ saved: model.saved, left: Object.keys(heard).length });
document.body.dataset.seen = JSON.stringify(seen);
"""


def _drawing(drawn: list[tuple[str, int]]) -> Any:
    def draw(name: str, count: int = 2, file_count: int = 2) -> Any:
        drawn.append((name, count))
        ax = plots.new_axes(1, 1)
        ax.plot(range(count))
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
    sliders._widget_type.cache_clear()
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
def test_the_script_in_a_browser(tmp_path: Path) -> None:
    """A slider changes the index of its value; a picture from the kernel replaces the old one."""
    widget = plots.explore(_drawing([]), name=["a", "b"], file_count=[2, 3])
    state = {"labels": widget.labels, "chosen": widget.chosen}
    page = page_of(SCRIPT, json.dumps(state), {"picture": widget.picture}, PROBE)
    first, moved, redrawn, ended = seen_in(page, tmp_path)
    assert (first["chosen"], first["alt"]) == ([1, 1], "name: b, file count: 3")
    assert (moved["chosen"], moved["alt"]) == ([1, 0], "name: b, file count: 2")
    assert first["url"] == moved["url"] != redrawn["url"] and first["url"].startswith("blob:")
    assert ended == {"saved": 1, "left": 0}
