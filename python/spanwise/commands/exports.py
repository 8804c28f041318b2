# SPDX-License-Identifier: Apache-2.0
"""Commands that convert: convert, export, flame, report."""

from __future__ import annotations

import argparse
from pathlib import Path

from spanwise import _format
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    each_of,
    new_command,
    open_recordings,
    print_json,
    show,
    simulation_of,
    warn_gaps,
)
from spanwise.commands._options import add_option
from spanwise.errors import InvalidError
from spanwise.recordings.conversion import (
    FORMS,
    OBJECTS_MAX,
    SNAPSHOT_VALUES,
    UNPACKED_FLOOR,
    UNPACKED_MULTIPLE,
    convert,
)
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import RecordingSet
from spanwise.report.export import FORMATS, check_flame
from spanwise.report.flame import OF
from spanwise.report.page import check_place
from spanwise.report.stacks import VALUES
from spanwise.results.files import check_output
from spanwise.tables.table import SizeClassTable

# --- convert --------------------------------------------------------------------------------------


def add_convert(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands, "convert", "spanwise convert heap.pb.gz -o heap.swt", run_convert
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="heap profile of pprof; text profile of jemalloc (MALLOC_CONF=prof:true), gperftools,"
        " TCMalloc or Go (debug=1); jemalloc's statistics as JSON (MALLOC_CONF=stats_print:true,"
        "stats_print_opts:J); trace of Android's memory_replay, text or zipped; file of heaptrack"
        " or of glibc's mtrace(); execution trace of Go 1.23 or later, with"
        " GODEBUG=traceallocfree=1 (its sizes are slot sizes, so Go's round-up is not in it)",
    )
    add_option(
        parser,
        "-o --output FILE.swt",
        "default: the file's name with .swt, in the current directory",
    )
    _options.add_force_option(parser, "replace FILE.swt if it exists")
    add_option(
        parser,
        "--from FORMAT",
        f"{', '.join(FORMS)} (default: detected from the content)",
        choices=FORMS,
        dest="form",
    )
    add_option(
        parser,
        "--value",
        "for a snapshot: inuse, live objects (default); alloc, all allocations",
        choices=SNAPSHOT_VALUES,
        default="inuse",
    )
    add_option(
        parser,
        "--objects N",
        f"most objects of a snapshot; more are scaled down (default {OBJECTS_MAX:,})",
        type=int,
        default=OBJECTS_MAX,
    )
    add_option(
        parser,
        "--unpacked-max SIZE",
        "size limit of a compressed file after decompression"
        f" (default {UNPACKED_MULTIPLE} times its own, at least {_format.size(UNPACKED_FLOOR)})",
        type=_options.size,
    )


def run_convert(options: argparse.Namespace) -> int:
    """Writes the recording and prints its gaps."""
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
    show(f"{output}: {_format.plural(made.events, 'event')}, peak {peak}")
    if made.remark:
        show(made.remark)
    return 0


# --- export ---------------------------------------------------------------------------------------


def add_export(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands, "export", "spanwise export json.swt --to pprof -o json.pb.gz", run_export
    )
    parser.add_argument("file", metavar="FILE.swt", help="the recording")
    add_option(parser, "--to FORMAT", ", ".join(FORMATS), required=True, choices=FORMATS)
    add_option(parser, "-o --output FILE", "file to write; it is replaced", required=True)
    _options.add_force_option(parser)
    add_option(
        parser,
        "--value VALUE",
        f"value of each call site, for collapsed: {', '.join(VALUES)} (default inuse-bytes)",
        choices=tuple(VALUES),
        default="inuse-bytes",
    )
    _options.add_names_options(parser)
    _options.add_at_option(parser)
    _options.add_table_option(parser)
    _options.add_valid_prefix_option(parser)
    _options.add_placement_options(parser.add_argument_group("placement"))


def run_export(options: argparse.Namespace) -> int:
    """Writes the file and prints its path."""
    check_output(options.output)
    table = SizeClassTable.named(options.table)
    recording = Recording.open(options.file, options.valid_prefix)
    recording.export(
        options.output,
        options.to,
        table,
        options.at,
        value=options.value,
        **_options.names_of(options),
        options=_options.heap_options_of(options),
    )
    size = Path(options.output).stat().st_size
    if options.json:
        print_json({"file": options.output, "format": options.to, "bytes": size})
    else:
        print(f"wrote {options.output} ({options.to}, {_format.size(size)})")
    return int(warn_gaps([recording]))


# --- flame ----------------------------------------------------------------------------------------


def add_flame(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands, "flame", "spanwise flame json.swt --of pinned -o json.html", run_flame
    )
    _options.add_recording_options(parser)
    add_option(
        parser,
        "-o --output FILE",
        "file to write; it is replaced. .svg: a picture; .html: a page with zoom and search",
        required=True,
    )
    _options.add_force_option(parser)
    add_option(
        parser,
        "--of",
        "waste (round-up and pinned spans, the default); round-up; pinned: free bytes of spans"
        " that live objects keep from being returned; resident; requested",
        choices=OF,
        default="waste",
    )
    add_option(
        parser,
        "--before A.swt",
        "an earlier recording: show what grew (red) and shrank (blue) since, as .html",
    )
    _options.add_names_options(parser)
    _options.add_table_option(parser)


def run_flame(options: argparse.Namespace) -> int:
    """Writes the picture and prints what it shows."""
    check_flame(options.output, options.of, is_difference=options.before is not None)
    names = _options.names_of(options)
    table, recordings, heap = simulation_of(options)
    words = (options.output, options.of, table, options.at)
    earlier = None
    if options.before is not None:
        earlier = Recording.open(options.before, options.valid_prefix)
    said = recordings.to_flame(*words, before=earlier, options=heap, **names)
    size = Path(options.output).stat().st_size
    if options.json:
        print_json({"file": options.output, "of": options.of, "bytes": size, "answer": said})
    else:
        show(said, f"wrote {options.output} ({_format.size(size)}), for any browser")
    return int(warn_gaps(each_of(recordings)))


# --- report ---------------------------------------------------------------------------------------


def add_report(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(commands, "report", "spanwise report json.swt -o json.html", run_report)
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE.swt",
        help="the recording; several, such as those of record --children: sums and each process",
    )
    add_option(
        parser,
        "-o --output REPORT.html",
        "page to write; it is replaced (default: the first recording's name with .html)",
    )
    _options.add_force_option(parser)
    _options.add_table_option(parser)
    add_option(
        parser,
        "--holdout OTHER.swt",
        "also evaluate the table fitted to the recording on this one; repeatable",
        action="append",
        default=[],
    )
    _options.add_hide_frames_option(parser)
    _options.add_valid_prefix_option(parser)
    _options.add_placement_options(parser.add_argument_group("placement"))


def run_report(options: argparse.Namespace) -> int:
    """Writes the page and prints its path."""
    output = options.output or str(Path(options.files[0]).with_suffix(".html"))
    check_place(output)
    hidden = _options.names_of(options)["hide_frames"]
    table = SizeClassTable.named(options.table)
    recording = open_recordings(options)
    others = RecordingSet.open(options.holdout, options.valid_prefix) if options.holdout else ()
    if isinstance(recording, RecordingSet) and others:
        raise InvalidError("--holdout is for one recording; give one file")
    answer = recording.to_html(
        *(output, table),
        holdout=others,
        hide_frames=hidden,
        options=_options.heap_options_of(options),
    )
    size = Path(output).stat().st_size
    if options.json:
        print_json({"report": output, "bytes": size, "answer": answer})
    else:
        show(answer, f"wrote {output} ({_format.size(size)}), for any browser")
    return int(warn_gaps([*each_of(recording), *others]))
