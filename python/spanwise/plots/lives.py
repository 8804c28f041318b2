# SPDX-License-Identifier: Apache-2.0
"""Pictures of lifetimes: how long objects of each size lived."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.plots.style import in_style, new_axes, time_scale_of
from spanwise.results.rows import AnyRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TICKS = 8
"""About so many numbers an axis."""


@in_style
def lifetimes(rows: AnyRows, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Bytes by size and lifetime, both in powers of two; a column on the right is never freed.

    Args:
        rows: what `Recording.lifetimes(by="size")` gave.
        ax: where to draw; None makes a new figure.
        title: of the picture; none: "bytes by size and lifetime".

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
    column = np.where(freed, life - first, most - first + 2)  # an empty column stands between
    np.add.at(grid, (size - low, column), rows["total_bytes"].astype(float))
    _cells(ax, np.ma.masked_equal(grid, 0))
    _axis_names(ax, low, first, grid.shape)
    ax.set_title(title or "bytes by size and lifetime")
    return ax


def _log2(values: Any) -> Any:
    """Exponents of powers of two; 0 counts as 1."""
    return np.log2(np.maximum(values.astype(float), 1)).astype(int)


def _time(ns: int) -> str:
    scale, unit = time_scale_of(2 * ns)  # 1 of a unit, not 1,049 of the one below
    return f"{ns / scale:,.0f} {unit}"


def _cells(ax: Axes, grid: Any) -> None:
    colors = importlib.import_module("matplotlib.colors")
    least, most = float(grid.min()), float(grid.max())
    norm = colors.LogNorm(least, max(most, 2 * least))
    mesh = ax.pcolormesh(grid, norm=norm, cmap="cividis_r", edgecolors="white", linewidth=0.5)
    figure: Any = ax.figure
    bar = figure.colorbar(mesh, ax=ax, fraction=0.04, pad=0.02)
    bar.set_label("allocated, bytes")
    ax.grid(visible=False)


def _axis_names(ax: Axes, low: int, first: int, shape: tuple[int, ...]) -> None:
    """The lower end of each row and column; the last column is of what is never freed."""
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
