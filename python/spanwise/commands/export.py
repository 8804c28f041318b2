# SPDX-License-Identifier: Apache-2.0
"""spanwise export: a recording in the formats of other tools."""

from __future__ import annotations

import argparse
from pathlib import Path

from spanwise import _format
from spanwise.commands import _options
from spanwise.commands._common import SubParsers, new_command, print_json, warn_gaps
from spanwise.recordings.outputs import check_output
from spanwise.recordings.recording import Recording
from spanwise.report.export import FORMATS
from spanwise.report.stacks import VALUES
from spanwise.tables.table import SizeClassTable


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "export",
        "write a recording in a format of another tool",
        "spanwise export json.swt --to pprof -o json.pb.gz",
        run,
    )
    parser.add_argument("file", metavar="FILE.swt", help="the recording")
    parser.add_argument("--to", required=True, choices=FORMATS, help="the format")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="what is written, or replaced"
    )
    parser.add_argument(
        "--value",
        choices=tuple(VALUES),
        default="inuse-bytes",
        help="of each call site, for collapsed (default inuse-bytes)",
    )
    _options.add_at_option(parser)
    _options.add_table_option(parser)
    _options.add_valid_prefix_option(parser)
    _options.add_placement_options(parser.add_argument_group("placement"))


def run(options: argparse.Namespace) -> int:
    """Writes the file and says where it is."""
    check_output(options.output)
    table = SizeClassTable.named(options.table)
    recording = Recording.open(options.file, options.valid_prefix)
    recording.export(
        options.output,
        options.to,
        table,
        options.at,
        value=options.value,
        options=_options.heap_options_of(options),
    )
    size = Path(options.output).stat().st_size
    if options.json:
        print_json({"file": options.output, "format": options.to, "bytes": size})
    else:
        print(f"wrote {options.output} ({options.to}, {_format.size(size)})")
    return int(warn_gaps([recording]))
