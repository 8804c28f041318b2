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

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.optimizer.pareto import ParetoFront
    from spanwise.tables.table import SizeClassTable


@picture
def waste(
    tables: Sequence[SizeClassTable], ax: Axes | None = None, *, largest_bytes: int | None = None
) -> Axes:
    """Draw the waste of each size, in percent of its slot, under one or more tables.

    Args:
        tables: the tables.
        ax: where to draw; None makes a new figure.
        largest_bytes: the last size; None: the largest class of all tables.
    """
    ax = ax or new_axes()
    most = largest_bytes or max(table.largest_bytes for table in tables)
    sizes = np.arange(1, most + 1)
    for i, table in enumerate(tables):
        rounded = table.round_up(sizes)
        first = i == 0 and len(tables) > 1
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
    ax.set_title(f"round-up of each size under {', '.join(table.name for table in tables)}")
    if len(tables) > 1:
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
    """Draw the requests by size, and below them the classes of each table as a row of ticks.

    Args:
        rows: from `Recording.histogram`.
        tables: the tables.
        ax: where to draw; None makes a new figure.
        title: the picture's title.
    """
    ax = histogram(rows, ax or new_axes(height=3.4 + 0.3 * len(tables)), title=title)
    low, high = ax.get_ylim()
    step = (high / low) ** (0.09 if len(tables) < 4 else 0.3 / len(tables))
    names = []
    for i, table in enumerate(tables):
        bottom, top = low / step ** (i + 1), low / step ** (i + 0.3)
        sizes = table.classes["size_bytes"]
        ax.vlines(sizes, bottom, top, color=COLOURS[i % len(COLOURS)], linewidth=1.1)
        names.append((float(np.sqrt(bottom * top)), f"{table.name} ({len(table)})"))
    ax.set_ylim(low / step ** (len(tables) + 0.2), high)
    ax.axhline(low, color="#444444", linewidth=0.8)
    decades = [mark for mark in ax.get_yticks() if low <= mark <= high]
    ax.set_yticks([*decades, *(place for place, _ in names)])
    ax.set_yticklabels([*(f"{mark:,.0f}" for mark in decades), *(name for _, name in names)])
    ax.minorticks_off()
    ax.set_ylabel("requests; below them the classes of each table")
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
