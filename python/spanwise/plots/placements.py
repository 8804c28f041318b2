# SPDX-License-Identifier: Apache-2.0
"""Pictures of the room that allocators of ranges need beyond what is live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spanwise.errors import InvalidError
from spanwise.plots.style import COLOURS, in_style, new_axes
from spanwise.results.rows import AnyRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HATCHES = ("", "//", "..", "xx", "--", "\\\\")


@in_style
def extents(rows: AnyRows, sizes: str, ax: Axes | None = None) -> Axes:
    """Bars: room that was needed over the most that was live, by lifetimes and policy.

    The line is Robson's bound: what the worst programs of so much live and such sizes need of every
    allocator that moves nothing.

    Args:
        rows: what `lessons.placement.study` gave.
        sizes: which distribution of sizes of them to draw.
        ax: where to draw; None makes a new figure.

    Raises:
        InvalidError: no row has these sizes.
    """
    mine = rows[np.asarray(rows["sizes"]) == sizes]
    if not len(mine):
        raise InvalidError(f"no row has the sizes {sizes!r}")
    ax = ax or new_axes()
    policies = list(dict.fromkeys(mine["policy"].tolist()))
    lifetimes = list(dict.fromkeys(mine["lifetimes"].tolist()))
    at, width = np.arange(len(lifetimes)), 0.8 / len(policies)
    for i, policy in enumerate(policies):
        needed = [_row(mine, policy, life)["needed"] for life in lifetimes]
        ax.bar(
            at + width * (i - (len(policies) - 1) / 2),
            needed,
            0.9 * width,
            label=policy,
            color=COLOURS[1 + i % (len(COLOURS) - 1)],
            hatch=_HATCHES[i % len(_HATCHES)],
            edgecolor="white",
            lw=0,
        )
    bound = [_row(mine, policies[0], life)["bound"] for life in lifetimes]
    ax.hlines(bound, at - 0.45, at + 0.45, colors="black", lw=1.5, label="Robson's bound")
    ax.axhline(1, color="#444444", lw=0.8, ls=":")
    ax.set_xticks(at, lifetimes)
    ax.set_ylim(0)
    ax.set_xlabel("lifetimes")
    ax.set_ylabel("room, of the most live")
    ax.set_title(f"sizes: {sizes}")
    return ax


def _row(rows: AnyRows, policy: str, lifetimes: str) -> Any:
    return rows[(rows["policy"] == policy) & (rows["lifetimes"] == lifetimes)][0]
