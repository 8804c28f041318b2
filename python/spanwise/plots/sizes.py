# SPDX-License-Identifier: Apache-2.0
"""Pictures of sizes, tables, lifetimes and of what pins spans."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.plots.style import (
    COLOURS,
    MARKERS,
    add_colour_bar,
    add_legend,
    new_axes,
    part_bars,
    picture,
    scale_of,
    time_scale_of,
)
from spanwise.results.rows import AnyRows
from spanwise.tables.table import as_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.optimizer.pareto import ParetoFront
    from spanwise.recordings.span_pinning import SpanPinning
    from spanwise.tables.table import SizeClassTable


@picture
def waste(
    tables: Sequence[SizeClassTable | str],
    ax: Axes | None = None,
    *,
    largest_bytes: int | None = None,
) -> Axes:
    """Draw the waste of each size, in percent of its slot, under one or more tables.

    Args:
        tables: the tables, or their names.
        ax: where to draw; None makes a new figure.
        largest_bytes: the last size; None: the largest class of all tables.
    """
    ax = ax or new_axes()
    made = as_tables(tables)
    most = largest_bytes or max(table.largest_bytes for table in made)
    sizes = np.arange(1, most + 1)
    for i, table in enumerate(made):
        rounded = table.round_up(sizes)
        first = i == 0 and len(made) > 1
        ax.plot(
            sizes,
            100 * (rounded - sizes) / rounded,
            label=table.name,
            linewidth=2.4 if first else 0.9,  # stays visible under the others
            alpha=0.5 if first else 1.0,
        )
    ax.set_xscale("log", base=2)
    ax.set_xlim(1, most)
    ax.set_ylim(0, 100)
    ax.xaxis.set_major_formatter(lambda value, _: _format.size(value).replace(".0", ""))
    ax.set_xlabel("requested size")
    ax.set_ylabel("waste, % of the slot")
    ax.set_title(f"round-up of each size under {', '.join(table.name for table in made)}")
    if len(made) > 1:
        ax.legend()
    return ax


@picture
def histogram(rows: AnyRows, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Draw the number of requests by size, on logarithmic scales.

    Args:
        rows: from `Recording.histogram()`.
        ax: where to draw; None makes a new figure.
        title: the picture's title.
    """
    ax = ax or new_axes()
    ax.vlines(np.maximum(rows["size_bytes"], 1), 0.5, rows["count"], color="#0072B2", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_ylim(bottom=0.5)
    ax.xaxis.set_major_formatter(lambda value, _: _format.size(value).replace(".0", ""))
    ax.set_xlabel("requested size")
    ax.set_ylabel("requests")
    ax.set_title(title or "requests by size")
    return ax


@picture
def boundaries(
    rows: AnyRows,
    tables: Sequence[SizeClassTable],
    ax: Axes | None = None,
    *,
    title: str = "",
    of: str = "all requests",
) -> Axes:
    """Draw bytes of round-up by requested size under each table, and the classes below them.

    A step sums the round-up of the rows of a quarter of a doubling.

    Args:
        rows: from `Recording.histogram()`, or `Recording.live_histogram()` for a moment.
        tables: the tables; the first one is drawn as an area.
        ax: where to draw; None makes a new figure.
        title: the picture's title.
        of: what the rows count, for the axis.
    """
    own = ax is None
    ax = ax or new_axes(height=3.8 + 0.3 * len(tables))
    sizes = np.maximum(rows["size_bytes"], 1).astype(np.int64)
    edges = 2 ** np.arange(0, np.log2(sizes.max(initial=2)) + 0.5, 0.25)
    lost = [(table.round_up(sizes) - sizes) * rows["count"].astype(np.float64) for table in tables]
    steps = [np.histogram(sizes, edges, weights=each)[0] for each in lost]
    high = max(float(each.max()) for each in steps)
    scale, unit = scale_of(high)
    high = high / scale or 1.0
    row = high * (0.09 if len(tables) < 4 else 0.3 / len(tables))
    names = []
    for i, table in enumerate(tables):
        colour = COLOURS[(i + 1) % len(COLOURS)]
        label = f"{table.name}: {_format.size(lost[i].sum())} of round-up"
        drawn = ax.stairs(steps[i] / scale, edges, color=colour, label=label, fill=i == 0)
        drawn.set(alpha=0.4 if i == 0 else None, linewidth=1.6 if i else 0)
        ax.vlines(table.classes["size_bytes"], -row * (i + 1), -row * (i + 0.3), color=colour)
        names.append((-row * (i + 0.65), f"{table.name} ({len(table)})"))
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda value, _: _format.size(value).replace(".0", ""))
    ax.set_ylim(-row * (len(tables) + 0.2), high * 1.05)
    ax.axhline(0, color="#444444", linewidth=0.8)
    marks = [mark for mark in ax.get_yticks() if 0 <= mark <= high * 1.05]
    ax.set_yticks([*marks, *(place for place, _ in names)])
    ax.set_yticklabels([*(f"{mark:g}" for mark in marks), *(name for _, name in names)])
    ax.set_xlabel("requested size")
    ax.set_ylabel(f"round-up of {of}, {unit}")
    ax.set_title(title or "round-up by size; below, the classes of each table")
    add_legend(ax, own)
    return ax


@picture
def pareto(points: ParetoFront, ax: Axes | None = None) -> Axes:
    """Draw resident minus requested bytes against the number of classes, one line per curve."""
    own = ax is None
    ax = ax or new_axes(height=4.6)
    curves = [(pair, points.curve(*pair)) for pair in points.curves()]
    most = max((float(_beyond(curve).max()) for _, curve in curves), default=1.0)
    scale, unit = scale_of(most)
    for i, (names, curve) in enumerate(_without_copies(curves)):
        waste_bytes = _beyond(curve) / scale
        (line,) = ax.plot(
            curve["classes"],
            waste_bytes,
            label=" = ".join(names),
            color=COLOURS[i % len(COLOURS)],
            marker=MARKERS[i % len(MARKERS)],
            markersize=3.5,
            linewidth=1.2,
            linestyle="-" if "spans" not in names[0] else "--",
        )
        least = int(np.argmin(waste_bytes))
        ax.plot(
            curve["classes"][least],
            waste_bytes[least],
            marker="o",
            markersize=11,
            markerfacecolor="none",
            color=line.get_color(),
        )
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xlabel("classes")
    ax.set_ylabel(f"resident beyond requested, {unit}")
    ax.set_title("waste at the peak; the least of each curve has a ring")
    add_legend(ax, own, columns=3)
    return ax


def _beyond(curve: NDArray[np.void]) -> NDArray[np.float64]:
    """Return resident minus requested bytes."""
    beyond: NDArray[np.float64] = (
        curve["resident_bytes"].astype(np.float64) - curve["requested_bytes"]
    )
    return beyond


def _without_copies(
    curves: list[tuple[tuple[int, int], NDArray[np.void]]],
) -> list[tuple[list[str], NDArray[np.void]]]:
    """Merge equal curves, each with all its names, so that no curve hides another."""
    found: list[tuple[list[str], NDArray[np.void]]] = []
    for (span_scale, caches), curve in curves:
        spans = "" if span_scale == 1 else f", spans x{span_scale}"
        name = "caches as recorded" if caches == 0 else _format.plural(caches, "cache")
        columns = ["classes", "resident_bytes"]
        same = next((n for n, c in found if np.array_equal(c[columns], curve[columns])), None)
        if same is None:
            found.append(([name + spans], curve))
        else:
            same.append(name + spans)
    return found


_TICKS = 8
"""The approximate number of labels per axis."""


@picture
def lifetimes(rows: AnyRows, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Draw bytes by size and lifetime, both in powers of two; the last column is never freed.

    Args:
        rows: from `Recording.lifetimes(by="size")`.
        ax: where to draw; None makes a new figure.
        title: of the picture; default: "bytes by size and lifetime".

    Raises:
        InvalidError: there are no rows, so no object was allocated.
    """
    if not len(rows):
        raise InvalidError("no lifetimes to draw: the recording has no object")
    ax = ax or new_axes()
    freed = rows["freed"].astype(bool)
    size = _log2(rows["size_bytes"])
    life = _log2(rows["lifetime_ns"])
    ended = life[freed] if freed.any() else life
    first, most, low = int(ended.min()), int(ended.max()), int(size.min())
    grid = np.zeros((int(size.max()) - low + 1, most - first + 3))
    column = np.where(freed, life - first, most - first + 2)  # after an empty column
    np.add.at(grid, (size - low, column), rows["total_bytes"].astype(float))
    _cells(ax, np.ma.masked_equal(grid, 0))
    _axis_names(ax, low, first, grid.shape)
    ax.set_title(title or "bytes by size and lifetime")
    return ax


def _log2(values: Any) -> Any:
    """Return the floors of base-2 logarithms; 0 counts as 1."""
    return np.log2(np.maximum(values.astype(float), 1)).astype(int)


def _time(ns: int) -> str:
    scale, unit = time_scale_of(2 * ns)  # "1 ms", not "1,049 µs"
    return f"{ns / scale:,.0f} {unit}"


def _cells(ax: Axes, grid: Any) -> None:
    colors = importlib.import_module("matplotlib.colors")
    least, most = float(grid.min()), float(grid.max())
    norm = colors.LogNorm(least, max(most, 2 * least))
    mesh = ax.pcolormesh(grid, norm=norm, cmap="cividis_r", edgecolors="white", linewidth=0.5)
    add_colour_bar(ax, mesh, "allocated, bytes")
    ax.grid(visible=False)


def _axis_names(ax: Axes, low: int, first: int, shape: tuple[int, ...]) -> None:
    """Label rows and columns with their lower bounds; the last column is never freed."""
    height, width = shape
    rows = range(0, height, -(-height // _TICKS))
    ax.set_yticks(
        [row + 0.5 for row in rows],
        [_format.size(1 << (low + row)).replace(".0", "") for row in rows],
    )
    columns = range(0, width - 2, -(-width // _TICKS))
    names = [_time(1 << (first + column)) for column in columns]
    ax.set_xticks([*(column + 0.5 for column in columns), width - 0.5], [*names, "not freed"])
    ax.set_xlabel("lived at least (to twice that)")
    ax.set_ylabel("size, at least (to twice that)")


# --- arenas ---------------------------------------------------------------------------------------


@picture
def arena_lifetimes(rows: AnyRows, ax: Axes | None = None) -> Axes:
    """Draw a line per arena from its creation to its end, the first at the bottom.

    Alerts are dashed lines. An arena that was not freed ends at the last event, in another colour.
    An arena without a creation event begins at the first event.

    `rows`: from `ArenaTracker.events()`.
    """
    own, ax = ax is None, ax or new_axes()
    times = np.asarray(rows["time_ns"]).astype(float)
    first, last = (float(times.min()), float(times.max())) if len(times) else (0.0, 1.0)
    scale, unit = time_scale_of(max(last - first, 1.0))
    made = dict(_times(rows, "arena.new"))
    freed = dict(_times(rows, "arena.free"))
    for arenas, colour, label in (
        (sorted(freed), "#0072B2", "freed"),
        (sorted(set(made) - set(freed)), "#D55E00", "not freed"),
    ):
        starts = [(made.get(arena, first) - first) / scale for arena in arenas]
        ends = [(freed.get(arena, last) - first) / scale for arena in arenas]
        if arenas:
            ax.hlines(arenas, starts, ends, colors=colour, lw=2, label=f"{label} ({len(arenas)})")
    for i, (_, when) in enumerate(_times(rows, "arena.alert")):
        label = "alert" if i == 0 else ""
        ax.axvline((when - first) / scale, color="black", lw=1, ls="--", label=label)
    ax.set_xlabel(f"time since the first event, {unit}")
    ax.set_ylabel("arena, by its number")
    ax.set_title("lives of arenas")
    ax.locator_params("y", integer=True)
    if len(rows):
        add_legend(ax, own)
    return ax


def _times(rows: AnyRows, event: str) -> list[tuple[int, float]]:
    """Return the arena and the time of each event of one kind."""
    mine = rows[np.asarray(rows["event"]) == event]
    return list(zip(mine["arena"].tolist(), mine["time_ns"].astype(float).tolist(), strict=True))


# --- pinned spans ---------------------------------------------------------------------------------

_GROUPS_MAX = 12
_LABEL_MAX = 44
_GROUPS = {
    "site": "call site",
    "size": "size of slots",
    "age": "age, from the time shown to twice that",
    "lifetime": "lifetime, from the time shown to twice that",
    "thread": "thread",
}


@picture
def span_pinning(found: SpanPinning, ax: Axes | None = None) -> Axes:
    """Draw two bars per group: bytes that would be free without it, and free bytes that it pins.

    The twelve groups that pin the most are drawn; sizes, ages and lifetimes in ascending order.

    `found`: from `Recording.span_pinning()`.

    Raises:
        InvalidError: no span is partial.
    """
    if not len(found):
        raise InvalidError("no pinned spans to draw: no partial span has a live object")
    rows, labels = np.asarray(found.array)[:_GROUPS_MAX], found.labels()[:_GROUPS_MAX]
    if found.by in ("age", "lifetime", "size"):
        order = np.argsort(rows["group"])
        rows, labels = rows[order], [labels[i] for i in order]
    own = ax is None
    ax = ax or new_axes(height=1.8 + 0.42 * len(rows))
    most = max(int(rows["released_bytes"].max()), int(rows["kept_free_bytes"].max()))
    scale, unit = scale_of(most)
    places = np.arange(len(rows))
    for shift, name, part, label in (
        (-0.2, "released_bytes", "requested_bytes", "released without the group"),
        (0.2, "kept_free_bytes", "free_slot_bytes", "free bytes that it keeps, shared evenly"),
    ):
        part_bars(ax, places + shift, rows[name] / scale, part, 0.38, label=label)
    ax.set_yticks(places, [_short(label) for label in labels])
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"bytes of partial spans, {unit}")
    ax.set_ylabel(_GROUPS[found.by])
    one = found.ledger
    ax.set_title(
        f"{one.source or 'recording'} at {one.at}, table {one.table}:\n"
        f"{_format.plural(found.spans, 'partial span')}, {_format.size(found.free_bytes)} free in"
        " them"
    )
    add_legend(ax, own, columns=2)
    return ax


def _short(label: str) -> str:
    return label if len(label) <= _LABEL_MAX else label[: _LABEL_MAX - 3] + "..."
