# SPDX-License-Identifier: Apache-2.0
"""Pictures of memory: where the bytes of ledgers are, and bytes over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.ledger.parts import PARTS
from spanwise.plots.style import PART_COLOURS, in_style, new_axes, scale_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.ledger.ledger import Ledger
    from spanwise.measure.replay_result import Replay


@in_style
def ledgers(rows: Sequence[Ledger], ax: Axes | None = None, *, labels: Sequence[str] = ()) -> Axes:
    """Ledgers as stacked bars, one a ledger; parts of 0 bytes in all of them are left out.

    Args:
        rows: the ledgers.
        ax: where to draw; None makes a new figure.
        labels: names of the bars; none: the tables' names.
    """
    own = ax is None
    ax = ax or new_axes(height=1.5 + 0.55 * len(rows))
    names = list(labels) or [ledger.table for ledger in rows]
    scale, unit = scale_of(max((ledger.held_bytes for ledger in rows), default=0))
    places = np.arange(len(rows))
    left = np.zeros(len(rows))
    for name, title in PARTS.items():
        lengths = np.array([getattr(ledger, name) for ledger in rows]) / scale
        if lengths.any():
            ax.barh(places, lengths, left=left, color=PART_COLOURS[name], label=title, height=0.62)
            left += lengths
    for place, ledger, end in zip(places, rows, left, strict=True):
        wasted = _format.share(ledger.waste_bytes, ledger.held_bytes)
        ax.annotate(
            f"{_format.size(ledger.held_bytes)}, {wasted} waste",
            (end, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.set_xlim(0, max(left.max(initial=0) * 1.32, 1e-9))
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"held, {unit}")
    first = rows[0] if rows else None
    if first is not None:
        when = f" at {first.at}" if first.at in ("peak", "end") else ""
        ax.set_title(f"{first.source or 'where the bytes are'}{when}")
    if own:
        ax.figure.legend(loc="outside lower left", ncols=5)
    else:
        ax.legend()
    return ax


@in_style
def timeline(samples: NDArray[np.void], ax: Axes | None = None, *, title: str = "") -> Axes:
    """Requested and held bytes over time.

    Args:
        samples: rows of `Recording.timeline`.
        ax: where to draw; None makes a new figure.
        title: the picture's title.
    """
    ax = ax or new_axes()
    seconds = samples["time_ns"] / 1e9
    over_time = bool(len(seconds)) and seconds[-1] > seconds[0]
    x: NDArray[Any] = seconds if over_time else samples["op"]
    scale, unit = scale_of(float(samples["held_bytes"].max(initial=0)))
    for name, label, colour in (
        ("held_bytes", "held", "#CCCCCC"),
        ("slot_bytes", "in slots", "#E69F00"),
        ("requested_bytes", "requested", "#0072B2"),
    ):
        ax.fill_between(
            x, samples[name] / scale, color=colour, label=label, step="post", linewidth=0
        )
    ax.set_xlabel("time, s" if over_time else "operations")
    ax.set_ylabel(unit)
    ax.set_ylim(bottom=0)
    if len(x) > 1:
        ax.set_xlim(x[0], x[-1])
    ax.set_title(title or "bytes over time")
    ax.legend(loc="upper left")
    return ax


@in_style
def replays(rows: Sequence[Replay], ax: Axes | None = None) -> Axes:
    """Resident bytes of replays over the operations, above what the recording has live.

    Args:
        rows: replays of one recording.
        ax: where to draw; None makes a new figure.
    """
    ax = ax or new_axes()
    scale, unit = scale_of(float(max(row.samples["rss_bytes"].max(initial=0) for row in rows)))
    for row in rows:
        ax.plot(row.samples["op"], row.samples["rss_bytes"] / scale, label=row.allocator)
    first = rows[0].samples
    ax.fill_between(
        first["op"], first["requested_bytes"] / scale, color="#CCCCCC", label="live", linewidth=0
    )
    ax.set_xlabel("operations")
    ax.set_ylabel(f"resident, {unit}")
    ax.set_xlim(0, max(int(first["op"].max(initial=1)), 1))
    ax.set_ylim(bottom=0)
    ax.set_title(f"replay of {rows[0].source}")
    ax.legend(loc="upper left")
    return ax
