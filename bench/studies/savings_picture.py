# SPDX-License-Identifier: Apache-2.0
"""What pictures of savings share: panels of one row a name, medians with intervals, a line at 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.drawing import DARK, pyplot
from spanwise.results.intervals import Interval

ROW_INCHES, ROWS_MIN = 0.3, 4
"""The height of a row, and the number of rows below which pictures do not get lower."""

LOSES, SAVES = "← loses", "saves →"


def panel_inches(rows: int) -> float:
    """Height of panels of so many rows, about."""
    return ROW_INCHES * max(rows, ROWS_MIN)


def panels(rows: Sequence[str], titles: Sequence[str], heading: str) -> tuple[Any, list[Any]]:
    """A figure with panels beside each other that share their rows, the first row on top.

    Args:
        rows: what the rows are called.
        titles: of the panels.
        heading: over the whole figure.
    """
    plt = pyplot()
    figure, found = plt.subplots(
        1,
        len(titles),
        sharey=True,
        squeeze=False,
        figsize=(3.0 + 2.4 * len(titles), 1.6 + panel_inches(len(rows))),
        layout="constrained",
    )
    axes = list(found[0])
    figure.suptitle(heading, x=0.01, ha="left", fontsize=10, fontweight="bold")
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, fontsize=9, fontweight="normal")
        ax.axvline(0, color=DARK, linewidth=0.8)
        ax.set_xlabel(f"{LOSES}   percent   {SAVES}")
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(rows)), rows)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    return figure, axes


def begin_group(axes: Sequence[Any], row: int, name: str) -> None:
    """Parts rows into groups: a line across all panels above one row, and the group's name."""
    if row:
        for ax in axes:
            ax.axhline(row - 0.5, color="#BBBBBB", linewidth=0.8)
    axes[-1].annotate(
        name,
        (1.02, row),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=8,
        style="italic",
    )


def marks(
    ax: Any, places: Sequence[float], found: Sequence[Interval | None], label: str, **look: Any
) -> None:
    """Medians with their intervals.

    Args:
        ax: the panel.
        places: of the rows.
        found: as many; None: there is none.
        label: in the legend.
        look: of the marks, as of `Axes.errorbar`.
    """
    known = [(place, one) for place, one in zip(places, found, strict=True) if one is not None]
    if not known:
        return
    ax.errorbar(
        [one.median for _, one in known],
        [place for place, _ in known],
        xerr=[
            [one.median - one.low for _, one in known],
            [one.high - one.median for _, one in known],
        ],
        linestyle="",
        label=label,
        **look,
    )
