# SPDX-License-Identifier: Apache-2.0
"""Pictures of heap maps, and their grids of cells, each of one or several pages."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib
from spanwise.errors import InvalidError
from spanwise.heap.heap_map import HeapMap
from spanwise.plots.style import (
    add_colour_bar,
    legend_on_top,
    new_axes,
    picture,
    pyplot,
    scale_of,
    styled,
    time_scale_of,
    when,
)
from spanwise.results.files import check_output, whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SLOTS, LARGE, FREE, NOT_HELD = 0, 1, 2, 3
"""The kinds of cells: those of tiles, and pages that the heap does not hold."""

MOST_CELLS = 1 << 17


@dataclass(frozen=True)
class Grid:
    """Cells of a heap, in the order of its pages.

    Attributes:
        value: mean of the measure over the bytes of spans of slots in each cell; NaN: unknown.
    """

    kind: NDArray[np.uint8]  # kind of the largest part of each cell
    value: NDArray[np.float32]
    first: NDArray[np.bool_]  # whether a tile begins in each cell
    cell_bytes: int  # bytes of a cell, a power of two of pages

    @property
    def width(self) -> int:
        """Cells per row: a power of two, so that a row is a round number of bytes."""
        cells = max(len(self.kind), 32)
        return 1 << int(np.ceil(np.log2(np.sqrt(2 * cells))))


def cell_bytes_of(end: int, page_bytes: int, most: int = MOST_CELLS) -> int:
    """Return the bytes of a cell for which a heap of `end` bytes has at most `most` cells."""
    cell = page_bytes
    while -(-end // cell) > most:
        cell *= 2
    return cell


def end_of(one: HeapMap) -> int:
    """Return the end of the last tile."""
    tiles = one.array
    return int(tiles["offset"][-1] + tiles["bytes"][-1]) if len(tiles) else 0


def grid_of(one: HeapMap, value: NDArray[np.float64], end: int, cell_bytes: int) -> Grid:
    """Rasterise tiles into cells."""
    cells, tiles = max(1, -(-end // cell_bytes)), one.array
    share = np.zeros((4, cells))
    known, weight = np.zeros(cells), np.zeros(cells)
    slots = np.asarray(tiles["kind"]) == SLOTS
    cell, tile, amount = pieces(one, cell_bytes)
    np.add.at(share, (tiles["kind"][tile], cell), amount)
    drawn = slots[tile] & ~np.isnan(value[tile])
    np.add.at(known, cell[drawn], amount[drawn] * value[tile][drawn])
    np.add.at(weight, cell[drawn], amount[drawn])
    share[NOT_HELD] = np.maximum(cell_bytes - share.sum(axis=0), 0)
    first = np.zeros(cells, bool)
    first[np.asarray(tiles["offset"], np.int64) // cell_bytes] = True
    with np.errstate(invalid="ignore"):
        mean = (known / weight).astype(np.float32)
    return Grid(share.argmax(axis=0).astype(np.uint8), mean, first, cell_bytes)


def pieces(
    one: HeapMap, cell_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the cell, tile and bytes of each overlap of a tile with a cell."""
    start = np.asarray(one.array["offset"], np.int64)
    end = start + np.asarray(one.array["bytes"], np.int64)
    first, last = start // cell_bytes, (end - 1) // cell_bytes
    count = last - first + 1
    tile = np.repeat(np.arange(len(start)), count)
    begin = np.cumsum(count) - count
    cell = first[tile] + np.arange(len(tile)) - begin[tile]
    low = np.maximum(start[tile], cell * cell_bytes)
    high = np.minimum(end[tile], (cell + 1) * cell_bytes)
    return cell, tile, (high - low).astype(np.float64)


# --- codes ----------------------------------------------------------------------------------------

LARGE_CODE, FREE_CODE, NO_VALUE_CODE, NOT_HELD_CODE = 101, 102, 103, 255
"""Codes of cells; 0 to 100 are values of spans of slots, in percent of the colour scale."""


def codes(
    one: HeapMap, value: NDArray[np.float64], most: float, end: int, cell_bytes: int
) -> NDArray[np.uint8]:
    """Return the cells of a map as one byte each, for an HTML page or a widget."""
    grid = grid_of(one, value, end, cell_bytes)
    known = ~np.isnan(grid.value)
    found = np.full(len(grid.kind), NO_VALUE_CODE, np.uint8)
    found[known] = np.round(np.clip(grid.value[known] / most, 0, 1) * 100)
    for kind, code in ((LARGE, LARGE_CODE), (FREE, FREE_CODE), (NOT_HELD, NOT_HELD_CODE)):
        found[grid.kind == kind] = code
    return found


def moment(one: HeapMap) -> str:
    """Return the time, operation, bytes and objects of a map, as text."""
    ledger = one.ledger
    op = ledger.stats.ops if ledger.stats else 0
    resident = ledger.resident_bytes
    parts = [
        f"{_format.seconds(ledger.time_ns)}, operation {op:,}",
        f"{_format.size(resident)} resident" if resident is not None else "",
        f"{_format.size(ledger.held_bytes)} held",
        f"{_format.size(ledger.requested_bytes)} requested",
        f"{_format.plural(ledger.live_objects, 'object')} live",
    ]
    return "; ".join(filter(None, parts))


MEASURES = {
    "occupancy": "slots in use, of the span's slots",
    "age": "age of the oldest object of the span",
    "touched": "resident bytes, of the span's bytes",
    "class": "size of the span's slots, log scale",
}
"""The measures of a span of slots that a map can show."""

KIND_COLOURS = {
    LARGE: ("#CC79A7", "large object (striped)"),
    FREE: ("#BDBDBD", "free pages, held (dotted)"),
    NOT_HELD: ("#FFFFFF", "not held"),
}
"""Colours and names of kinds; stripes and dots distinguish the kinds in greyscale."""

COLOUR_MAP = "cividis_r"
NO_VALUE = "#FFE0B2"
SMALLEST = 8
"""The slot size in bytes that has the first colour."""
_WIDE = 768
"""The approximate width of a small map, pixels."""
_MOST_EDGES = 1 << 13
"""Above this many cells, edges would be finer than a pixel."""


@picture
def heap_map(tiles: HeapMap, ax: Axes | None = None, *, by: str = "occupancy") -> Axes:
    """Draw a heap map: cells in page order, row by row, coloured by a measure of their spans.

    Large objects are striped and free pages dotted. Up to 8,192 pages, a white edge on the left of
    a cell marks the start of a span, a large object or a row of free pages. Above 131,072 pages, a
    cell is several pages. The last row is blank after the end of the heap.

    Args:
        tiles: the map.
        ax: where to draw; None makes a new figure.
        by: "occupancy"; "class" (size of the slots); "age" (of the oldest object of a span), only
            for maps of `Recording.map()`; or "touched" (resident bytes), for maps of recordings and
            of `Heap.map(resident=True)`.

    Raises:
        InvalidError: the measure is unknown, or the map does not have it.
    """
    own = ax is None
    ax = ax or new_axes(height=5.0)
    end = end_of(tiles)
    _draw(tiles, ax, by, end, most_of(by, [tiles]), own=own)
    return ax


def save_frames(
    maps: Sequence[HeapMap], path: str | os.PathLike[str], *, by: str = "occupancy", fps: int = 4
) -> None:
    """Write maps as an animation: .gif, or .html with a slider. The file is written whole or not.

    Args:
        maps: of `Recording.maps()`.
        path: of the file.
        by: as in `heap_map()`.
        fps: frames per second.

    Raises:
        OSError: the system refused to write.
        InvalidError: there is no map, or the file extension is neither.
    """
    place = Path(path)
    check_output(path)
    if place.suffix.lower() not in (".gif", ".html"):
        raise InvalidError(f"{place}: unsupported animation format; use .gif or .html")
    if not maps:
        raise InvalidError("no map to draw: the recording has no operation")
    if _lib.as_index(fps, "fps", 60) == 0:
        raise InvalidError("fps 0: give at least 1")
    animation = importlib.import_module("matplotlib.animation")
    ax = new_axes(height=5.0)
    figure: Any = ax.figure
    end, most = max(map(end_of, maps)), most_of(by, maps)

    def draw(number: int) -> list[Any]:
        figure.clear()
        _draw(maps[number], figure.subplots(), by, end, most)
        return []

    try:
        with whole_file(place) as growing, styled():
            made = animation.FuncAnimation(figure, draw, frames=len(maps), interval=1000 // fps)
            if place.suffix.lower() == ".gif":
                made.save(growing, writer=animation.PillowWriter(fps=fps), dpi=100)
            else:
                growing.write_text(_page(made.to_jshtml(fps=fps)), encoding="utf-8")
    finally:
        pyplot().close(figure)


def _page(player: str) -> str:
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>heap map</title>'
    return f"{head}<body>{player}</body></html>\n"


# --- drawing --------------------------------------------------------------------------------------


def values_of(one: HeapMap, by: str) -> NDArray[np.float64]:
    """Return the measure of each tile."""
    if by == "occupancy":
        return one.occupancy
    if by == "age":
        ages = one.age_ns
        if ages is None:
            raise InvalidError(
                "by 'age': this map has no times of allocation; only those of Recording.map() have"
            )
        return ages
    if by == "touched":
        touched = one.array["touched_bytes"]
        if len(touched) and touched.max() == np.iinfo(np.uint64).max:
            raise InvalidError(
                "by 'touched': this map has no resident bytes; use map(resident=True)"
            )
        return np.asarray(touched / np.maximum(one.array["bytes"], 1))
    if by == "class":
        room = (one.array["bytes"] - one.array["tail_bytes"]) / np.maximum(one.array["slots"], 1)
        of_slots = np.where(one.array["kind"] == SLOTS, room, SMALLEST)
        return np.log2(np.maximum(of_slots, SMALLEST) / SMALLEST)
    raise InvalidError(f"by {by!r}: use one of {', '.join(MEASURES)}")


def most_of(by: str, maps: Sequence[HeapMap]) -> float:
    """Return the end of the colour scale: 1, the greatest age, or the largest slot."""
    if by not in ("age", "class"):
        return 1.0
    ages = np.concatenate([values_of(one, by) for one in maps])
    return max(float(np.nanmax(ages, initial=0.0)), 1.0)


def _draw(one: HeapMap, ax: Axes, by: str, end: int, most: float, *, own: bool = True) -> None:
    cell = cell_bytes_of(end, one.page_bytes)
    grid = grid_of(one, values_of(one, by), end, cell)
    image = _image(grid, most)
    row_bytes = grid.width * cell
    scale, unit = scale_of(float(end))
    rows = image.shape[0] // _pixels(grid)
    ax.imshow(
        image,
        aspect="auto",
        interpolation="nearest",
        extent=(0, grid.width, rows * row_bytes / scale, 0),
    )
    ax.grid(visible=False)
    ax.set_xticks([])
    notes = [f"one cell: {_format.size(cell)}; one row: {_format.size(row_bytes)}"]
    if len(grid.kind) <= _MOST_EDGES:
        notes.append("white left edge: a span, a large object or free pages begin")
    if len(grid.kind) % grid.width:
        notes.append("blank end of the last row: beyond the heap")
    ax.set_xlabel("\n".join(notes))
    ax.set_ylabel(f"place in the heap, {unit}")
    spans = int((one.array["kind"] == SLOTS).sum())
    live = _format.number(one.ledger.live_objects)
    ax.set_title(
        f"{one.ledger.source or 'heap'} {when(one.ledger.at)}, table {one.ledger.table}:\n"
        f"{live} live objects in {_format.plural(spans, 'span')}"
    )
    _explain(ax, own, grid, by, most)


def _explain(ax: Axes, own: bool, grid: Grid, by: str, most: float) -> None:
    """Explain the colours and the kinds of cells."""
    cm, colors, patches = (
        importlib.import_module(f"matplotlib.{name}") for name in ("cm", "colors", "patches")
    )
    scale, unit = time_scale_of(most) if by == "age" else (1, "")
    norm = colors.Normalize(0, most / scale)
    figure: Any = ax.figure
    label = f"{MEASURES[by]}{', ' + unit if unit else ''}"
    bar = add_colour_bar(ax, cm.ScalarMappable(norm, COLOUR_MAP), label)
    if by == "class":
        ticks = [*range(0, int(most), 2), most]
        bar.set_ticks(ticks, labels=[_format.size(round(SMALLEST * 2**k)) for k in ticks])
    hatches = {LARGE: "////", FREE: "....", NOT_HELD: ""}
    shown = [
        patches.Patch(facecolor=colour, edgecolor="#444444", hatch=hatches[kind], label=label)
        for kind, (colour, label) in KIND_COLOURS.items()
        if (grid.kind == kind).any()
    ]
    if shown and own:
        figure.legend(handles=shown, loc="outside lower left", ncols=3)
    elif shown:
        ax.xaxis.label.set_fontsize(8)
        legend_on_top(ax, 3, handles=shown)
        ax.set_yticks([tick for tick in ax.get_yticks() if 0 <= tick <= ax.get_ylim()[0]])


def _pixels(grid: Grid) -> int:
    """Return the pixels per side of a cell: more in a small heap, so that edges stay thin."""
    if len(grid.kind) > 1 << 15:
        return 4
    return min(max(6, _WIDE // grid.width), 24)


def _image(grid: Grid, most: float) -> NDArray[np.uint8]:
    """Return the cells as pixels, with stripes, dots and edges."""
    plt = pyplot()
    side, width = _pixels(grid), grid.width
    rows = -(-len(grid.kind) // width)
    padding = rows * width - len(grid.kind)
    kind = np.pad(grid.kind, (0, padding), constant_values=NOT_HELD)
    colours = _rgb([NO_VALUE])[np.zeros(len(kind), int)]
    value = np.pad(grid.value, (0, padding), constant_values=np.nan)
    known = ~np.isnan(value)
    table = (np.asarray(plt.get_cmap(COLOUR_MAP)(np.linspace(0, 1, 256)))[:, :3] * 255).astype(
        np.uint8
    )
    colours[known] = table[(np.clip(value[known] / most, 0, 1) * 255).astype(int)]
    of_kind = _rgb([colour for colour, _ in KIND_COLOURS.values()])
    special = kind != SLOTS
    colours[special] = of_kind[kind[special] - 1]
    big = np.repeat(np.repeat(colours.reshape(rows, width, 3), side, 0), side, 1)
    kinds = np.repeat(np.repeat(kind.reshape(rows, width), side, 0), side, 1)
    y, x = np.arange(kinds.shape[0])[:, None], np.arange(kinds.shape[1])[None, :]
    big[(kinds == LARGE) & ((x + y) % 4 == 0)] = (90, 40, 70)
    big[(kinds == FREE) & (x % 3 == 1) & (y % 3 == 1)] = (110, 110, 110)
    if len(grid.kind) <= _MOST_EDGES:
        first = np.pad(grid.first, (0, padding)).reshape(rows, width)
        big[np.repeat(np.repeat(first, side, 0), side, 1) & (x % side == 0)] = 255
    return big


def _rgb(colours: Sequence[str]) -> NDArray[np.uint8]:
    return np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours], np.uint8)


# --- slots ----------------------------------------------------------------------------------------


@picture
def slots(tiles: HeapMap, tile: int, ax: Axes | None = None) -> Axes:
    """Draw the slots of one tile of a heap map, row by row; free slots have a dot.

    The colour is the requested share of the slot. A large object is one slot.

    Args:
        tiles: the map, from `Heap.map()` or `Recording.map()`.
        tile: its index in `HeapMap.array`.
        ax: where to draw; None makes a new figure.

    Raises:
        InvalidError: there is no such tile, it has no slots, or the map was made without them.
    """
    rows = np.asarray(tiles.slots(tile))
    if not len(rows):
        raise InvalidError(f"tile {tile}: free pages have no slots")
    one = tiles.array[int(tile)]
    size = (int(one["bytes"]) - int(one["tail_bytes"])) // len(rows)
    width = min(1 << int(np.ceil(np.log2(np.sqrt(2 * len(rows))))), len(rows))
    height = -(-len(rows) // width)
    share = np.full(height * width, np.nan)
    share[: len(rows)] = np.where(rows["live"], rows["requested_bytes"] / size, np.nan)
    ax = ax or new_axes(height=1.6 + 0.24 * min(height, 24))
    mesh = ax.pcolormesh(
        np.ma.masked_invalid(share.reshape(height, width)),
        cmap=COLOUR_MAP,
        vmin=0,
        vmax=1,
        edgecolors="white",
        linewidth=0.5,
    )
    free = np.flatnonzero(~rows["live"])
    ax.plot(free % width + 0.5, free // width + 0.5, ".", ms=3, color="#777777", label="free slot")
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    ax.grid(visible=False)
    ax.set_xticks([])
    steps = range(0, height, max(1, -(-height // 8)))
    ax.set_yticks([row + 0.5 for row in steps], [f"{row * width:,}" for row in steps])
    ax.set_xlabel(f"slots of {_format.size(size)}, {width} a row; a dot is a free one")
    ax.set_ylabel("first slot of the row")
    add_colour_bar(ax, mesh, "requested, of the slot")
    ledger = tiles.ledger
    live = len(rows) - len(free)
    where = _format.size(int(one["offset"]))
    ax.set_title(
        f"{ledger.source or 'heap'} {when(ledger.at)}, table {ledger.table}:\n"
        f"span at {where}, {live:,} of {_format.plural(len(rows), 'slot')} in use"
    )
    return ax
