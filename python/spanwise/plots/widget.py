# SPDX-License-Identifier: Apache-2.0
"""Heap maps through time in a notebook, to zoom and to scrub: docs/design/inspect.md.

The widget needs anywidget, the extra `widget`. Without it, and where no front end runs widgets, the
same call shows a picture.
"""

from __future__ import annotations

import base64
import functools
import importlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.plots import cells, raster
from spanwise.plots.maps import (
    COLOUR_MAP,
    KIND_COLOURS,
    MEASURES,
    NO_VALUE,
    SMALLEST,
    heap_map,
)
from spanwise.plots.maps import most_of as colours_end
from spanwise.plots.maps import values_of as shown_of
from spanwise.plots.style import pyplot, styled

if TYPE_CHECKING:
    from spanwise.heap.heap_map import HeapMap

MOST_CELLS = 1 << 16
"""The most cells of one moment: 25 moments are 1.6 MB, which a notebook's connection takes at
once."""

_SCRIPT = Path(__file__).with_name("widget.js")
_INSTALL = "a picture only: pip install 'spanwise[widget]' makes it a widget to zoom and to scrub"


@dataclass(frozen=True, repr=False)
class StillMap:
    """What `map_widget` gives where there is no anywidget: the picture of one moment.

    Attributes:
        shown: the map of the peak, or else the last one.
        by: what its colours are.
    """

    shown: HeapMap
    by: str

    def __repr__(self) -> str:
        return f"{self.shown!r}\n({_INSTALL})"

    def _repr_png_(self) -> bytes:
        return _picture(self.shown, self.by)


def map_widget(maps: Sequence[HeapMap], *, by: str = "occupancy") -> Any:
    """Maps of a recording as a widget for Jupyter: a slider over time, a map to zoom and to move.

    The wheel, or the keys + and -, zoom; dragging, or the arrow keys, move; a double click shows
    all of it again. What is under the pointer is told in words. A heap of more than 65,536 pages
    has several pages in a cell.

    Args:
        maps: what `Recording.maps` gave.
        by: as of `heap_map`.

    Returns:
        An `anywidget.AnyWidget`, whose trait `frame` is the number of the map that is shown; where
        anywidget is not installed a `StillMap`. Both show a picture where no widget can be.

    Raises:
        InvalidError: there is no map; the maps do not know `by`.
    """
    if not maps:
        raise InvalidError("no map to draw: the recording has no operation")
    state = _state_of(maps, by)
    still = StillMap(maps[state["frame"]], by)
    try:
        made = _widget_type()
    except ImportError:
        return still
    return made(still, state)


@functools.cache
def _widget_type() -> Any:
    """The class of the widget, which exists only where anywidget does."""
    anywidget, traits = (importlib.import_module(name) for name in ("anywidget", "traitlets"))

    class MapWidget(anywidget.AnyWidget):  # type: ignore[misc, name-defined]
        """A heap map through time."""

        _esm = _SCRIPT
        map = traits.Dict().tag(sync=True)
        cells = traits.Bytes().tag(sync=True)
        palette = traits.Bytes().tag(sync=True)
        frame = traits.Int().tag(sync=True)

        def __init__(self, still: StillMap, state: dict[str, Any]) -> None:
            super().__init__(**state)
            self._still = still

        def __repr__(self) -> str:
            return repr(self._still.shown)

        def _repr_mimebundle_(self, **kwargs: Any) -> Any:
            """The widget, and beside it the picture, for front ends that run no widgets."""
            data, metadata = super()._repr_mimebundle_(**kwargs)
            png = base64.b64encode(self._still._repr_png_()).decode("ascii")
            return {**data, "image/png": png}, metadata

    return MapWidget


def _state_of(maps: Sequence[HeapMap], by: str) -> dict[str, Any]:
    """The traits of a widget."""
    end, most = max(map(raster.end_of, maps)), colours_end(by, maps)
    cell = raster.cell_bytes_of(end, maps[0].page_bytes, MOST_CELLS)
    count = max(1, -(-end // cell))
    width = 1 << int(np.ceil(np.log2(np.sqrt(2 * max(count, 32)))))
    drawn = [cells.codes(one, shown_of(one, by), most, end, cell) for one in maps]
    peaks = [i for i, one in enumerate(maps) if one.ledger.at == "peak"]
    what = maps[0].ledger
    return {
        "map": {
            "width": width,
            "height": -(-count // width),
            "count": count,
            "cell_bytes": cell,
            "measure": _measure(by, most),
            "title": f"{what.source or 'heap'}, table {what.table}",
            "grain": f"one cell: {_format.size(cell)}; one row: {_format.size(width * cell)}",
            "moments": [
                ("peak: " if one.ledger.at == "peak" else "") + cells.moment(one) for one in maps
            ],
        },
        "cells": b"".join(one.tobytes() for one in drawn),
        "palette": _palette(),
        "frame": peaks[0] if peaks else len(maps) - 1,
    }


def _measure(by: str, most: float) -> str:
    """What the percents are."""
    if by == "age":
        return f"{MEASURES[by]}, of {_format.seconds(round(most))}"
    if by == "class":
        ends = (_format.size(SMALLEST * 2**power) for power in (0, most))
        return "{}: 0 % is {}, 100 % {}".format(MEASURES[by], *ends)
    return MEASURES[by]


def _palette() -> bytes:
    """Red, green and blue of each of the 256 codes, those of the static picture."""
    colours = np.full((256, 3), 255, np.uint8)
    scale = np.asarray(pyplot().get_cmap(COLOUR_MAP)(np.linspace(0, 1, 101)))
    colours[:101] = (scale[:, :3] * 255).astype(np.uint8)
    of_kind = {
        cells.LARGE: KIND_COLOURS[raster.LARGE][0],
        cells.FREE: KIND_COLOURS[raster.FREE][0],
        cells.NO_VALUE: NO_VALUE,
        cells.NOT_HELD: KIND_COLOURS[raster.NOT_HELD][0],
    }
    for code, colour in of_kind.items():
        colours[code] = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return colours.tobytes()


def _picture(one: HeapMap, by: str) -> bytes:
    """The picture of a map as PNG; no figure stays open."""
    figure: Any = heap_map(one, by=by).figure
    room = io.BytesIO()
    try:
        with styled():
            figure.savefig(room, format="png")
    finally:
        pyplot().close(figure)
    return room.getvalue()
