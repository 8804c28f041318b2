# SPDX-License-Identifier: Apache-2.0
"""A picture of ablations: a line of panels each, hot beside cold, a bar a row and variant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.drawing import OTHERS, OURS, bars, pyplot, save
from runner.stats import interval

from studies.ablations.measure import COLD, HOT
from studies.ablations.report import Cell

_BAR_INCHES, _FRAME_INCHES = 0.2, 0.75


def _draw(axis: Any, cells: Sequence[Cell]) -> None:
    shown = list(reversed(cells))
    found = [interval(cell.ns) for cell in shown]
    names = [f"{cell.row}  {cell.variant}" for cell in shown]
    bars(axis, names, found, [OURS if cell.ours else OTHERS for cell in shown])
    axis.set_ylim(-0.6, len(shown) - 0.4)
    axis.set_xlim(left=min(0.0, *(each.low for each in found)))
    axis.tick_params(labelsize=7)


def plot(cells: Sequence[Cell], path: Path) -> Path:
    """Median nanoseconds with intervals; ours in colour.

    Args:
        cells: of any number of ablations.
        path: the PNG.

    Raises:
        BenchError: matplotlib is missing or the file cannot be written.
    """
    plt = pyplot()
    names = list(dict.fromkeys(cell.ablation for cell in cells))
    bars = [sum(c.ablation == name and c.state == HOT for c in cells) for name in names]
    heights = [_BAR_INCHES * count + _FRAME_INCHES for count in bars]
    figure, axes = plt.subplots(
        len(names),
        2,
        figsize=(10, sum(heights)),
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
    )
    for line, name in zip(axes, names, strict=True):
        for axis, state in zip(line, (HOT, COLD), strict=True):
            _draw(axis, [c for c in cells if c.ablation == name and c.state == state])
            axis.set_title(f"{name}, instruction cache {state}", fontsize=8)
        line[1].set_yticks(line[1].get_yticks(), [])
    for axis in axes[-1]:
        axis.set_xlabel("ns an operation (median, interval)", fontsize=8)
    figure.tight_layout()
    saved = save(figure, path)
    plt.close(figure)
    return saved
