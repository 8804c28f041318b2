# SPDX-License-Identifier: Apache-2.0
"""A picture of ablations: a panel each, a line a row and variant, its hot and its cold time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.drawing import DARK, OURS, pyplot, save
from runner.stats import Interval, interval

from studies.ablations.measure import COLD, HOT
from studies.ablations.report import Cell

_COLUMNS = 3
_LINE_INCHES, _FRAME_INCHES, _WIDTH_INCHES = 0.17, 0.42, 13.0
_APART = 0.16
_LEAST_NS = 0.5
"""Where the axis begins: a cold time is a difference, which noise may bring to 0 or below."""


def _columns(lines: dict[str, int]) -> list[list[str]]:
    """The panels in columns of about equal height, in the order given."""
    heights = {name: count * _LINE_INCHES + _FRAME_INCHES for name, count in lines.items()}
    wanted = sum(heights.values()) / _COLUMNS
    columns: list[list[str]] = [[]]
    for name, height in heights.items():
        filled = sum(heights[other] for other in columns[-1])
        if columns[-1] and len(columns) < _COLUMNS and filled + height / 2 > wanted:
            columns.append([])
        columns[-1].append(name)
    return columns


def _draw(axis: Any, cells: Sequence[Cell]) -> None:
    """Hot times as filled marks, cold ones as rings; ours are circles, the others squares."""
    lines = list(dict.fromkeys((cell.row, cell.variant) for cell in cells))
    for cell in cells:
        place = float(len(lines) - 1 - lines.index((cell.row, cell.variant)))
        place += _APART if cell.state == HOT else -_APART  # so that neither mark hides the other
        found = interval(cell.ns)
        colour = OURS if cell.ours else DARK
        axis.errorbar(
            [max(found.median, _LEAST_NS)],
            [place],
            xerr=_errors(found),
            fmt="o" if cell.ours else "s",
            markersize=4.5,
            color=colour,
            markerfacecolor=colour if cell.state == HOT else "white",
            elinewidth=0.8,
        )
    places = range(len(lines))
    axis.set_yticks(places, [f"{row}  {variant}" for row, variant in reversed(lines)])
    axis.set_ylim(-0.6, len(lines) - 0.4)
    axis.tick_params(labelsize=6.5)


def _errors(found: Interval) -> list[list[float]]:
    """Lengths of the interval to both sides, as far as the axis goes."""
    low, median, high = (max(each, _LEAST_NS) for each in (found.low, found.median, found.high))
    return [[median - low], [high - median]]


def _legend(figure: Any, plt: Any) -> None:
    def mark(shape: str, colour: str, inside: str, label: str) -> Any:
        return plt.Line2D(
            [], [], linestyle="", marker=shape, color=colour, markerfacecolor=inside, label=label
        )

    figure.legend(
        handles=[
            mark("o", OURS, OURS, "ours, instruction cache hot"),
            mark("o", OURS, "white", "ours, cold"),
            mark("s", DARK, DARK, "in its place, hot"),
            mark("s", DARK, "white", "in its place, cold"),
        ],
        loc="outside lower center",
        ncols=4,
        fontsize=8,
    )


def plot(cells: Sequence[Cell], path: Path, measured: str) -> Path:
    """Median nanoseconds with intervals, hot and cold on one axis, which all panels share.

    Args:
        cells: of any number of ablations.
        path: the PNG.
        measured: as of `measured_on`.

    Raises:
        BenchError: matplotlib is missing or the file cannot be written.
    """
    plt = pyplot()
    names = list(dict.fromkeys(cell.ablation for cell in cells))
    lines = {name: len({(c.row, c.variant) for c in cells if c.ablation == name}) for name in names}
    columns = _columns(lines)
    tallest = max(sum(lines[n] * _LINE_INCHES + _FRAME_INCHES for n in one) for one in columns)
    figure = plt.figure(figsize=(_WIDTH_INCHES, tallest + 0.5), layout="constrained")
    most = max(interval(cell.ns).high for cell in cells)
    for part, column in zip(
        figure.subfigures(1, len(columns), squeeze=False)[0], columns, strict=True
    ):
        axes = part.subplots(
            len(column),
            1,
            squeeze=False,
            gridspec_kw={"height_ratios": [lines[name] + 1.5 for name in column]},
        )[:, 0]
        for axis, name in zip(axes, column, strict=True):
            _draw(axis, [cell for cell in cells if cell.ablation == name])
            axis.set_xscale("log", base=2)
            axis.set_xlim(_LEAST_NS, 1.1 * most)
            axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_title(name, fontsize=8)
        axes[-1].set_xlabel(f"ns an operation ({HOT}, {COLD}): median, interval", fontsize=8)
    figure.suptitle("Parts of an allocation, and what is put in their place", x=0.01, ha="left")
    _legend(figure, plt)
    saved = save(figure, path, measured)
    plt.close(figure)
    return saved
