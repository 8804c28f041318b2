# SPDX-License-Identifier: Apache-2.0
"""spanwise sweep: ledgers of many recordings under many tables, on all processors or a cluster."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from spanwise import _format, plots
from spanwise.commands import _options
from spanwise.commands._common import (
    SubParsers,
    new_command,
    print_json,
    suggestion,
    told_gaps,
)
from spanwise.errors import InvalidError, SpanwiseError, UnsupportedError
from spanwise.ledger.parts import MOMENTS
from spanwise.recordings.moments import parse_seconds
from spanwise.recordings.outputs import check_output
from spanwise.recordings.recording import Recording
from spanwise.sweeps.plans import expand
from spanwise.sweeps.result import Sweep
from spanwise.sweeps.sweep import SweepInterrupted, sweep

EXECUTORS = ("threads", "processes", "dask")


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
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.jsonl",
        help="rows go there as they come; the same command goes on where it was stopped",
    )
    parser.add_argument(
        "--executor",
        default="threads",
        metavar="E",
        help="threads (the default), processes, dask (a cluster on this machine) or"
        " dask:tcp://HOST:PORT (its scheduler)",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="threads or processes (default: processors)"
    )
    parser.add_argument(
        "--by", default="held_bytes", metavar="FIELD", help="what is best (default held_bytes)"
    )
    _options.add_plot_option(parser, "also draw the best tables")


def run(options: argparse.Namespace) -> int:
    """Prints the ranking; 1 when a row failed."""
    _check_executor(options.executor)
    if options.output:
        check_output(options.output)
    if options.plot:
        plots.check_place(options.plot)
    tables = expand(options.table or ("go", "c16"))
    at = options.at if options.at in MOMENTS else parse_seconds(options.at)
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
        _tell(stop.result)
        raise
    _tell(found)
    if options.plot and found.ranking():
        plots.save(found.plot(), options.plot)
    if options.json:
        print_json(found.to_dict())
    else:
        print(found)
        ranking = found.ranking(options.by)
        if ranking:
            name, value = ranking[0]
            by = options.by.replace("_", " ")
            print(f"{name} has the least {by}: {_shown(options.by, value)}")
    return int(_told_gaps(options) or bool(found.failures))


def _told_gaps(options: argparse.Namespace) -> bool:
    recordings = []
    for path in expand(options.files):
        with suppress(SpanwiseError):  # one that cannot be read is among the failures
            recordings.append(Recording.open(path, options.valid_prefix))
    return told_gaps(recordings)


def _shown(field: str, value: float) -> str:
    if field.endswith("_bytes"):
        return _format.size(value)
    return f"{value:g}"


def _tell(found: Sweep) -> None:
    for note in found.notes:
        print(f"spanwise: {note}", file=sys.stderr)
    if found.path is not None:
        print(
            f"spanwise: {_format.plural(len(found), 'row')} in {found.path}; the same command"
            " computes only what is missing",
            file=sys.stderr,
        )


def _check_executor(name: str) -> None:
    kind, _, address = name.partition(":")
    if kind in EXECUTORS and (kind == "dask" or not address):
        return
    raise InvalidError(
        f"--executor {name}: give {EXECUTORS[0]}, {EXECUTORS[1]}, dask or dask:tcp://HOST:PORT"
        f"{suggestion(kind, EXECUTORS)}"
    )


@contextmanager
def _executor(name: str, workers: int | None) -> Iterator[Any]:
    """What `sweep` takes; a Dask client lives as long as the sweep."""
    kind, _, address = name.partition(":")
    if kind != "dask":
        yield name
        return
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise UnsupportedError(
            "executor dask: Dask is not installed; pip install 'spanwise[cluster]'"
        ) from None
    try:
        client = (
            distributed.Client(address, timeout=10)
            if address
            else distributed.Client(
                n_workers=workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=None,
            )
        )
    except (OSError, ValueError) as error:
        raise InvalidError(f"executor {name}: no scheduler answers ({error})") from None
    with client:
        yield client.get_executor()
