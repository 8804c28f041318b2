# SPDX-License-Identifier: Apache-2.0
"""A picture of the size classes of a ledger: which of them waste most, and by what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.plots.style import in_style, new_axes, scale_of, stacked_parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.ledger.ledger import Ledger

_OF_CLASSES = (
    *("roundup_bytes", "large_rounding_bytes", "tail_bytes"),
    *("free_slot_bytes", "cached_bytes"),
)
"""The parts that a class can waste; what large objects are rounded up by has a name of its own."""


@in_style
def waste_by_class(one: Ledger, ax: Axes | None = None, *, classes: int = 12) -> Axes:
    """The classes with most waste, a stacked bar each; large objects are a class of their own.

    Beside each bar stand its bytes and its share of all that the ledger wastes: metadata and free
    pages are of no class and are part of the whole, but of no bar.

    Args:
        one: the ledger.
        ax: where to draw; None makes a new figure.
        classes: at most so many bars.

    Raises:
        InvalidError: no class wastes a byte, or `classes` is less than 1.
    """
    if classes < 1:
        raise InvalidError(f"classes {classes}: at least one class must be drawn")
    rows = np.asarray(one.classes)
    parts = {name: _wasted(rows, name) for name in _OF_CLASSES}
    total: NDArray[np.int64] = np.sum(list(parts.values()), axis=0)
    wasting = int(np.count_nonzero(total))
    if not wasting:
        raise InvalidError("no waste to draw: no size class of the ledger has any")
    shown = np.argsort(-total, kind="stable")[: min(classes, wasting)]
    own = ax is None
    ax = ax or new_axes(height=1.6 + 0.3 * len(shown))
    scale, unit = scale_of(float(total[shown[0]]))
    stacked_parts(ax, {name: column[shown] / scale for name, column in parts.items()}, 0.72)
    for place, size in enumerate(total[shown].tolist()):
        told = f"{_format.size(size)}, {_format.share(size, one.waste_bytes)}"
        ax.annotate(
            told, (size / scale, place), xytext=(4, 0), textcoords="offset points", va="center"
        )
    ax.set_yticks(np.arange(len(shown)), [_name(rows[i]) for i in shown])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.25 * float(total[shown[0]]) / scale)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"held beyond requested, {unit}; and the share of all waste")
    ax.set_ylabel("slots of the class")
    rest = f"; the {len(shown)} of {wasting} with most" if len(shown) < wasting else ""
    ax.set_title(
        f"{one.source or 'heap'} at {one.at}, table {one.table}:\n"
        f"classes have {_format.size(int(total.sum()))} of {_format.size(one.waste_bytes)}"
        f" waste{rest}"
    )
    if own:
        ax.figure.legend(loc="outside lower left", ncols=5)
    else:
        ax.legend()
    return ax


def _wasted(rows: NDArray[np.void], name: str) -> NDArray[np.int64]:
    """Bytes of a part, one number a class. In row 0 the round-up is that of large objects."""
    large = np.asarray(rows["cls"]) == 0
    if name == "large_rounding_bytes":
        return np.where(large, rows["roundup_bytes"], 0).astype(np.int64)
    if name == "roundup_bytes":
        return np.where(large, 0, rows["roundup_bytes"]).astype(np.int64)
    found: NDArray[np.int64] = rows[name].astype(np.int64)
    return found


def _name(row: Any) -> str:
    return f"{int(row['size_bytes']):,} B" if row["cls"] else "large objects"
