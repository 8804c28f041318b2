# SPDX-License-Identifier: Apache-2.0
"""spanwise compare: ledgers of one recording under several tables, side by side."""

from __future__ import annotations

import argparse

from spanwise import errors, plots
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    each_of,
    new_command,
    open_recordings,
    print_json,
    warn_gaps,
)
from spanwise.measure.peers import PeerComparison, compare_peers, parse_peers
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import RecordingSet
from spanwise.tables.table import SizeClassTable


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "compare",
        "put the ledgers of a recording under several tables side by side",
        "spanwise compare json.swt --table go --table c16 --table mine.json",
        run,
    )
    _options.add_recording_options(parser)
    _options.add_tables_option(parser, "{}; give it again for each (default: go and c16)")
    parser.add_argument(
        "--peers",
        action="append",
        default=[],
        metavar="P,P,...",
        help="also replay under spanwise, glibc, jemalloc, mimalloc, tcmalloc: their real peak RSS"
        " beside the model under their tables (one recording)",
    )
    parser.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="replays of each peer (default 1)"
    )
    _options.add_plot_option(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the comparison."""
    if options.plot:
        plots.check_place(options.plot)
    tables = [SizeClassTable.named(name) for name in options.table or ("go", "c16")]
    recordings = open_recordings(options)
    given = _options.heap_options_of(options)
    comparison = recordings.compare(tables, options.at, options=given)
    peers = _peers(options, recordings)
    if options.plot:
        plots.save(comparison.plot(), options.plot)
    if options.json:
        print_json({**comparison.to_dict(), **({"peers": peers.to_dict()} if peers else {})})
    else:
        print(comparison, *(["", peers] if peers else []), sep="\n")
    return int(warn_gaps(each_of(recordings)))


def _peers(
    options: argparse.Namespace, recordings: Recording | RecordingSet
) -> PeerComparison | None:
    names = parse_peers(options.peers)
    if not names:
        return None
    if not isinstance(recordings, Recording):
        raise errors.InvalidError("--peers replays one recording; give one file")
    if len(recordings) == 0:
        return None
    return compare_peers(recordings, names, repeat=options.repeat)
