# SPDX-License-Identifier: Apache-2.0
"""spanwise report: what a recording says, on one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from spanwise import _format
from spanwise.commands import _options
from spanwise.commands._common import SubParsers, new_command, print_json, warn_gaps
from spanwise.measure.peers import compare_peers, parse_peers
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import RecordingSet
from spanwise.report.page import check_place
from spanwise.tables.table import SizeClassTable


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "report",
        "write one page that shows what a recording wasted, and where",
        "spanwise report json.swt -o json.html",
        run,
    )
    parser.add_argument("file", metavar="FILE.swt", help="the recording")
    parser.add_argument(
        "-o",
        "--output",
        metavar="REPORT.html",
        help="the page, which is replaced (default: the recording's name with .html)",
    )
    _options.add_table_option(parser)
    parser.add_argument(
        "--holdout",
        action="append",
        default=[],
        metavar="OTHER.swt",
        help="try the table that is fitted to the recording on it, too; again for each",
    )
    parser.add_argument(
        "--peers",
        action="append",
        default=[],
        metavar="P,P,...",
        help="also replay it with real memory under spanwise, glibc, jemalloc, mimalloc, tcmalloc",
    )
    _options.add_valid_prefix_option(parser)
    _options.add_placement_options(parser.add_argument_group("placement"))


def run(options: argparse.Namespace) -> int:
    """Writes the page and says where it is."""
    output = options.output or str(Path(options.file).with_suffix(".html"))
    check_place(output)
    table = SizeClassTable.named(options.table)
    recording = Recording.open(options.file, options.valid_prefix)
    others = RecordingSet.open(options.holdout, options.valid_prefix) if options.holdout else ()
    names = parse_peers(options.peers)
    peers = compare_peers(recording, names) if names and len(recording) else None
    answer = recording.to_html(
        output, table, holdout=others, peers=peers, options=_options.heap_options_of(options)
    )
    size = Path(output).stat().st_size
    if options.json:
        print_json({"report": output, "bytes": size, "answer": answer})
    else:
        print(f"{answer}\nwrote {output} ({_format.size(size)}), for any browser")
    return int(warn_gaps([recording, *others]))
