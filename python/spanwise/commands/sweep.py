# SPDX-License-Identifier: Apache-2.0
"""spanwise sweep: ledgers of many recordings under many tables, on all processors or a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from spanwise import _format, plots
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    new_command,
    print_json,
    warn_gaps,
)
from spanwise.commands._executors import dask_executor
from spanwise.commands._sessions import add_session_options, check_session, tell_session
from spanwise.errors import SpanwiseError
from spanwise.recordings.moments import parse_moment
from spanwise.recordings.recording import Recording
from spanwise.sweeps.plans import expand
from spanwise.sweeps.result import Sweep
from spanwise.sweeps.sweep import SweepInterrupted, sweep


def add(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(
        commands,
        "sweep",
        "account recordings under many tables, on all processors or a cluster",
        "spanwise sweep json.swt --table go --table 'mine/*.json' -o sweep.jsonl",
        run,
    )
    _options.add_recording_options(parser)
    _options.add_tables_option(
        parser, "{}, or a pattern of files; give it again for each (default: go and c16)"
    )
    add_session_options(parser, "row", "threads", "also draw the best tables")
    parser.add_argument(
        "--by",
        metavar="FIELD",
        help="what is best (default peak_resident_bytes, the column 'peak resident')",
    )


def run(options: argparse.Namespace) -> int:
    """Prints the ranking; 1 when a row failed."""
    check_session(options, "threads")
    tables = expand(options.table or ("go", "c16"))
    at = parse_moment(options.at)
    Sweep((), ()).ranking(options.by)  # an unknown field is refused before the work
    try:
        with _executor(options.executor, options.workers) as executor:
            found = sweep(
                expand(options.files),
                tables,
                executor=executor,
                workers=options.workers,
                output=options.output,
                at=at,
                valid_prefix=options.valid_prefix,
                options=_options.heap_options_of(options),
            )
    except SweepInterrupted as stop:
        tell_session(stop.result, "row")
        raise
    tell_session(found, "row")
    if options.plot and found.ranking():
        plots.save(found.plot(), options.plot)
    if options.json:
        print_json(found.to_dict())
    else:
        print(found)
        by = options.by or found.judged_by
        ranking = found.ranking(by)
        if ranking:
            name, value = ranking[0]
            print(f"{name} has the least {by.replace('_', ' ')}: {_shown(by, value)}")
    return int(_warn_gaps(options) or bool(found.failures))


def _warn_gaps(options: argparse.Namespace) -> bool:
    recordings = []
    for path in expand(options.files):
        with suppress(SpanwiseError):  # a recording that cannot be read becomes a failed row
            recordings.append(Recording.open(path, options.valid_prefix))
    return warn_gaps(recordings)


def _shown(field: str, value: float) -> str:
    if field.endswith("_bytes"):
        return _format.size(value)
    return f"{value:g}"


@contextmanager
def _executor(name: str, workers: int | None) -> Iterator[Any]:
    """The executor in the form that `sweep` takes."""
    if not name.startswith("dask"):
        yield name
        return
    with dask_executor(name, workers) as executor:
        yield executor
