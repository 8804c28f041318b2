# SPDX-License-Identifier: Apache-2.0
"""Pictures of collectors: how long they stop a program, and what cycles keep and free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spanwise.plots.style import in_style, new_axes, scale_of, time_scale_of
from spanwise.results.rows import AnyRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@in_style
def pauses(rows: AnyRows, ax: Axes | None = None) -> Axes:
    """The share of calls that took no longer than a time, one line a phase in which they began.

    Args:
        rows: with columns `phase` and `ns`, as `CollectedHeap.pauses`.
        ax: where to draw; None makes a new figure.
    """
    ax = ax or new_axes()
    scale, unit = time_scale_of(float(np.max(rows["ns"], initial=1)))
    for phase in sorted(set(rows["phase"].tolist())):
        times = np.sort(rows["ns"][rows["phase"] == phase].astype(float)) / scale
        share = np.arange(1, len(times) + 1) * 100 / len(times)
        ax.step(times, share, where="post", marker="o", ms=3, label=f"{phase} ({len(times)})")
    ax.set_xlabel(f"time of a call [{unit}]")
    ax.set_ylabel("calls that took no longer [%]")
    ax.set_ylim(0, 105)
    if len(rows):
        ax.legend(title="began while")
    return ax


@in_style
def cycles(rows: AnyRows, ax: Axes | None = None) -> Axes:
    """Bytes that each cycle kept and freed, stacked.

    Args:
        rows: as `CollectedHeap.cycles`.
        ax: where to draw; None makes a new figure.
    """
    ax = ax or new_axes()
    parts = {"kept": "marked_bytes", "freed": "freed_bytes", "freed by hand": "pending_bytes"}
    names = rows.dtype.names or ()
    columns = {
        label: rows[name].astype(float) if name in names else np.zeros(0)
        for label, name in parts.items()
    }
    most = max((float(np.max(column, initial=0)) for column in columns.values()), default=0.0)
    scale, unit = scale_of(most)
    bottom = np.zeros(len(rows))
    for label, column in columns.items():
        if column.any():
            ax.bar(rows["number"], column / scale, bottom=bottom, label=label, width=0.8)
            bottom += column / scale
    ax.set_xlabel("cycle")
    ax.set_ylabel(f"slots [{unit}]")
    if bottom.any():
        ax.legend()
    return ax
