# SPDX-License-Identifier: Apache-2.0
"""Pictures: functions draw on the given Axes in the shipped style, and change no settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import spanwise as sw
from matplotlib.axes import Axes
from spanwise import plots
from spanwise.plots import maps
from spanwise.plots import maps as raster

from tests.python.helpers import random_ops

RECORDING = sw.Recording.from_ops(random_ops(9, 4000), name="mine")
GO = sw.SizeClassTable.go()

PICTURES: dict[str, Callable[[Axes | None], Axes]] = {
    "waste": GO.plot_waste,
    "ledger": lambda ax: RECORDING.ledger(GO).plot(ax),
    "comparison": lambda ax: RECORDING.compare(["go", "c16"]).plot(ax),
    "live": lambda ax: RECORDING.plot_timeline(GO, ax),
    "histogram": RECORDING.plot_histogram,
}


@pytest.mark.parametrize("name", PICTURES)
def test_draws_on_a_figure_of_its_own(name: str, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    ax = PICTURES[name](None)
    assert isinstance(ax, Axes)
    assert ax.get_title()
    assert ax.get_xlabel()
    assert dict(mpl.rcParams) == before
    plots.save(ax, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000
    assert not plt.get_fignums()


@pytest.mark.parametrize("name", PICTURES)
def test_draws_on_given_axes(name: str) -> None:
    _, ax = plt.subplots()
    assert PICTURES[name](ax) is ax
    assert len(plt.get_fignums()) == 1


def test_nothing_recorded_can_be_drawn() -> None:
    empty = sw.Recording.from_ops(random_ops(1, 1)[:0])
    line, histogram = empty.plot_timeline(), empty.plot_histogram()
    bar: Any = empty.ledger("go").plot()
    assert not histogram.collections[0].get_paths()
    assert line.get_xlabel() == "operations" and len(line.collections) == 4
    assert sum(patch.get_width() for patch in bar.patches) > 0  # metadata


@pytest.mark.parametrize(
    ("draw", "named"),
    [
        (plots.bench, "found must be BenchResult"),
        (plots.pareto, "points must be ParetoFront"),
        (plots.heap_map, "tiles must be HeapMap"),
        (plots.occupancy, "one must be Ledger"),
        (plots.waste_by_class, "one must be Ledger"),
    ],
)
def test_a_wrong_model_is_named(draw: Callable[[Any], Axes], named: str) -> None:
    with pytest.raises(TypeError, match=f"^{named}, not int$"):
        draw(7)


@pytest.mark.parametrize("draw", [plots.ledgers, plots.replays, plots.latencies])
def test_a_single_object_is_no_list(draw: Callable[[Any], Axes]) -> None:
    with pytest.raises(TypeError, match=r"must be a list, not Ledger; .*pass \[it\]"):
        draw(RECORDING.ledger(GO))


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        (0, 0, "not int"),
        (1, 2, r"not ndarray; pass axes\[0\]"),
        (2, 2, r"not ndarray; pass axes\[0, 0\]"),
    ],
)
def test_wrong_axes(rows: int, columns: int, said: str, tmp_path: Path) -> None:
    ax: Any = plt.subplots(rows, columns)[1] if rows else 5
    one = RECORDING.map("go")
    for draw in (PICTURES["waste"], PICTURES["comparison"], one.plot, plots.save):
        place = (tmp_path / "a.png",) if draw is plots.save else ()
        with pytest.raises(TypeError, match=rf"^ax must be one Axes( or None)?, {said}$"):
            draw(ax, *place)


def test_a_title_replaces_the_pictures_own() -> None:
    ax = RECORDING.plot_timeline(GO)
    ax.set_title("mine")
    assert [ax.get_title(loc=place) for place in ("left", "center", "right")] == ["", "mine", ""]


# --- pictures of maps -----------------------------------------------------------------------------


def test_cells_are_where_pages_are() -> None:
    """By hand: a span of a page, half full; large objects of 5 and 37 pages."""
    with sw.Heap("go", dry=True) as heap:
        for _ in range(4):
            heap.alloc(1024)  # 8 slots a page
        heap.alloc(40_000)
        heap.alloc(300_000)
        one = heap.map()
        grid = raster.grid_of(one, one.occupancy, raster.end_of(one), 8192)
    assert grid.kind[:6].tolist() == [raster.SLOTS, *[raster.LARGE] * 5]
    assert grid.value[0] == 0.5 and np.isnan(grid.value[1])
    assert np.flatnonzero(grid.first).tolist() == [0, 1, 6]
    assert len(grid.kind) == 1 + 5 + 37


@pytest.mark.parametrize("by", ["occupancy", "age", "touched", "class"])
def test_a_map_is_drawn_with_title_and_units(by: str) -> None:
    ax = RECORDING.map("go").plot(by=by)
    assert ax.get_title().startswith("mine at peak-resident, table go:\n")
    assert "one cell: 8.0 KiB" in ax.get_xlabel()
    assert "\nwhite left edge: " in ax.get_xlabel()
    assert ax.get_ylabel() == "place in the heap, MiB"
    (image,) = ax.images
    assert np.asarray(image.get_array()).shape[2] == 3


def test_classes_by_hand() -> None:
    """Slots of 8, 1,024 and 32,768 B are 0, 7 and 12 doublings of 8 B."""
    with sw.Heap("go", dry=True) as heap:
        for size in (8, 1024, 32_768, 40_000):
            heap.alloc(size)
        one = heap.map()
    values = maps.values_of(one, "class")[np.asarray(one.array["kind"]) == raster.SLOTS]
    assert sorted(values.tolist()) == [0, 7, 12] and maps.most_of("class", [one]) == 12


def test_slots_of_a_span_by_hand() -> None:
    """Five slots of 1,024 B are in use, one of them by 961 B; the other three have a dot."""
    with sw.Heap("go", dry=True, tracked=True) as heap:
        for size in (1024, 1024, 961, 1024, 1024):
            heap.alloc(size)
        one = heap.map()
    ax = one.plot_slots(0)
    (mesh,) = ax.collections
    shares = np.ma.asarray(mesh.get_array()).ravel().filled(-1).tolist()
    assert shares == [1, 1, 961 / 1024, 1, 1, -1, -1, -1]
    (dots,) = ax.lines
    assert (dots.get_xdata(), dots.get_ydata())[0].tolist() == [1.5, 2.5, 3.5]  # type: ignore[union-attr]
    assert "5 of 8 slots in use" in ax.get_title()
    assert ax.get_xlabel().startswith("slots of 1.0 KiB, 4 a row")


def test_a_tile_without_slots_is_refused() -> None:
    one = RECORDING.map("go", at="end")
    free = int(np.flatnonzero(np.asarray(one.array["kind"]) == raster.FREE)[0])
    with pytest.raises(sw.InvalidError, match="free pages have no slots"):
        one.plot_slots(free)
    with pytest.raises(sw.InvalidError, match="the map has"):
        one.plot_slots(len(one))


def test_cells_of_a_small_heap_are_many_pixels_wide() -> None:
    with sw.Heap() as heap:
        heap.alloc(64)
        ax = plots.heap_map(heap.map())
    (image,) = ax.images
    # A row of 8 cells: an edge, which is a pixel, is a small part of the cell.
    cells = int(ax.get_xlim()[1])
    assert np.asarray(image.get_array()).shape[1] / cells >= 12


def test_measures_that_are_not_known_are_refused() -> None:
    frame = RECORDING.maps("go", samples=1)[0]
    with pytest.raises(sw.InvalidError, match="no times of allocation"):
        frame.plot(by="age")
    with pytest.raises(sw.InvalidError, match="use one of occupancy, age, touched"):
        frame.plot(by="size")
    with sw.Heap("go") as heap:
        heap.alloc(9)
        with pytest.raises(sw.InvalidError, match="resident=True"):
            heap.map().plot(by="touched")


@pytest.mark.parametrize(("name", "begins"), [("x.gif", b"GIF89a"), ("x.html", b"<!doctype html")])
def test_an_animation_has_a_frame_a_map(name: str, begins: bytes, tmp_path: Path) -> None:
    plots.save_frames(RECORDING.maps("go", samples=2), tmp_path / name)
    content = (tmp_path / name).read_bytes()
    assert content.startswith(begins)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_animations_that_cannot_be_written(tmp_path: Path) -> None:
    maps = RECORDING.maps("go", samples=2)
    with pytest.raises(sw.InvalidError, match=r"use \.gif or \.html"):
        plots.save_frames(maps, tmp_path / "x.mp4")
    with pytest.raises(sw.InvalidError, match="no map to draw"):
        plots.save_frames([], tmp_path / "x.gif")
    with pytest.raises(OSError, match="cannot be written"):
        plots.save_frames(maps, tmp_path / "none" / "x.gif")
    with pytest.raises(sw.InvalidError, match="fps 0"):
        plots.save_frames(maps, tmp_path / "x.gif", fps=0)
    assert list(tmp_path.iterdir()) == []
    assert plt.get_fignums() == []
