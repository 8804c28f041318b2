# SPDX-License-Identifier: Apache-2.0
"""How the time of a collection grows with the heap: 1 to 50 million objects of 64 B.

Printed: nanoseconds of processor time that marking and sweeping take an object, all of which live,
in random graphs (four pointers each) and lists, with the system's usual pages and with huge ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from runner.drawing import pyplot, save
from runner.provenance import measured_here

from studies.gc_figures.runs import parser_of, run, write_page
from studies.pages import Table

SIZES = (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000)
SHUFFLED_MOST = 10_000_000
HUGE = {"BENCH_HUGE_PAGES": "1"}
LINES: dict[str, tuple[str, dict[str, str], str]] = {
    "random graph": ("random", {}, "o-"),
    "random graph, huge pages": ("random", HUGE, "o--"),
    "list, random order": ("shuffled", {}, "^-"),
    "list, huge pages, random order": ("shuffled", HUGE, "^--"),
    "list, order of addresses": ("list", {}, "s-"),
}
"""Row, environment and style by name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and tells the page."""
    parser = parser_of("gc-growth", __doc__, "-o growth.md --plot growth.png")
    parser.set_defaults(rounds=1)
    parser.add_argument("--objects", help="numbers of objects, with commas")
    options = parser.parse_args(arguments)
    sizes = [int(one) for one in options.objects.split(",")] if options.objects else list(SIZES)
    if options.quick:
        sizes, options.rounds = [1000, 2000], 1
    program = options.build / "bench_collectors"
    cases = [
        (name, size)
        for size in sizes
        for name, (row, _, _) in LINES.items()
        if row != "shuffled" or size <= SHUFFLED_MOST
    ]
    costs: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    for _ in range(options.rounds):
        for name, size in cases:
            row, environment, _ = LINES[name]
            told = run(program, row, size, **environment)
            costs[name, size].append(told.figures["cpu_ns"] / size)
    found = {case: float(np.median(of_rounds)) for case, of_rounds in costs.items()}
    rows = [
        [f"{size:,}", *(f"{found[n, size]:.1f}" if (n, size) in found else "-" for n in LINES)]
        for size in sizes
    ]
    if options.plot:
        ax = pyplot().subplots(figsize=(7.5, 4.5), layout="constrained")[1]
        for name, (_, _, style) in LINES.items():
            mine = [size for size in sizes if (name, size) in found]
            ax.plot(mine, [found[name, size] for size in mine], style, label=name)
        ax.set(xscale="log", xlabel="objects of 64 B, all alive")
        ax.set_ylabel("ns of processor time an object, marked and swept")
        ax.set_ylim(0)
        ax.set_title("A collection as the heap grows", loc="left")
        ax.legend()
        save(ax.figure, Path(options.plot), measured_here(options.build))
    text = (
        "Nanoseconds of processor time that a collection takes an object, all of which live: the"
        " least of three collections in a process. Lists in random order end at 10 million."
    )
    header = ["objects", *LINES]
    tables = [Table("By number of objects", header, rows)]
    words = ["gc-growth", *(sys.argv[2:] if arguments is None else arguments)]
    write_page("How a collection grows with the heap", text, tables, options, words)
    return 0
