# SPDX-License-Identifier: Apache-2.0
"""Pictures over the size of a request: what is wasted on each, and how often each is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from spanwise import _format
from spanwise.plots.style import COLOURS, in_style, new_axes
from spanwise.results.rows import AnyRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.tables.table import SizeClassTable


@in_style
def waste(
    tables: Sequence[SizeClassTable], ax: Axes | None = None, *, largest_bytes: int | None = None
) -> Axes:
    """Waste of each size, in percent of its slot, under one or more tables.

    Args:
        tables: the tables.
        ax: where to draw; None makes a new figure.
        largest_bytes: last size; None: the largest class of all.
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
            linewidth=2.4 if first else 0.9,  # the first is seen under the others
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


@in_style
def histogram(rows: AnyRows, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Requests by size, on logarithmic scales.

    Args:
        rows: what `Recording.histogram` gave.
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


@in_style
def boundaries(
    rows: AnyRows,
    tables: Sequence[SizeClassTable],
    ax: Axes | None = None,
    *,
    title: str = "",
) -> Axes:
    """Requests by size above the classes of tables: one row of ticks a table.

    Args:
        rows: what `Recording.histogram` gave.
        tables: the tables, such as the one in use and one that was found.
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
