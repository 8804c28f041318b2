# SPDX-License-Identifier: Apache-2.0
"""Pictures of a run: nanoseconds by contender for each row, and ratios against targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.drawing import DARK, OTHERS, OURS, bars, pyplot, save
from runner.runs import Run
from runner.stats import interval

from scoreboard.judge import MET, MISSED
from scoreboard.report import columns_of
from scoreboard.scores import Score

# Of the style's cycle: met, missed; ours; and greys for whatever is only there to compare.
COLOURS = {MET: "#009E73", MISSED: "#D55E00"}


def plot_figures(run: Run, benches: Sequence[str], path: Path, measured: str) -> Path:
    """One panel a row: a bar a contender, median ns with its interval.

    Args:
        run: what was measured.
        benches: the rows drawn.
        path: the PNG.
        measured: as of `measured_on`.

    Raises:
        BenchError: matplotlib is missing or the file cannot be written.
    """
    plt = pyplot()
    columns = columns_of(run)
    across = min(4, len(benches))
    down = -(-len(benches) // across)
    figure, axes = plt.subplots(
        down, across, figsize=(4 * across, 0.8 + 0.28 * len(columns) * down), squeeze=False
    )
    for axis in axes.flat[len(benches) :]:
        axis.set_visible(False)
    for axis, bench in zip(axes.flat, benches, strict=False):
        shown = [(c, run.values(bench, c, "op")) for c in reversed(columns)]
        drawn = [(c, interval(series)) for c, series in shown if series]
        bars(
            axis,
            [c.label for c, _ in drawn],
            [found for _, found in drawn],
            [OURS if c.name == "spanwise" else OTHERS for c, _ in drawn],
        )
        axis.set_title(bench, fontsize=9)
        axis.set_xlabel("ns an operation", fontsize=8)
        axis.tick_params(labelsize=8)
    figure.tight_layout()
    saved = save(figure, path, measured)
    plt.close(figure)
    return saved


def plot_scoreboard(scores: Sequence[Score], path: Path, measured: str) -> Path:
    """Each row's ratio with its interval, and its target as a tick.

    Args:
        scores: the scoreboard.
        path: the PNG.
        measured: as of `measured_on`.

    Raises:
        BenchError: matplotlib is missing or the file cannot be written.
    """
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(9, 1.2 + 0.24 * len(scores)))
    for place, score in enumerate(reversed(scores)):
        limit, found = score.bar.limit, score.ratio
        if limit is not None:
            axis.plot(limit, place, marker="|", markersize=12, markeredgewidth=2, color=DARK)
        if score.bar.weaker is not None:
            axis.plot(score.target.target, place, marker="|", markersize=12, color=OTHERS)
        if found is not None:
            axis.errorbar(
                found.median,
                place,
                xerr=[[found.median - found.low], [found.high - found.median]],
                fmt="o",
                markersize=4,
                color=COLOURS.get(score.verdict, OTHERS),
            )
    axis.set_yticks(range(len(scores)), [score.target.name for score in reversed(scores)])
    axis.set_ylim(-0.7, len(scores) - 0.3)
    axis.set_xscale("log")
    axis.set_xticks([0.1, 0.2, 0.5, 1, 2, 5, 10])
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("")
    axis.axvline(1, color=DARK, linewidth=0.8, zorder=0)
    axis.set_xlabel(
        "ours / best peer (dot, interval), target (tick), what was asked (faint); smaller is better"
    )
    axis.set_title("Scoreboard")
    axis.legend(handles=_legend(plt, scores), loc="upper left", bbox_to_anchor=(1.01, 1))
    saved = save(figure, path, measured)
    plt.close(figure)
    return saved


def _legend(plt: Any, scores: Sequence[Score]) -> list[Any]:
    shown = dict.fromkeys(score.verdict for score in scores if score.ratio is not None)
    return [
        plt.Line2D([], [], marker="o", linestyle="", color=COLOURS.get(name, OTHERS), label=name)
        for name in shown
    ]
