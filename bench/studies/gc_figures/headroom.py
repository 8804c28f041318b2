# SPDX-License-Identifier: Apache-2.0
"""What the collector's headroom buys: time, peak RSS and pauses at paces of 25 to 400 percent.

The program is binary-trees. Printed for each pace, as medians: processor and elapsed time, peak
RSS, cycles, the longest and the median pause, and the least share of 10 ms that is the program's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import spanwise as sw
from runner.drawing import pyplot, save
from runner.provenance import measured_here

from studies.gc_figures.runs import Outcome, parser_of, run, write_page
from studies.pages import Table

PERCENTS = (25, 50, 100, 200, 400)
USUAL = 100  # the pace that all costs are divided by
WINDOW_NS = 10**7
HEADER = [
    *("GOGC, %", "CPU ms", "elapsed ms", "peak MiB", "cycles"),
    *("median pause, ms", "longest pause, ms", "least of 10 ms, %"),
]


def pauses_of(trace: sw.GcTrace) -> Any:
    """The pause of each cycle in milliseconds; cycles run at once."""
    rows = trace.array
    return (rows["start_ns"] + rows["mark_ns"] + rows["end_ns"]).astype(float) / 1e6


def utilisation(trace: sw.GcTrace) -> float:
    """Of windows of 10 ms, or of the whole time where that is shorter; 1.0 without cycles."""
    if not len(trace.array):
        return 1.0
    whole = float(trace.utilisation(stopped=True)["window_ns"][-1])
    return float(trace.utilisation([min(WINDOW_NS, whole)], stopped=True)["utilisation"][0])


def measures_of(made: Outcome) -> list[float]:
    """The figures of a run, in the order of HEADER."""
    pauses, figures = pauses_of(made.trace), made.figures
    return [
        figures["cpu_ns"] / 1e6,
        figures["wall_ns"] / 1e6,
        figures["peak_kib"] / 1024,
        float(len(pauses)),
        float(np.median(pauses)) if len(pauses) else 0.0,
        float(pauses.max(initial=0)),
        100 * utilisation(made.trace),
    ]


def draw(
    medians: dict[int, list[float]], told: dict[int, Outcome], path: Path, measured: str
) -> None:
    """Time and peak by pace, pauses by pace, and utilisation by window."""
    plt = pyplot()
    figure, (cost, pause, left) = plt.subplots(1, 3, figsize=(12.5, 3.8), layout="constrained")
    percents = list(medians)
    for column, label, style in ((0, "processor time", "o-"), (2, "peak RSS", "s--")):
        usual = medians[USUAL][column]
        cost.plot(percents, [medians[p][column] / usual for p in percents], style, label=label)
    for column, label, style in ((5, "longest", "o-"), (4, "median", "s--")):
        pause.plot(percents, [medians[p][column] for p in percents], style, label=label)
    for axis, name in ((cost, f"over that of {USUAL} %"), (pause, "pause, ms")):
        axis.set_xscale("log", base=2)
        axis.set_xticks(percents, [str(p) for p in percents])
        axis.set(xlabel="pace (GOGC), %", ylabel=name)
        axis.set_ylim(0)
        axis.legend()
    # Below the longest pause all of them are 0: the thinner ones lie on top, and none is hidden.
    looks = zip(("-", "--", "-.", ":", "-"), (5.5, 4, 2.8, 1.8, 0.8), strict=True)
    for (percent, made), (style, width) in zip(told.items(), looks, strict=False):
        if len(made.trace.array):
            rows = made.trace.utilisation(stopped=True)
            windows, shares = rows["window_ns"] / 1e6, 100 * rows["utilisation"]
            left.plot(windows, shares, style, linewidth=width, label=f"{percent} %")
    left.set(xscale="log", xlabel="length of a window, ms", ylabel="least left to the program, %")
    left.legend(title="pace")
    figure.suptitle("binary-trees on a collected heap, cycles at once")
    save(figure, path, measured)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and tells the page."""
    parser = parser_of("gc-headroom", __doc__, "-o headroom.md --plot headroom.png")
    parser.add_argument("--depth", type=int, default=18, help="of the trees (18)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.depth, options.rounds = min(options.depth, 10), 1
    program = options.build / "bench_collectors"
    runs: dict[int, list[Outcome]] = {percent: [] for percent in PERCENTS}
    for _ in range(options.rounds):
        for percent, made in runs.items():
            made.append(run(program, "trees", options.depth, BENCH_GC_PERCENT=str(percent)))
    medians = {
        percent: np.median([measures_of(one) for one in made], axis=0).tolist()
        for percent, made in runs.items()
    }
    rows = [
        [str(percent), *(f"{value:.4g}" for value in values)] for percent, values in medians.items()
    ]
    if options.plot:
        told = {percent: made[0] for percent, made in runs.items()}
        draw(medians, told, Path(options.plot), measured_here(options.build))
    text = (
        f"binary-trees of depth {options.depth}: a cycle begins when so many percent of what lived"
        " after the last one were allocated (4 MiB at least), and runs at once, so it is one pause."
        " Medians of the rounds; the last column is the minimum mutator utilisation of 10 ms."
    )
    tables = [Table("By pace", HEADER, rows)]
    words = ["gc-headroom", *(sys.argv[2:] if arguments is None else arguments)]
    write_page("What the collector's headroom buys", text, tables, options, words)
    return 0
