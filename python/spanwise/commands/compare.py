# SPDX-License-Identifier: Apache-2.0
"""spanwise compare: ledgers of one recording under several tables, side by side."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from spanwise import plots
from spanwise.commands._common import (
    TABLE_HELP,
    add_recording_options,
    event_count,
    heap_knobs,
    new_command,
    open_recordings,
    print_json,
    progress_bar,
)
from spanwise.sizeclass import SizeClassTable

if TYPE_CHECKING:
    from spanwise.commands._common import SubParsers


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "compare",
        "put the ledgers of a recording under several tables side by side",
        "spanwise compare json.swt --table go --table c16 --table mine.json",
        run,
    )
    add_recording_options(parser)
    parser.add_argument(
        "--table",
        action="append",
        metavar="T",
        help=f"{TABLE_HELP}; give it again for each (default: go and c16)",
    )
    parser.add_argument("--plot", metavar="FILE.png", help="also draw it")


def run(options: argparse.Namespace) -> int:
    """Prints the comparison."""
    tables = [SizeClassTable.named(name) for name in options.table or ("go", "c16")]
    recordings = open_recordings(options)
    with progress_bar(event_count(recordings) * len(tables), "compare") as progress:
        comparison = recordings.compare(
            tables, options.at, progress=progress, **heap_knobs(options)
        )
    if options.plot:
        plots.save(comparison.plot(), options.plot)
    if options.json:
        print_json(comparison.to_dict())
    else:
        print(comparison)
    return 0
