# SPDX-License-Identifier: Apache-2.0
"""spanwise estimate: estimate sums over all objects from a sampled recording."""

from __future__ import annotations

import argparse
import sys

from spanwise.commands import _options
from spanwise.commands._common import SubParsers, add_description, new_command, print_json, show
from spanwise.recordings.sampled import GROUPS, SampledRecording


def add_estimate(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "estimate",
        "spanwise estimate app.swt --by class",
        run_estimate,
    )
    add_description(
        parser,
        "Each figure is followed by its 95 % interval. Partial spans and fragmentation depend on"
        " all objects, so they are not estimated.",
    )
    parser.add_argument("file", metavar="FILE.swt", help="made by spanwise record --sample")
    parser.add_argument(
        "--by", choices=GROUPS, default="site", help="how objects are grouped (default site)"
    )
    parser.add_argument(
        "--at",
        default="peak",
        metavar="WHEN",
        help="peak (most is requested, the default), end, or a time (such as 1.5s)",
    )
    _options.add_table_option(parser)
    _options.add_valid_prefix_option(parser)


def run_estimate(options: argparse.Namespace) -> int:
    """Prints the estimates; returns 1 if the recording has gaps."""
    recording = SampledRecording.open(options.file, options.valid_prefix)
    found = recording.estimate(options.by, options.at, options.table)
    if options.json:
        print_json(found.to_dict())
    else:
        show(found)
    for gap in recording.gaps:
        print(f"spanwise: {recording.name}: {gap}", file=sys.stderr)
    return int(bool(recording.gaps))
