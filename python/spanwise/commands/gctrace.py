# SPDX-License-Identifier: Apache-2.0
"""spanwise gctrace: what the gctrace lines of a program tell."""

from __future__ import annotations

import argparse

from spanwise.commands._common import SubParsers, new_command, print_json
from spanwise.gc.trace import read_gctrace


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "gctrace",
        "sum up gctrace lines, ours or Go's: pauses, marking, heap",
        "spanwise gctrace gc.txt    # GODEBUG=gctrace=1 ./program 2>gc.txt",
        run,
    )
    parser.add_argument("file", metavar="FILE", help="a program's error output")


def run(options: argparse.Namespace) -> int:
    """Prints the summary."""
    trace = read_gctrace(options.file)
    if options.json:
        print_json(trace.to_dict())
    else:
        print(trace)
    return 0
