# SPDX-License-Identifier: Apache-2.0
"""The picture of a run: time and peak RSS of each program, every allocator against glibc."""

from __future__ import annotations

from pathlib import Path

from runner.contenders import SPANWISE
from runner.drawing import pyplot, save
from runner.errors import BenchError

from real.field import GLIBC
from real.measure import Measured
from real.report import spread
from real.verdict import TITLES, counting

OURS, OTHERS = "#2f6690", ("#b3432b", "#2a7f62", "#c9922b", "#7a5195", "#8a8f98")
MARKS = "sD^vP"
DRAWN = ("wall_s", "peak_rss_bytes")


def plot_real(measured: Measured, path: Path, where: str) -> Path:
    """Two panels, time and memory; a line a program, a mark an allocator, glibc = 1.

    Args:
        measured: at least one finished repetition with a program that counts.
        path: the PNG.
        where: as of `measured_here`.

    Raises:
        BenchError: nothing to draw, matplotlib is missing or the file cannot be written.
    """
    programs = counting(measured)
    if not programs:
        raise BenchError(f"{path}: no program ran under every allocator, so there is no picture")
    plt = pyplot()
    rows = [*programs, "geometric mean"]
    places = list(range(len(rows), 0, -1))
    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(11, 1.2 + 0.3 * len(rows)))
    names = [c.name for c in measured.contenders if c.name not in (GLIBC, SPANWISE)]
    for axis, metric in zip(axes, DRAWN, strict=True):
        for number, name in enumerate([*names, SPANWISE]):
            ours = name == SPANWISE
            axis.plot(
                spread(measured, metric, name),
                places,
                linestyle="",
                marker="o" if ours else MARKS[number % len(MARKS)],
                markersize=8 if ours else 5,
                color=OURS if ours else OTHERS[number % len(OTHERS)],
                label=name,
            )
        axis.axvline(1, color="#333333", linewidth=0.8)
        axis.axhline(1.5, color="#d0d3d8", linewidth=0.8)
        axis.set_xlabel(f"{TITLES[metric]} / glibc's; smaller is better")
        axis.grid(axis="y", color="#eceef0")
    axes[0].set_yticks(places, rows)
    axes[1].legend(fontsize=8)
    figure.tight_layout()
    saved = save(figure, path, where)
    plt.close(figure)
    return saved
