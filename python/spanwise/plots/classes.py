# SPDX-License-Identifier: Apache-2.0
"""Pictures over the number of classes of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise.plots.style import COLOURS, MARKERS, in_style, new_axes, scale_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from spanwise.optimizer.pareto import ParetoFront


@in_style
def pareto(points: ParetoFront, ax: Axes | None = None) -> Axes:
    """Resident beyond requested against the number of classes: one U for each kind of heap.

    Args:
        points: the Pareto front.
        ax: where to draw; None makes a new figure.
    """
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
    if own:
        ax.figure.legend(loc="outside lower left", ncols=3)
    else:
        ax.legend()
    return ax


def _beyond(curve: NDArray[np.void]) -> NDArray[np.float64]:
    """What is resident beyond what was requested, bytes."""
    beyond: NDArray[np.float64] = (
        curve["resident_bytes"].astype(np.float64) - curve["requested_bytes"]
    )
    return beyond


def _without_copies(
    curves: list[tuple[tuple[int, int], NDArray[np.void]]],
) -> list[tuple[list[str], NDArray[np.void]]]:
    """Curves without duplicates, each with all its names, so that no curve hides an equal one."""
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
