# SPDX-License-Identifier: Apache-2.0
"""spanwise gctrace: summarize gctrace lines."""

from __future__ import annotations

import argparse

from spanwise import _format
from spanwise.commands._common import SubParsers, new_command, print_json
from spanwise.commands._show import show
from spanwise.errors import InvalidError
from spanwise.gc.trace import GcTrace, read_gctrace
from spanwise.results.rows import Rows

WINDOWS_NS = (10**6, 10**7, 10**8, 10**9)


def add_gctrace(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "gctrace",
        "spanwise gctrace gc.txt    # GODEBUG=gctrace=1 ./program 2>gc.txt",
        run_gctrace,
    )
    parser.add_argument(
        "file", metavar="FILE", help="stderr of one or more programs, or a log with it"
    )
    parser.add_argument(
        "--pauses",
        action="store_true",
        help="print a histogram of pauses and the minimum mutator utilization (MMU)",
    )
    parser.add_argument(
        "--stopped",
        action="store_true",
        help="count marking as a pause, for spanwise's non-incremental cycles",
    )


def _utilisation(trace: GcTrace, stopped: bool) -> Rows:
    """Return the utilization in round windows shorter than the run, and in the whole run."""
    whole = float(trace.utilisation(stopped=stopped)["window_ns"][-1])
    windows = [window for window in WINDOWS_NS if window < whole]
    return trace.utilisation([*windows, whole], stopped=stopped)


BAR = 38
"""Columns of the longest bar, which then ends at the 79th."""


def _print_pauses(trace: GcTrace, stopped: bool) -> None:
    rows = trace.pause_histogram(stopped=stopped)
    most = max(int(rows["calls"].max(initial=0)), 1)
    print("  pauses:")
    for row in rows:
        if row["calls"]:
            bar = "#" * -(-BAR * int(row["calls"]) // most)
            low, high = int(row["from_ns"]) / 1e3, int(row["to_ns"]) / 1e3
            ends = f"{_format.digits(low):>10} to {_format.digits(high):>10} µs"
            print(f"    {ends} {int(row['calls']):8} {bar}")
    parts = trace.processes
    for i, one in enumerate(parts, 1):
        which = f"process {i}" if len(parts) > 1 else "the program"
        print(f"  least share of a window that was left to {which}:")
        for row in _utilisation(one, stopped):
            window = _format.digits(row["window_ns"] / 1e6)
            print(f"    any {window:>10} ms {row['utilisation'] * 100:6.1f} %")


def run_gctrace(options: argparse.Namespace) -> int:
    """Prints the summary."""
    trace = read_gctrace(options.file)
    if not len(trace.array):
        torn = f", and {_format.plural(trace.torn_lines, 'torn one')}" if trace.torn_lines else ""
        raise InvalidError(
            f"{options.file}: no whole gctrace line{torn}; run the program with GODEBUG=gctrace=1"
            " (Go) or SPANWISE_DEBUG=gctrace=1"
        )
    if options.json:
        found = trace.to_dict()
        if options.pauses:
            found["pause_histogram"] = trace.pause_histogram(stopped=options.stopped).to_dicts()
            found["utilisation"] = [
                {"process": i, **row}
                for i, one in enumerate(trace.processes, 1)
                for row in _utilisation(one, options.stopped).to_dicts()
            ]
        print_json(found)
        return 0
    show(trace)
    if options.pauses:
        _print_pauses(trace, options.stopped)
    return 0
