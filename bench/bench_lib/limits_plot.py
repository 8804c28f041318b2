# SPDX-License-Identifier: Apache-2.0
"""A picture of limits: a panel a row, prototypes above ours and the peers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench_lib.limits import PROTOTYPE, Line
from bench_lib.plots import MIDDLE, OTHERS, OURS, bars, pyplot, save
from bench_lib.stats import interval

_COLOURS = {PROTOTYPE: MIDDLE, "ours": OURS}
_BAR_INCHES, _FRAME_INCHES, _ACROSS = 0.2, 0.75, 2


def plot(lines: Sequence[Line], path: Path) -> Path:
    """Median ns with intervals: prototypes, ours, peers, each in a colour.

    Args:
        lines: of any number of rows.
        path: the PNG.

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
    saved = save(figure, path)
    plt.close(figure)
    return saved
