# SPDX-License-Identifier: Apache-2.0
"""spanwise classes: the classes of a table."""

from __future__ import annotations

import argparse

from spanwise.commands._common import SubParsers, new_command, print_json
from spanwise.commands._options import add_table_option
from spanwise.tables.classes import file_specs
from spanwise.tables.table import SizeClassTable


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "classes",
        "show the classes of a table: sizes, spans, waste",
        "spanwise classes --table go",
        run,
    )
    add_table_option(parser)
    parser.add_argument(
        "--format",
        choices=("table", "json", "md", "c"),
        default="table",
        help="text, JSON, Markdown, or C for sw_table_create",
    )


def run(options: argparse.Namespace) -> int:
    """Prints the table."""
    table = SizeClassTable.named(options.table)
    if options.json or options.format == "json":
        print_json(table.generator_dict())
    elif options.format == "md":
        print(table.to_markdown())
    elif options.format == "c":
        print(_as_c(table))
    else:
        print(table)
    return 0


def _as_c(table: SizeClassTable) -> str:
    """The classes as an initialiser, and the call that makes the table of it."""
    file = table.to_dict()
    identifier = "".join(c if c.isalnum() and c.isascii() else "_" for c in table.name)
    lines = [
        f"/* Size classes of table {table.name.replace('*/', '* /')}: bytes, pages of a span,",
        " * pages of the first span (0: as many).",
        f" * Made by: spanwise classes --format c. Use: sw_table_create(name, {table.page_bytes},",
        f" * classes_{identifier}, {len(table)}, &table); */",
        "#include <spanwise/sizeclass.h>",
        "",
        f"static const sw_class_spec classes_{identifier}[{len(table)}] = {{",
        *(f"    {{{size}, {pages}, {first}}}," for size, pages, first in file_specs(file)),
        "};",
    ]
    return "\n".join(lines)
