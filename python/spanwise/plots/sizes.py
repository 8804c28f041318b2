# SPDX-License-Identifier: Apache-2.0
"""Pictures of waste and requests by size, and of waste by number of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.plots.style import (
    COLOURS,
    MARKERS,
    add_legend,
    new_axes,
    picture,
    scale_of,
)
from spanwise.results.rows import AnyRows
from spanwise.tables.table import as_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.optimizer.pareto import ParetoFront
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
        rows: from `Recording.histogram`.
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
) -> Axes:
    """Draw bytes of round-up by requested size under each table, and the classes below them.

    A step sums the round-up of all requests of a quarter of a doubling.

    Args:
        rows: from `Recording.histogram`.
        tables: the tables; the first one is drawn as an area.
        ax: where to draw; None makes a new figure.
        title: the picture's title.
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
    ax.set_ylabel(f"round-up of all requests, {unit}")
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
