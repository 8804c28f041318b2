# SPDX-License-Identifier: Apache-2.0
"""spanwise record: run a program and record its allocations."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from spanwise.commands._common import SubParsers, add_description, new_command, print_json, show
from spanwise.commands._options import (
    add_force_option,
    add_option,
    add_program_options,
    add_site_options,
    program_of,
    size,
)
from spanwise.errors import InvalidError
from spanwise.recordings.attached import AttachOptions, parse_duration, record_running
from spanwise.recordings.recorder import (
    SAMPLE,
    RecordOptions,
    RecordResult,
    run_recorded,
)
from spanwise.results.files import check_output


def add_record(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands, "record", "spanwise record -o json.swt -- python3 -c 'import json'", run_record
    )
    add_description(
        parser,
        "SIGUSR1 to this command writes what is recorded so far to STEM.snapshot-N.swt, while the"
        " program goes on.",
    )
    add_description(
        parser,
        "With --pid it records a program that runs already, which loads the recorder through gdb"
        " and goes on without it afterwards. Objects from before are not included; their frees are"
        " counted.",
    )
    parser.usage = (
        "%(prog)s [options] [-o FILE.swt] -- PROGRAM [ARGS...]\n"
        "       %(prog)s [options] [-o FILE.swt] --pid PID [--for TIME]"
    )
    add_option(
        parser, "-o --output FILE.swt", "default: PROGRAM.swt or PID.swt in the current directory"
    )
    add_option(parser, "--pid PID", "record this running process", type=int)
    add_option(
        parser,
        "--for TIME",
        "with --pid, how long: 60s, 500ms (default: until Ctrl-C, or the end of the program)",
        type=_duration,
        dest="seconds",
    )
    add_force_option(parser, "replace FILE.swt if it exists, and FILE.PID.swt of an earlier run")
    add_option(parser, "--children", "also record its child processes, to FILE.PID.swt")
    add_option(
        parser,
        "--sample BYTES",
        "record a sample of the objects, one point per BYTES on average (default 512K), which"
        " costs little; read it with spanwise estimate",
        type=size,
        nargs="?",
        const=SAMPLE,
        default=0,
    )
    add_option(
        parser,
        "--label TEXT",
        "store a text in the recording, such as a version, for fleet",
        default="",
    )
    add_option(
        parser,
        "--metrics ADDRESS:PORT",
        "with --sample, serve RSS, and live and allocated bytes by call site, at"
        " http://ADDRESS:PORT/metrics for Prometheus while the program runs, such as"
        " 127.0.0.1:9091",
        default="",
    )
    add_option(parser, "--metrics-remote", "allow --metrics an address that other machines reach")
    add_site_options(parser)
    add_program_options(parser)


def run_record(options: argparse.Namespace) -> int:
    """Records; returns 1 if the program failed or there are gaps, 128 + N after signal N."""
    if options.pid is not None:
        return _run_attached(options)
    if options.seconds is not None:
        raise InvalidError("--for without --pid: give the process to attach to")
    command = program_of(options, "record")
    output = Path(options.output or f"{Path(command[0]).name or 'program'}.swt")
    check_place(output, options.force)
    wanted = RecordOptions(
        children=options.children,
        stacks=options.stacks,
        keep_pymalloc=options.keep_pymalloc,
        python_sites=options.python_sites,
        sample_bytes=options.sample,
        label=options.label,
        stdout=sys.stderr if options.json else None,  # stdout is for the JSON alone
        patient=True,
        force=options.force,
    )
    if not options.metrics:
        return _report(run_recorded(command, output, wanted), options)
    from spanwise.commands._metrics import serving  # noqa: PLC0415  brings a server of HTTP

    with serving(options.metrics, options.metrics_remote, options.sample) as metrics:
        result = run_recorded(command, output, replace(wanted, watch=metrics.watch))
        trouble = metrics.trouble
    return _report(result, options, trouble)


def _run_attached(options: argparse.Namespace) -> int:
    """Records a running process for a while."""
    for given, name in ((options.command, "a program"), (options.children, "--children")):
        if given:
            raise InvalidError(f"--pid with {name}: give one of them")
    if options.metrics:
        raise InvalidError("--pid with --metrics: only programs that are started are served")
    if options.keep_pymalloc:
        raise InvalidError("--pid with --keep-pymalloc: a running program keeps its allocator")
    output = Path(options.output or f"{options.pid}.swt")
    check_place(output, options.force)
    wanted = AttachOptions(
        seconds=options.seconds,
        stacks=options.stacks,
        python_sites=options.python_sites,
        sample_bytes=options.sample,
        label=options.label,
        force=options.force,
    )
    return _report(record_running(options.pid, output, wanted), options)


def _report(result: RecordResult, options: argparse.Namespace, trouble: str = "") -> int:
    """Prints the result, and what failed besides; returns the exit status."""
    if options.json:
        print_json(_as_dict(result))
    show(*(result.findings() if options.json else result.lines()), file=sys.stderr)
    if trouble:
        print(f"spanwise: {trouble}", file=sys.stderr)
    if result.stopped_by:
        return 128 + result.stopped_by
    return 1 if result.status or result.findings() or trouble else 0


def _duration(word: str) -> float:
    try:
        return parse_duration(word)
    except InvalidError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_place(output: Path, force: bool) -> None:
    """Checks the output before the program runs, since a replaced recording is lost."""
    if output.is_file() and not force:
        raise InvalidError(f"{output}: exists already; give another name with -o, or --force")
    check_output(output, replace=force)


def _as_dict(result: RecordResult) -> dict[str, object]:
    first, *rest = result.histories()
    return {
        "file": str(result.path),
        "status": result.status,
        "outside": result.outside(),
        "summary": first.summary.to_dict(),
        "others": [{"file": one.path, "summary": one.summary.to_dict()} for one in rest],
    }
