# SPDX-License-Identifier: Apache-2.0
"""spanwise optimize: a size-class table for recordings, tried beside the stock ones."""

from __future__ import annotations

import argparse

from spanwise import _format, plots
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    new_command,
    print_json,
    told_gaps,
)
from spanwise.commands._options import add_plot_option, add_tables_option
from spanwise.errors import InvalidError
from spanwise.optimizer.fit import HELD
from spanwise.optimizer.frontier import Frontier
from spanwise.optimizer.optimum import Optimum
from spanwise.optimizer.profile import OBJECTIVES
from spanwise.optimizer.search import optimize
from spanwise.recordings.outputs import check_output
from spanwise.recordings.recording_set import RecordingSet
from spanwise.tables.table import SizeClassTable


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "optimize",
        "find a table that holds less for recordings than the stock ones, try it on others",
        "spanwise optimize json.swt --classes 32 --holdout other.swt -o best.json",
        run,
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE.swt", help="recordings to fit the table to"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="TABLE.json",
        help="write the found table as a table file, if it holds less than the stock table",
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="write it even if it does not; the status stays 1",
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
        help="what proposes the table: round-up and tail over all allocations, time, the peak"
        " (default); held: the one of several that holds least when simulated",
    )
    parser.add_argument(
        "--holdout",
        action="append",
        default=[],
        metavar="OTHER.swt",
        help="try the found table on it, too; give it again for each",
    )
    add_tables_option(parser, "try this table, too: {}; give it again for each")
    parser.add_argument(
        "--weight",
        action="append",
        type=float,
        metavar="W",
        help="how much a recording counts, one for each FILE.swt (default: bytes are added up)",
    )
    rules = parser.add_argument_group("rules")
    rules.add_argument(
        "--largest",
        type=_options.size,
        default=32768,
        metavar="N",
        help="largest class, bytes (32768)",
    )
    rules.add_argument(
        "--page-bytes",
        type=_options.size,
        default=8192,
        metavar="N",
        help="page of the table (8192)",
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
    _options.add_valid_prefix_option(parser)


def run(options: argparse.Namespace) -> int:
    """Finds, tries, writes and prints the table; 1 where the stock table stays."""
    if options.output:
        _check_table_file(options.output)
    if options.plot:
        plots.check_place(options.plot)
    fitted = RecordingSet.open(options.files, options.valid_prefix)
    held_out = RecordingSet.open(options.holdout, options.valid_prefix) if options.holdout else None
    if fitted.events == 0:
        return int(told_gaps(fitted))
    best = _optimum(options, fitted, held_out)
    frontier = best.make_frontier() if options.frontier or options.plot else None
    if options.plot and frontier is not None:
        plots.save(frontier.plot(), options.plot)
    written = options.output if options.output and (best.holds or options.anyway) else None
    if written:
        best.table.to_json(written)
    if options.json:
        told = _as_json(best, frontier if options.frontier else None)
        print_json({**told, "written": written})
    else:
        _print(best, frontier if options.frontier else None)
        if options.output:
            print(_file_line(best, options.output, written is not None))
    return int(told_gaps([*fitted, *(held_out or ())]) or not best.holds)


def _check_table_file(path: str) -> None:
    """Before the work: every command knows a table file by its name."""
    check_output(path, json=True)
    if not path.endswith(".json"):
        raise InvalidError(f"{path}: a table file ends in .json; give another name")


def _optimum(
    options: argparse.Namespace, fitted: RecordingSet, held_out: RecordingSet | None
) -> Optimum:
    """The search and the trial."""
    tables = [SizeClassTable.named(name) for name in options.table or ()]
    return optimize(
        fitted,
        options.classes,
        options.objective,
        align=options.align,
        holdout=held_out,
        tables=tables,
        largest_bytes=options.largest,
        page_bytes=options.page_bytes,
        pages=options.pages,
        partial=options.partial,
        prior=options.prior,
        weights=options.weight,
        name=options.name,
    )


def _print(best: Optimum, frontier: Frontier | None) -> None:
    if frontier is not None:
        print(f"bytes at the peak, simulated\n{frontier}\n")
    print(best)


def _file_line(best: Optimum, place: str, written: bool) -> str:
    if not written:
        return f"{place} was not written; --anyway writes {best.table.name} nevertheless"
    return f"wrote {place} ({best.table.name}, {_format.plural(len(best.table), 'class')})"


def _as_json(best: Optimum, frontier: Frontier | None) -> dict[str, object]:
    value: dict[str, object] = best.to_dict()
    if frontier is not None:
        value["frontier"] = frontier.to_dict()
    return value
