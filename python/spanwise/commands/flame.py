# SPDX-License-Identifier: Apache-2.0
"""spanwise flame: what live objects keep, by stack, as a picture."""

from __future__ import annotations

import argparse
from pathlib import Path

from spanwise import _format
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    each_of,
    new_command,
    print_json,
    simulation_of,
    warn_gaps,
)
from spanwise.report.export import check_flame
from spanwise.report.flame import OF


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "flame",
        "draw a flame graph of waste, or of resident bytes, by stack",
        "spanwise flame json.swt --of pinned -o json.svg",
        run,
    )
    _options.add_recording_options(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE.svg", help="the picture, which is replaced"
    )
    parser.add_argument(
        "--of",
        choices=OF,
        default="waste",
        help="waste (round-up and pinned spans, the default); round-up; pinned: free bytes of spans"
        " that the objects in them keep; resident; requested",
    )
    _options.add_table_option(parser)


def run(options: argparse.Namespace) -> int:
    """Writes the picture and says what it shows."""
    check_flame(options.output, options.of)
    table, recordings, heap = simulation_of(options)
    said = recordings.to_flame(options.output, options.of, table, options.at, options=heap)
    size = Path(options.output).stat().st_size
    if options.json:
        print_json({"file": options.output, "of": options.of, "bytes": size, "answer": said})
    else:
        print(f"{said}\nwrote {options.output} ({_format.size(size)}), for any browser")
    return int(warn_gaps(each_of(recordings)))
