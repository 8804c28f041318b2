# SPDX-License-Identifier: Apache-2.0
"""spanwise convert: a recording from what another tool wrote."""

from __future__ import annotations

import argparse
from pathlib import Path

from spanwise import _format
from spanwise.commands import _options
from spanwise.commands._common import SubParsers, new_command, print_json
from spanwise.errors import InvalidError
from spanwise.recordings.content import UNPACKED_FLOOR, UNPACKED_MULTIPLE
from spanwise.recordings.conversion import FORMS, OBJECTS_MAX, VALUES, convert


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "convert",
        "make a recording from a heap profile, or a trace, of another tool",
        "spanwise convert heap.pb.gz -o heap.swt",
        run,
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a heap profile of pprof, or as text of jemalloc (MALLOC_CONF=prof:true), gperftools,"
        " TCMalloc or Go (debug=1); jemalloc's statistics as JSON (MALLOC_CONF=stats_print:true,"
        "stats_print_opts:J); a trace of Android's memory_replay, a text or zipped; what heaptrack"
        " wrote; the file of glibc's mtrace(); an execution trace of Go 1.23 or later that was made"
        " with GODEBUG=traceallocfree=1 (sizes are those of slots, so round-up is not Go's)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.swt", help="default: the file's name with .swt, here"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace FILE.swt if it exists")
    parser.add_argument(
        "--from", choices=FORMS, dest="form", help="the format (default: by what is in the file)"
    )
    parser.add_argument(
        "--value",
        choices=VALUES,
        default="inuse",
        help="of a snapshot: inuse, what lives (default); alloc, all that was allocated",
    )
    parser.add_argument(
        "--objects",
        type=int,
        default=OBJECTS_MAX,
        metavar="N",
        help=f"of a snapshot at most so many; more are scaled down (default {OBJECTS_MAX:,})",
    )
    parser.add_argument(
        "--unpacked-max",
        type=_options.size,
        metavar="SIZE",
        help="of a packed file, the size to which it may unpack"
        f" (default {UNPACKED_MULTIPLE} times its own, at least {_format.size(UNPACKED_FLOOR)})",
    )


def run(options: argparse.Namespace) -> int:
    """Writes the recording and says what it lacks."""
    output = options.output or f"{Path(options.file).name.partition('.')[0]}.swt"
    if Path(output).is_file() and not options.force:
        raise InvalidError(f"{output}: exists already; give another name with -o, or --force")
    made = convert(
        options.file,
        output,
        form=options.form,
        value=options.value,
        most_objects=options.objects,
        unpacked_max=options.unpacked_max,
        force=options.force,
    )
    if options.json:
        print_json({"file": output, "remark": made.remark, "summary": made.summary.to_dict()})
        return 0
    peak = _format.size(made.summary.peak_requested_bytes)
    print(f"{output}: {_format.plural(made.events, 'event')}, peak {peak}")
    if made.remark:
        print(made.remark)
    return 0
