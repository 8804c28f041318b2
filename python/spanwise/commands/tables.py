# SPDX-License-Identifier: Apache-2.0
"""Commands on size-class tables: classes, explain, build."""

from __future__ import annotations

import argparse
import sys

from spanwise import _format
from spanwise.builds.build import BuildOptions, build_with
from spanwise.commands import _options
from spanwise.commands._common import SubParsers, new_command, print_json, show
from spanwise.commands._options import add_option, add_table_option, size
from spanwise.errors import InvalidError
from spanwise.gc.trace import GcTrace, read_gctrace
from spanwise.results.rows import Rows
from spanwise.tables.classes import file_specs
from spanwise.tables.families import NAMES_HELP
from spanwise.tables.table import SizeClassTable

# --- classes --------------------------------------------------------------------------------------


def add_classes(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(commands, "classes", "spanwise classes --table go", run_classes)
    add_table_option(parser)
    add_option(
        parser,
        "--format",
        "text, JSON, Markdown, or C for sw_table_create",
        choices=("table", "json", "md", "c"),
        default="table",
    )


def run_classes(options: argparse.Namespace) -> int:
    """Prints the table."""
    table = SizeClassTable.named(options.table)
    if options.json or options.format == "json":
        print_json(table.generator_dict())
    elif options.format == "md":
        print(table.to_markdown())
    elif options.format == "c":
        print(_as_c(table))
    else:
        show(table)
    return 0


def _as_c(table: SizeClassTable) -> str:
    """Return the classes as a C initializer, with the call that makes a table of them."""
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


# --- explain --------------------------------------------------------------------------------------


def add_explain(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(commands, "explain", "spanwise explain 33 --table go", run_explain)
    parser.add_argument("size", metavar="SIZE", help=f"bytes requested; {_options.SIZE_HELP}")
    add_table_option(parser)


def run_explain(options: argparse.Namespace) -> int:
    """Prints the explanation."""
    table = SizeClassTable.named(options.table)
    explanation = table.explain(_options.parse_size(options.size))
    if options.json:
        print_json(explanation.to_dict())
    else:
        show(explanation)
    return 0


# --- build ----------------------------------------------------------------------------------------


def add_build(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "build",
        "spanwise build --table best.json -o best\n  spanwise replay json.swt --lib best",
        run_build,
    )
    add_option(parser, "--table T", NAMES_HELP, required=True)
    add_option(parser, "-o --output DIR", "directory; an old build is replaced", required=True)
    _options.add_force_option(parser)
    add_option(parser, "--cc CC", "C compiler (default $CC, else cc)")
    add_option(
        parser, "--no-malloc", "build only the library, for tables whose classes malloc may not use"
    )
    add_option(
        parser,
        "--cutoff N",
        "largest size with a specialised path, 0 to 1024 bytes (default 512)",
        type=size,
    )
    add_option(
        parser, "--anyway", "build a table of `spanwise optimize` that its evaluation rejected"
    )
    add_option(parser, "--jobs N", "number of parallel compilers", type=int)


def run_build(options: argparse.Namespace) -> int:
    """Builds, and prints a line to stderr for each step."""

    def say(line: str) -> None:
        print(f"spanwise build: {line}", file=sys.stderr)

    given = BuildOptions(
        options.cc, not options.no_malloc, options.cutoff, options.jobs, options.anyway
    )
    made = build_with(options.table, options.output, given, say)
    if options.json:
        print_json(made.to_dict())
        return 0
    print(f"{options.output}: table {made.stamp['table']['name']}, {made.stamp['table']['hash']}")
    print(f"  link:  -I{options.output}/include {options.output}/lib/libspanwise.so")
    if not options.no_malloc:
        print(f"  run:   LD_PRELOAD={made.malloc_library} PROGRAM")
    return 0


# --- gctrace --------------------------------------------------------------------------------------


WINDOWS_NS = (10**6, 10**7, 10**8, 10**9)


def add_gctrace(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "gctrace",
        "spanwise gctrace gc.txt    # GODEBUG=gctrace=1 ./program 2>gc.txt",
        run_gctrace,
    )
    parser.add_argument(
        "file", metavar="FILE", help="stderr of one or more programs, or a log with it"
    )
    add_option(
        parser, "--pauses", "print a histogram of pauses and the minimum mutator utilization (MMU)"
    )
    add_option(
        parser, "--stopped", "count marking as a pause, for spanwise's non-incremental cycles"
    )


def _utilisation(trace: GcTrace, stopped: bool) -> Rows:
    """Return the utilization in round windows shorter than the run, and in the whole run."""
    whole = float(trace.utilisation(stopped=stopped)["window_ns"][-1])
    windows = [window for window in WINDOWS_NS if window < whole]
    return trace.utilisation([*windows, whole], stopped=stopped)


BAR = 38
"""Columns of the longest bar, which then ends at the 79th."""


def _print_pauses(trace: GcTrace, stopped: bool) -> None:
    rows = trace.pause_histogram(stopped=stopped)
    most = max(int(rows["calls"].max(initial=0)), 1)
    print("  pauses:")
    for row in rows:
        if row["calls"]:
            bar = "#" * -(-BAR * int(row["calls"]) // most)
            low, high = int(row["from_ns"]) / 1e3, int(row["to_ns"]) / 1e3
            ends = f"{_format.digits(low):>10} to {_format.digits(high):>10} µs"
            print(f"    {ends} {int(row['calls']):8} {bar}")
    parts = trace.processes
    for i, one in enumerate(parts, 1):
        which = f"process {i}" if len(parts) > 1 else "the program"
        print(f"  least share of a window that was left to {which}:")
        for row in _utilisation(one, stopped):
            window = _format.digits(row["window_ns"] / 1e6)
            print(f"    any {window:>10} ms {row['utilisation'] * 100:6.1f} %")


def run_gctrace(options: argparse.Namespace) -> int:
    """Prints the summary."""
    trace = read_gctrace(options.file)
    if not len(trace.array):
        torn = f", and {_format.plural(trace.torn_lines, 'torn one')}" if trace.torn_lines else ""
        raise InvalidError(
            f"{options.file}: no whole gctrace line{torn}; run the program with GODEBUG=gctrace=1"
            " (Go) or SPANWISE_DEBUG=gctrace=1"
        )
    if options.json:
        found = trace.to_dict()
        if options.pauses:
            found["pause_histogram"] = trace.pause_histogram(stopped=options.stopped).to_dicts()
            found["utilisation"] = [
                {"process": i, **row}
                for i, one in enumerate(trace.processes, 1)
                for row in _utilisation(one, options.stopped).to_dicts()
            ]
        print_json(found)
        return 0
    show(trace)
    if options.pauses:
        _print_pauses(trace, options.stopped)
    return 0
