# SPDX-License-Identifier: Apache-2.0
"""Pictures over the number of classes of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spanwise import _format
from spanwise.plots.style import in_style, new_axes, scale_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.optimizer.frontier import Frontier


@in_style
def frontier(points: Frontier, ax: Axes | None = None) -> Axes:
    """Held beyond requested against the number of classes: one U for each kind of heap.

    Args:
        points: the frontier.
        ax: where to draw; None makes a new figure.
    """
    ax = ax or new_axes()
    curves = [(pair, points.curve(*pair)) for pair in points.curves()]
    most = max(
        (float((c["held_bytes"] - c["requested_bytes"]).max()) for _, c in curves), default=1.0
    )
    scale, unit = scale_of(most)
    for (span_scale, caches), curve in curves:
        waste_bytes = (curve["held_bytes"] - curve["requested_bytes"]) / scale
        spans = "" if span_scale == 1 else f", spans x{span_scale}"
        caches_text = "caches as recorded" if caches == 0 else _format.plural(caches, "cache")
        (line,) = ax.plot(
            curve["classes"],
            waste_bytes,
            label=caches_text + spans,
            marker=".",
            linewidth=1.2,
            linestyle="-" if span_scale == 1 else "--",
        )
        least = int(np.argmin(waste_bytes))
        ax.plot(
            curve["classes"][least], waste_bytes[least], marker="o", color=line.get_color(), ms=8
        )
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    ax.set_yscale("log", base=2)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xlabel("classes")
    ax.set_ylabel(f"held beyond requested, {unit}")
    ax.set_title("waste at the peak; the least of each curve is marked")
    ax.legend(fontsize="small", ncols=2)
    return ax
