# SPDX-License-Identifier: Apache-2.0
"""The seed claim as a picture: ns by class, generic and specialised, and their ratios below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.drawing import DARK, pyplot, save
from runner.errors import BenchError
from runner.runs import Run

from studies.seed_claim import claim
from studies.seed_claim.claim import CUTOFF, Family, Series

COLOURS = {
    "inline": "#009E73",
    "specialised": "#0072B2",
    "generic": "#D55E00",
}
MARKS = {"inline": "^", "specialised": "o", "generic": "s"}


def _errorbars(axis: Any, points: Mapping[int, Any], name: str) -> None:
    medians, lengths = claim.spread(points)
    axis.errorbar(
        list(points),
        medians,
        yerr=lengths,
        marker=MARKS[name],
        markersize=3.5,
        linewidth=1,
        elinewidth=1,
        capsize=1.5,
        color=COLOURS[name],
        label=name,
    )


def _column(times: Any, ratios: Any, family: Family, classes: Mapping[int, Series]) -> None:
    from matplotlib import ticker  # noqa: PLC0415  (only pictures need it)

    _errorbars(times, claim.times(classes, family.generic), "generic")
    for label, name in family.special.items():
        _errorbars(times, claim.times(classes, label), name)
        points = claim.ratios(classes, label, family.generic)
        if points:
            _errorbars(ratios, points, name)
    ratios.axhline(1, color=COLOURS["generic"], linewidth=1)
    for axis in (times, ratios):
        axis.axvline(CUTOFF * 1.05, color=DARK, linewidth=0.8, linestyle=":")
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.tick_params(labelsize=8)
    times.set_title(family.title, fontsize=9.5)
    times.set_yscale("log")
    times.yaxis.set_major_locator(ticker.LogLocator(10, (1, 2, 5)))
    times.yaxis.set_major_formatter("{x:g}")
    times.yaxis.set_minor_formatter("")
    times.tick_params(labelbottom=False)
    times.annotate(
        f"specialised\nto {CUTOFF} B",
        (CUTOFF, 0.03),
        xycoords=("data", "axes fraction"),
        ha="right",
        va="bottom",
        fontsize=7,
        color=DARK,
    )
    times.legend(loc="upper left", fontsize=8)
    ratios.set_xlabel("class, bytes", fontsize=9)


def _alike(row: Sequence[Any]) -> None:
    """One scale for all panels of a row."""
    low = min(axis.get_ylim()[0] for axis in row)
    high = max(axis.get_ylim()[1] for axis in row)
    for axis in row:
        axis.set_ylim(low, high)


def plot(run: Run, about: str, path: Path) -> Path:
    """A column a family: ns by class with intervals, below it the ratio to the generic path.

    Args:
        run: rows of claim.FAMILIES.
        about: machine and versions, a line under the picture.
        path: the PNG.

    Raises:
        BenchError: no row of a family ran, matplotlib is missing, the file cannot be written.
    """
    found = claim.series_of(run)
    shown = [(family, claim.classes_of(family, found)) for family in claim.FAMILIES]
    shown = [(family, classes) for family, classes in shown if classes]
    if not shown:
        raise BenchError("--plot: none of the rows is a class; choose others with --rows")
    plt = pyplot()
    figure, axes = plt.subplots(
        2,
        len(shown),
        figsize=(3.9 * len(shown), 5.6),
        squeeze=False,
        sharex="col",
        gridspec_kw={"height_ratios": (3, 2)},
    )
    for (family, classes), times, ratios in zip(shown, axes[0], axes[1], strict=True):
        _column(times, ratios, family, classes)
    _alike(axes[0])
    _alike(axes[1])
    axes[0, 0].set_ylabel("ns an operation, log scale")
    axes[1, 0].set_ylabel("ratio to generic")
    figure.supxlabel(about, fontsize=7, color=DARK)
    figure.tight_layout()
    saved = save(figure, path)
    plt.close(figure)
    return saved
