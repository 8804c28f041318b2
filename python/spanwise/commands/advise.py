# SPDX-License-Identifier: Apache-2.0
"""spanwise advise: say what a program wastes and what to change."""

from __future__ import annotations

import argparse

from spanwise.commands import _options
from spanwise.commands._common import SubParsers, new_command, print_json, show, warn_gaps
from spanwise.errors import InvalidError
from spanwise.measure.bench import bench
from spanwise.measure.bench_cases import EVERYBODY, ONE_ARENA, case_of
from spanwise.measure.bench_result import BenchResult
from spanwise.measure.peers import compare_peers, parse_peers
from spanwise.measure.replayer import PEERS
from spanwise.optimizer.search import optimize
from spanwise.recordings.recording import Recording
from spanwise.tables.table import SizeClassTable


def add_advise(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "advise",
        "spanwise advise json.swt",
        run_advise,
    )
    parser.add_argument("file", metavar="FILE.swt", help="the recording")
    _options.add_table_option(parser)
    parser.add_argument(
        "--fit", action="store_true", help="also fit a table, as spanwise optimize does"
    )
    parser.add_argument(
        "--peers",
        action="append",
        default=[],
        metavar="P,P,...",
        help="also replay under spanwise, glibc, jemalloc, mimalloc, tcmalloc and compare peak RSS",
    )
    parser.add_argument(
        "--bench",
        action="store_true",
        help="also run the recorded command again, here, under each installed allocator",
    )
    parser.add_argument(
        "--ignore-output",
        action="store_true",
        help="with --bench: the output may differ from run to run",
    )
    _options.add_valid_prefix_option(parser)
    _options.add_placement_options(parser.add_argument_group("placement"))


def _bench(recording: Recording, ignore_output: bool) -> BenchResult:
    """Run the recorded command under each installed allocator, in five rounds."""
    if not recording.arguments:
        raise InvalidError(f"{recording.name}: --bench: the recording has no command; omit it")
    allocators = list(EVERYBODY)
    if recording.allocator == "glibc" and recording.summary.threads > 1:
        allocators.append(ONE_ARENA)
    return bench([case_of(recording.arguments)], allocators, ignore_output=ignore_output)


def run_advise(options: argparse.Namespace) -> int:
    """Prints the verdict and the advice."""
    table = SizeClassTable.named(options.table)
    heap = _options.heap_options_of(options)
    recording = Recording.open(options.file, options.valid_prefix)
    names = parse_peers(options.peers)
    if names and recording.allocator in PEERS:  # to compare with
        names = list(dict.fromkeys((*names, recording.allocator)))
    fitted = optimize(recording) if options.fit and recording.events else None
    peers = compare_peers(recording, names) if names and recording.events else None
    runs = _bench(recording, options.ignore_output) if options.bench else None
    found = recording.advice(table, fitted=fitted, peers=peers, runs=runs, options=heap)
    if options.json:
        print_json(found.to_dict())
    else:
        show(found)
    return int(warn_gaps([recording]))
