# SPDX-License-Identifier: Apache-2.0
"""Pictures of pinned spans: what holds partial spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.plots.style import PART_COLOURS, PART_HATCHES, in_style, new_axes, scale_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.recordings.span_pinning import SpanPinning

_MOST = 12
_WIDTH = 44
_GROUPS = {
    "site": "call site",
    "size": "size of slots",
    "age": "age, from the time shown to twice that",
    "lifetime": "lifetime, from the time shown to twice that",
    "thread": "thread",
}


@in_style
def span_pinning(found: SpanPinning, ax: Axes | None = None) -> Axes:
    """Of each group two bars: what would come free without it, and the free bytes that it keeps.

    The twelve groups without which most comes free; ages and lifetimes stand in order of time.

    Args:
        found: what `Recording.span_pinning` gave.
        ax: where to draw; None makes a new figure.

    Raises:
        InvalidError: no span is partial.
    """
    if not len(found):
        raise InvalidError("no pinned spans to draw: no partial span has a live object")
    rows, labels = np.asarray(found.array)[:_MOST], found.labels()[:_MOST]
    if found.by in ("age", "lifetime", "size"):
        order = np.argsort(rows["group"])
        rows, labels = rows[order], [labels[i] for i in order]
    own = ax is None
    ax = ax or new_axes(height=1.8 + 0.42 * len(rows))
    most = max(int(rows["released_bytes"].max()), int(rows["kept_free_bytes"].max()))
    scale, unit = scale_of(most)
    places = np.arange(len(rows))
    for shift, name, part, label in (
        (-0.2, "released_bytes", "requested_bytes", "would come free without the group"),
        (0.2, "kept_free_bytes", "free_slot_bytes", "free bytes that it keeps, shared evenly"),
    ):
        ax.barh(
            places + shift,
            rows[name] / scale,
            0.38,
            color=PART_COLOURS[part],
            hatch=PART_HATCHES.get(part),
            edgecolor="white",
            linewidth=0,
            label=label,
        )
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
    if own:
        ax.figure.legend(loc="outside lower left", ncols=2)
    else:
        ax.legend()
    return ax


def _short(label: str) -> str:
    return label if len(label) <= _WIDTH else label[: _WIDTH - 3] + "..."
