# SPDX-License-Identifier: Apache-2.0
"""spanwise build: the allocator with a table of one's own, as compiled C."""

from __future__ import annotations

import argparse
import sys

from spanwise.builds.build import BuildOptions, build_with
from spanwise.commands._common import SubParsers, new_command, print_json
from spanwise.commands._options import size
from spanwise.tables.families import NAMES_HELP


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "build",
        "generate the C of a table, build the library and the preloaded malloc with it",
        "spanwise build --table best.json -o best && spanwise replay json.swt --lib best",
        run,
    )
    parser.add_argument("--table", required=True, metavar="T", help=NAMES_HELP)
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="the folder; an old build is replaced"
    )
    parser.add_argument("--cc", metavar="CC", help="C compiler (default $CC, else cc)")
    parser.add_argument(
        "--no-malloc",
        action="store_true",
        help="the library alone: for tables whose classes malloc may not use",
    )
    parser.add_argument(
        "--cutoff",
        type=size,
        metavar="N",
        help="largest size with a specialised path, 0 to 1024 bytes (default 512)",
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="build a table of `spanwise optimize` that its evaluation rejected",
    )
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="compile every source: use no objects of earlier builds, and keep none",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="compilers at once")


def run(options: argparse.Namespace) -> int:
    """Builds, with a line on stderr for each step."""

    def say(line: str) -> None:
        print(f"spanwise build: {line}", file=sys.stderr)

    given = BuildOptions(
        options.cc,
        not options.no_malloc,
        options.cutoff,
        options.jobs,
        options.anyway,
        not options.no_cache,
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
