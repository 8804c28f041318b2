# SPDX-License-Identifier: Apache-2.0
"""spanwise explain: what happens to one request."""

from __future__ import annotations

import argparse

from spanwise.commands import _sizes
from spanwise.commands._common import SubParsers, new_command, print_json
from spanwise.commands._options import add_table_option
from spanwise.tables.table import SizeClassTable


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "explain",
        "show what happens to one request: class, span, waste, page rounding",
        "spanwise explain 33 --table go",
        run,
    )
    parser.add_argument("size", metavar="SIZE", help=f"bytes requested; {_sizes.HELP}")
    add_table_option(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the explanation."""
    table = SizeClassTable.named(options.table)
    explanation = table.explain(_sizes.parse_size(options.size))
    if options.json:
        print_json(explanation.to_dict())
    else:
        print(explanation)
    return 0
