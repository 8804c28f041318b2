# SPDX-License-Identifier: Apache-2.0
"""Pictures of limits: an overview, a line a row; and every step, a panel a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.drawing import DARK, MIDDLE, OTHERS, OURS, bars, pyplot, save
from runner.stats import interval, median
from runner.text import number

from studies.limits.lines import PROTOTYPE, Line

# Steps that meet every requirement of their row, with the arguments that ours have there.
WHOLE = (
    *("transition", "hinted", "fetched", "claimed"),
    *("bitmap", "hints", "hints-all", "stack", "fresh-split"),
    *("called-transition", "called-hinted"),
)
_COLOURS = {PROTOTYPE: MIDDLE, "ours": OURS}
_BAR_INCHES, _FRAME_INCHES, _ACROSS = 0.2, 0.75, 2
_ROW_INCHES, _ROWS_INCHES, _HEAD_INCHES = 0.24, 7.5, 1.2
_COLUMNS = (1.02, 1.15, 1.45)  # of text beside the axis, in its widths


# --- overview -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """What the overview has of a row.

    Attributes:
        bench: the row.
        ours: the first of ours; None when it failed or there is none.
        whole: the fastest prototype that meets every requirement; None without one.
        peer: the fastest peer.
    """

    bench: str
    ours: Line | None
    whole: Line | None
    peer: Line


def _fastest(lines: Iterable[Line]) -> Line | None:
    return min(lines, key=lambda line: median(line.values), default=None)


def standings(lines: Sequence[Line]) -> list[Standing]:
    """Of each row that has a peer.

    Args:
        lines: of any number of rows.
    """
    found = []
    for bench in dict.fromkeys(line.bench for line in lines):
        row = [line for line in lines if line.bench == bench and line.values]
        ours = next((line for line in row if line.kind == "ours"), None)
        whole = _fastest(line for line in row if line.kind == PROTOTYPE and line.who in WHOLE)
        peer = _fastest(line for line in row if line.kind == "peer")
        if peer is not None:
            found.append(Standing(bench, ours, whole, peer))
    return found


def plot(lines: Sequence[Line], path: Path, measured: str) -> Path:
    """Ours and the best prototype that does as much, as ratios to the best peer of each row.

    Args:
        lines: of any number of rows.
        path: the PNG, at most 1,400 pixels high.
        measured: as of `measured_on`.

    Raises:
        BenchError: matplotlib is missing or the file cannot be written.
    """
    plt = pyplot()
    shown = standings(lines)
    inches = min(_ROW_INCHES * len(shown), _ROWS_INCHES) + _HEAD_INCHES
    figure, axis = plt.subplots(figsize=(6.5, inches))
    for place, standing in enumerate(reversed(shown)):
        _dot(axis, standing.whole, place, "D", MIDDLE)
        _dot(axis, standing.ours, place, "o", OURS)
        for column, text in zip(_COLUMNS, _texts(standing), strict=True):
            _beside(axis, column, place, text)
    for column, head in zip(_COLUMNS, ("ours, ns", "prototype", "best peer"), strict=True):
        _beside(axis, column, len(shown), head, weight="bold")
    axis.set_yticks(range(len(shown)), [standing.bench for standing in reversed(shown)])
    axis.set_ylim(-0.7, len(shown) - 0.3)
    axis.set_xscale("log")
    axis.set_xticks([0.1, 0.2, 0.5, 1, 2, 5])
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("")
    axis.axvline(1, color=DARK, linewidth=0.8, zorder=0)
    axis.set_xlabel("time over the best peer's; smaller is better")
    axis.set_title("Limits", pad=22)
    axis.legend(handles=_legend(plt), loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=3)
    saved = save(figure, path, measured)
    plt.close(figure)
    return saved


def _dot(axis: Any, line: Line | None, place: int, marker: str, colour: str) -> None:
    if line is None or line.over_peer is None:
        return
    found = line.over_peer
    axis.errorbar(
        found.median,
        place,
        xerr=[[found.median - found.low], [found.high - found.median]],
        fmt=marker,
        markersize=4.5,
        color=colour,
        elinewidth=0.8,
    )


def _texts(standing: Standing) -> tuple[str, str, str]:
    """The three columns beside a row."""
    ours, whole, peer = standing.ours, standing.whole, standing.peer
    return (
        number(median(ours.values)) if ours else "-",
        f"{number(median(whole.values))} {whole.who}" if whole else "-",
        f"{number(median(peer.values))} {peer.who.removesuffix(' (linked)')}",
    )


def _beside(axis: Any, column: float, place: float, text: str, **how: str) -> None:
    where = axis.get_yaxis_transform()  # x in widths of the axis, y in rows
    axis.text(column, place, text, transform=where, va="center", fontsize=7.5, **how)


def _legend(plt: Any) -> list[Any]:
    known = (("o", OURS, "ours"), ("D", MIDDLE, "best prototype with every requirement"))
    dots = [
        plt.Line2D([], [], marker=marker, linestyle="", color=colour, label=label)
        for marker, colour, label in known
    ]
    return [*dots, plt.Line2D([], [], color=DARK, linewidth=0.8, label="best peer")]


# --- every step -----------------------------------------------------------------------------------


def plot_steps(lines: Sequence[Line], path: Path, measured: str) -> Path:
    """Median ns with intervals: prototypes above ours and the peers, each in a colour.

    Args:
        lines: of any number of rows.
        path: the PNG.
        measured: as of `measured_on`.

    Raises:
        BenchError: matplotlib is missing or the file cannot be written.
    """
    plt = pyplot()
    benches = list(dict.fromkeys(line.bench for line in lines))
    across = min(_ACROSS, len(benches))
    drawn = {b: [line for line in lines if line.bench == b and line.values] for b in benches}
    groups = [benches[i : i + across] for i in range(0, len(benches), across)]
    heights = [_BAR_INCHES * max(len(drawn[b]) for b in g) + _FRAME_INCHES for g in groups]
    figure, axes = plt.subplots(
        len(groups),
        across,
        figsize=(5 * across, sum(heights)),
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
    )
    for axis in axes.flat[len(benches) :]:
        axis.set_visible(False)
    for axis, bench in zip(axes.flat, benches, strict=False):
        shown = drawn[bench][::-1]
        bars(
            axis,
            [line.who for line in shown],
            [interval(line.values) for line in shown],
            [_COLOURS.get(line.kind, OTHERS) for line in shown],
        )
        axis.set_title(f"{bench}, ns an operation", fontsize=9)
        axis.tick_params(labelsize=7)
    figure.tight_layout(w_pad=3)
    saved = save(figure, path, measured)
    plt.close(figure)
    return saved
