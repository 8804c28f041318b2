# SPDX-License-Identifier: Apache-2.0
"""Notebook widgets: sliders that redraw a picture, and heap maps with zoom and a time slider.

They need anywidget (the extra `widget`). Without it, or in a front end without widgets, the same
call shows a picture; see docs/design/inspect.md.
"""

from __future__ import annotations

import base64
import functools
import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.ledger.parts import PEAK_RESIDENT
from spanwise.plots.maps import (
    COLOUR_MAP,
    FREE,
    FREE_CODE,
    KIND_COLOURS,
    LARGE,
    LARGE_CODE,
    MEASURES,
    NO_VALUE,
    NO_VALUE_CODE,
    NOT_HELD,
    NOT_HELD_CODE,
    SMALLEST,
    cell_bytes_of,
    codes,
    end_of,
    heap_map,
    moment,
    most_of,
    values_of,
)
from spanwise.plots.style import pyplot, styled

if TYPE_CHECKING:
    from spanwise.heap.heap_map import HeapMap


Drawing = Callable[..., Any]
"""Draws for one value of each parameter, given by name, and returns the Axes."""

_INSTALL = "a picture only: pip install 'spanwise[widget]' adds the sliders"
_INSTALL_MAP = (
    "a picture only: pip install 'spanwise[widget]' makes it a widget to zoom and to scrub"
)


@functools.cache
def _widget_type(script: str, **traits: str) -> Any:
    """Return a class of widgets with a script and synchronised traits; it needs anywidget."""
    anywidget, kinds = (importlib.import_module(name) for name in ("anywidget", "traitlets"))

    class Widget(anywidget.AnyWidget):  # type: ignore[misc, name-defined]
        """A widget, and the picture that front ends without widgets show."""

        _esm = Path(__file__).with_name(script)

        def __init__(self, still: Any, **state: Any) -> None:
            super().__init__(**state)
            self._still = still

        def __repr__(self) -> str:
            return repr(self._still).rpartition("\n")[0]

        def _repr_mimebundle_(self, **kwargs: Any) -> Any:
            data, metadata = super()._repr_mimebundle_(**kwargs)
            png = base64.b64encode(self._still._repr_png_()).decode("ascii")
            return {**data, "image/png": png}, metadata

    made = {name: getattr(kinds, kind)().tag(sync=True) for name, kind in traits.items()}
    return type("Widget", (Widget,), made)


class Exploration:
    """A picture for each combination of values, drawn when it is first needed.

    Attributes:
        choices: name of each parameter -> its values.
        chosen: the index of the shown value of each parameter.
    """

    def __init__(self, draw: Drawing, choices: dict[str, Sequence[Any]]) -> None:
        self._draw = draw
        self.choices = {name: list(values) for name, values in choices.items()}
        self.chosen = [len(values) // 2 for values in self.choices.values()]
        self._pictures: dict[tuple[int, ...], bytes] = {}

    @property
    def values(self) -> dict[str, Any]:
        """The shown value of each parameter."""
        pairs = zip(self.choices.items(), self.chosen, strict=True)
        return {name: values[at] for (name, values), at in pairs}

    def _repr_png_(self) -> bytes:
        key = tuple(self.chosen)
        if key not in self._pictures:
            with styled():
                self._pictures[key] = png_of(self._draw(**self.values))
        return self._pictures[key]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value}" for name, value in self.values.items())
        return f"<picture of {shown}>\n({_INSTALL})"


def explore(draw: Drawing, **choices: Sequence[Any]) -> Any:
    """Return a Jupyter widget with a slider per parameter and the picture of the chosen values.

    Pictures are drawn when their values are first chosen.

    Args:
        draw: called as `draw(name=value, ...)`; returns the Axes of a new figure.
        **choices: the values of each parameter, in the order of its slider. It starts in the
            middle.

    Returns:
        An `anywidget.AnyWidget` with the trait `chosen`, the index of each value; without
        anywidget an `Exploration`. Both show a picture in front ends without widgets.

    Raises:
        InvalidError: no parameter, or one without values.

    Example:
        explore(lambda table: SizeClassTable.named(table).plot_waste(), table=["go", "c16"])
    """
    if not choices or not all(map(len, choices.values())):
        raise InvalidError("explore: give at least one parameter, each with values")
    pictures = Exploration(draw, dict(choices))
    labels = [[name, list(map(str, each))] for name, each in pictures.choices.items()]
    try:
        made = _widget_type("sliders.js", labels="List", chosen="List", picture="Bytes")
    except ImportError:
        return pictures
    shown = made(pictures, labels=labels, chosen=pictures.chosen, picture=pictures._repr_png_())

    def redraw(change: Any) -> None:
        pictures.chosen = list(change["new"])
        shown.picture = pictures._repr_png_()

    shown.observe(redraw, "chosen")
    return shown


def png_of(ax: Any) -> bytes:
    """Return the picture of the Axes' figure as PNG, leaving no figure open."""
    room = io.BytesIO()
    try:
        with styled():
            ax.figure.savefig(room, format="png")
    finally:
        pyplot().close(ax.figure)
    return room.getvalue()


MOST_CELLS = 1 << 16
"""The most cells per moment: 25 moments are 1.6 MB, small enough for one notebook message."""


@dataclass(frozen=True, repr=False)
class StillMap:
    """The result of `map_widget` without anywidget: the picture of one moment.

    Attributes:
        shown: the map at the peak, or else the last one.
        by: the measure that the colours show.
    """

    shown: HeapMap
    by: str

    def __repr__(self) -> str:
        return f"{self.shown!r}\n({_INSTALL_MAP})"

    def _repr_png_(self) -> bytes:
        return png_of(heap_map(self.shown, by=self.by))


def map_widget(
    maps: Sequence[HeapMap] | Mapping[str, Sequence[HeapMap]], *, by: str = "occupancy"
) -> Any:
    """Return a Jupyter widget for the maps of a recording, with a time slider and a zoomable map.

    A button plays the moments. The wheel or the keys + and - zoom, dragging or the arrow keys
    move, and a double click resets the view. A line describes the cell under the pointer. A heap
    of more than 65,536 pages has several pages per cell.

    Args:
        maps: from `Recording.maps()`; or maps by name of table, with a menu to choose one:
            `{table: recording.maps(table) for table in ("go", "c16")}`.
        by: as in `heap_map()`.

    Returns:
        An `anywidget.AnyWidget` with the traits `table` and `frame`, the indices of the shown table
        and map; without anywidget a `StillMap` of the first table. Both show a picture in front
        ends without widgets.

    Raises:
        InvalidError: there is no map, or the maps do not have the measure.
    """
    named = maps if isinstance(maps, Mapping) else {"": maps}
    if not named or not all(named.values()):
        raise InvalidError("no map to draw: the recording has no operation")
    state, first = _state_of(named, by), next(iter(named.values()))
    still = StillMap(first[state["frame"]], by)
    traits = {"maps": "List", "table": "Int", "cells": "Bytes", "palette": "Bytes", "frame": "Int"}
    try:
        return _widget_type("widget.js", **traits)(still, **state)
    except ImportError:
        return still


def _state_of(named: Mapping[str, Sequence[HeapMap]], by: str) -> dict[str, Any]:
    """Return the traits of a widget."""
    found, cells = [], b""
    for name, maps in named.items():
        about, drawn = _map_of(maps, by)
        found.append({**about, "name": name, "start": len(cells)})
        cells += drawn
    return {
        "maps": found,
        "table": 0,
        "cells": cells,
        "palette": _palette(),
        "frame": found[0]["first"],
    }


def _map_of(maps: Sequence[HeapMap], by: str) -> tuple[dict[str, Any], bytes]:
    """Return what the script knows of the maps of a table, and their cells."""
    end, most = max(map(end_of, maps)), most_of(by, maps)
    cell = cell_bytes_of(end, maps[0].page_bytes, MOST_CELLS)
    count = max(1, -(-end // cell))
    width = 1 << int(np.ceil(np.log2(np.sqrt(2 * max(count, 32)))))
    drawn = [codes(one, values_of(one, by), most, end, cell) for one in maps]
    peaks = [i for i, one in enumerate(maps) if one.ledger.at == PEAK_RESIDENT]
    what = maps[0].ledger
    about = {
        "width": width,
        "height": -(-count // width),
        "count": count,
        "cell_bytes": cell,
        "measure": _measure(by, most),
        "title": f"{what.source or 'heap'}, table {what.table}",
        "grain": f"one cell: {_format.size(cell)}; one row: {_format.size(width * cell)}",
        "moments": [
            ("peak: " if one.ledger.at == PEAK_RESIDENT else "") + moment(one) for one in maps
        ],
        "first": peaks[0] if peaks else len(maps) - 1,
    }
    return about, b"".join(one.tobytes() for one in drawn)


def _measure(by: str, most: float) -> str:
    """Return the meaning of the percentages."""
    if by == "age":
        return f"{MEASURES[by]}, of {_format.seconds(round(most))}"
    if by == "class":
        ends = (_format.size(SMALLEST * 2**power) for power in (0, most))
        return "{}: 0 % is {}, 100 % {}".format(MEASURES[by], *ends)
    return MEASURES[by]


def _palette() -> bytes:
    """Return red, green and blue of each of the 256 codes, as in the static picture."""
    colours = np.full((256, 3), 255, np.uint8)
    scale = np.asarray(pyplot().get_cmap(COLOUR_MAP)(np.linspace(0, 1, 101)))
    colours[:101] = (scale[:, :3] * 255).astype(np.uint8)
    of_kind = {
        LARGE_CODE: KIND_COLOURS[LARGE][0],
        FREE_CODE: KIND_COLOURS[FREE][0],
        NO_VALUE_CODE: NO_VALUE,
        NOT_HELD_CODE: KIND_COLOURS[NOT_HELD][0],
    }
    for code, colour in of_kind.items():
        colours[code] = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return colours.tobytes()
