# SPDX-License-Identifier: Apache-2.0
"""spanwise optimize: the size-class table that wastes least for recordings."""

from __future__ import annotations

import argparse

from spanwise import _format, plots
from spanwise._profile import OBJECTIVES
from spanwise.commands._common import SubParsers, new_command, print_json, progress_bar
from spanwise.commands._options import add_plot_option
from spanwise.frontier import Frontier
from spanwise.optimize import HELD, Optimum, optimize
from spanwise.trace import RecordingSet


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "optimize",
        "find the table that wastes least for recordings, judge it on others",
        "spanwise optimize json.swt --classes 32 --holdout other.swt -o best.json",
        run,
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE.swt", help="recordings to fit the table to"
    )
    parser.add_argument(
        "-o", "--output", metavar="TABLE.json", help="write the table as a table file"
    )
    parser.add_argument(
        "--classes", type=int, default=24, metavar="N", help="at most so many (default 24)"
    )
    parser.add_argument(
        "--align",
        type=int,
        default=16,
        metavar="8|16",
        help="16 (default): classes of 16 bytes and more are multiples of 16, as malloc owes",
    )
    parser.add_argument(
        "--objective",
        choices=(*OBJECTIVES, HELD),
        default="peak",
        help="what wasted bytes are counted over: all allocations, time, the peak (default); held:"
        " simulated at the peak, with partly empty spans and caches",
    )
    parser.add_argument(
        "--holdout",
        action="append",
        default=[],
        metavar="OTHER.swt",
        help="judge the table on it; give it again for each",
    )
    parser.add_argument(
        "--weight",
        action="append",
        type=float,
        metavar="W",
        help="how much a recording counts, one for each FILE.swt (default: bytes are added up)",
    )
    rules = parser.add_argument_group("rules")
    rules.add_argument(
        "--max-size", type=int, default=32768, metavar="N", help="largest class, bytes (32768)"
    )
    rules.add_argument(
        "--page-bytes", type=int, default=8192, metavar="N", help="page of the table (8192)"
    )
    rules.add_argument(
        "--pages", type=int, default=10, metavar="N", help="most pages of a span (10)"
    )
    rules.add_argument(
        "--partial",
        type=float,
        metavar="F",
        help="spans charged for each class (default 0.5; allocs: 0)",
    )
    rules.add_argument(
        "--prior",
        type=float,
        default=0.0,
        metavar="F",
        help="part of the weight that is spread over all sizes (0)",
    )
    rules.add_argument("--name", metavar="NAME", help="of the table (best-N-OBJECTIVE)")
    parser.add_argument(
        "--frontier", action="store_true", help="simulate waste against the number of classes"
    )
    add_plot_option(parser, "draw the frontier")


def run(options: argparse.Namespace) -> int:
    """Finds, judges, writes and prints the table."""
    best = optimize(
        RecordingSet.open(options.files),
        options.classes,
        options.objective,
        align=options.align,
        holdout=RecordingSet.open(options.holdout) if options.holdout else None,
        max_size=options.max_size,
        page_bytes=options.page_bytes,
        pages=options.pages,
        partial=options.partial,
        prior=options.prior,
        weights=options.weight,
        name=options.name,
    )
    frontier = _frontier(best) if options.frontier or options.plot else None
    if options.plot and frontier is not None:
        plots.save(frontier.plot(), options.plot)
    if options.output:
        best.table.to_json(options.output)
    if options.json:
        print_json(_as_json(best, frontier if options.frontier else None))
        return 0
    print(best)
    if options.frontier and frontier is not None:
        print(f"\nbytes at the peak, simulated\n{frontier}")
    if options.output:
        print(f"wrote {options.output} ({_format.plural(len(best.table), 'class')})")
    return 0


def _frontier(best: Optimum) -> Frontier:
    """The frontier, with a progress bar: it may take a minute."""
    with progress_bar(best.frontier_operations(), "frontier") as progress:
        return best.make_frontier(progress=progress)


def _as_json(best: Optimum, frontier: Frontier | None) -> dict[str, object]:
    value: dict[str, object] = best.to_dict()
    if frontier is not None:
        value["frontier"] = frontier.to_dict()
    return value
