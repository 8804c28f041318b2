# SPDX-License-Identifier: Apache-2.0
"""A notebook widget that zooms heap maps and scrubs over time; see docs/design/inspect.md.

The widget needs anywidget (the extra `widget`). Without it, or in a front end without widgets, the
same call shows a picture.
"""

from __future__ import annotations

import base64
import functools
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.ledger.parts import PEAK_RESIDENT
from spanwise.plots import raster
from spanwise.plots.maps import (
    COLOUR_MAP,
    KIND_COLOURS,
    MEASURES,
    NO_VALUE,
    SMALLEST,
    heap_map,
    most_of,
    values_of,
)
from spanwise.plots.sliders import png_of
from spanwise.plots.style import pyplot

if TYPE_CHECKING:
    from spanwise.heap.heap_map import HeapMap

MOST_CELLS = 1 << 16
"""The most cells per moment: 25 moments are 1.6 MB, small enough for one notebook message."""

_SCRIPT = Path(__file__).with_name("widget.js")
_INSTALL = "a picture only: pip install 'spanwise[widget]' makes it a widget to zoom and to scrub"


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
        return f"{self.shown!r}\n({_INSTALL})"

    def _repr_png_(self) -> bytes:
        return _picture(self.shown, self.by)


def map_widget(
    maps: Sequence[HeapMap] | Mapping[str, Sequence[HeapMap]], *, by: str = "occupancy"
) -> Any:
    """Return a Jupyter widget for the maps of a recording, with a time slider and a zoomable map.

    A button plays the moments. The wheel or the keys + and - zoom, dragging or the arrow keys
    move, and a double click resets the view. A line describes the cell under the pointer. A heap
    of more than 65,536 pages has several pages per cell.

    Args:
        maps: of `Recording.maps`; or several, by the names of tables, of which one is chosen:
            `{table: recording.maps(table) for table in ("go", "c16")}`.
        by: as in `heap_map`.

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
    try:
        made = _widget_type()
    except ImportError:
        return still
    return made(still, state)


@functools.cache
def _widget_type() -> Any:
    """Return the widget's class, which can only be created if anywidget is installed."""
    anywidget, traits = (importlib.import_module(name) for name in ("anywidget", "traitlets"))

    class MapWidget(anywidget.AnyWidget):  # type: ignore[misc, name-defined]
        """Heap maps over time."""

        _esm = _SCRIPT
        maps = traits.List().tag(sync=True)
        table = traits.Int().tag(sync=True)
        cells = traits.Bytes().tag(sync=True)
        palette = traits.Bytes().tag(sync=True)
        frame = traits.Int().tag(sync=True)

        def __init__(self, still: StillMap, state: dict[str, Any]) -> None:
            super().__init__(**state)
            self._still = still

        def __repr__(self) -> str:
            return repr(self._still.shown)

        def _repr_mimebundle_(self, **kwargs: Any) -> Any:
            """Return the widget, and the picture for front ends without widgets."""
            data, metadata = super()._repr_mimebundle_(**kwargs)
            png = base64.b64encode(self._still._repr_png_()).decode("ascii")
            return {**data, "image/png": png}, metadata

    return MapWidget


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
    end, most = max(map(raster.end_of, maps)), most_of(by, maps)
    cell = raster.cell_bytes_of(end, maps[0].page_bytes, MOST_CELLS)
    count = max(1, -(-end // cell))
    width = 1 << int(np.ceil(np.log2(np.sqrt(2 * max(count, 32)))))
    drawn = [raster.codes(one, values_of(one, by), most, end, cell) for one in maps]
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
            ("peak: " if one.ledger.at == PEAK_RESIDENT else "") + raster.moment(one)
            for one in maps
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
        raster.LARGE_CODE: KIND_COLOURS[raster.LARGE][0],
        raster.FREE_CODE: KIND_COLOURS[raster.FREE][0],
        raster.NO_VALUE_CODE: NO_VALUE,
        raster.NOT_HELD_CODE: KIND_COLOURS[raster.NOT_HELD][0],
    }
    for code, colour in of_kind.items():
        colours[code] = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return colours.tobytes()


def _picture(one: HeapMap, by: str) -> bytes:
    """Return the picture of a map as PNG, leaving no figure open."""
    return png_of(heap_map(one, by=by))
