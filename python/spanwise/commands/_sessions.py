# SPDX-License-Identifier: Apache-2.0
"""Result files of long commands, and the executors of sweeps."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spanwise import _format, plots
from spanwise.commands import _options
from spanwise.commands._common import suggestion
from spanwise.errors import InvalidError, UnsupportedError
from spanwise.measure.bench_result import BenchResult
from spanwise.results.files import check_output
from spanwise.sweeps.result import Sweep


def add_executor_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--executor` and `--workers`."""
    parser.add_argument(
        "--executor",
        default="threads",
        metavar="E",
        help="threads, dask (a cluster on this machine) or dask:tcp://HOST:PORT (its"
        " scheduler) [threads]",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="threads or Dask's processes [one per processor]"
    )


def check_executor(name: str) -> None:
    """Raise InvalidError if the name of the executor is unknown."""
    known = ("threads", "dask")
    kind, _, address = name.partition(":")
    if kind in known and (kind == "dask" or not address):
        return
    raise InvalidError(
        f"--executor {name}: give threads, dask or dask:tcp://HOST:PORT{suggestion(kind, known)}"
    )


@contextmanager
def dask_executor(name: str, workers: int | None) -> Iterator[Any]:
    """Yield a Dask executor; its client is closed at the end of the block."""
    address = name.partition(":")[2]
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


def add_session_options(parser: argparse.ArgumentParser, noun: str, picture: str) -> None:
    """Adds `--output`, `--force` and `--plot`."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.jsonl",
        help=f"file for the {noun}s, written as they finish",
    )
    _options.add_force_option(parser, "replace FILE.jsonl even if it is not JSON")
    _options.add_plot_option(parser, picture)


def check_session(options: argparse.Namespace) -> None:
    """Check that all output files can be written, before the work begins."""
    if options.output:
        check_output(options.output, json=not options.force)
    if options.plot:
        plots.check_place(options.plot)
    if options.force and options.output and Path(options.output).is_file():
        Path(options.output).unlink()


def print_session(found: Sweep | BenchResult, noun: str) -> None:
    """Print the notes of a result and the path of its rows to stderr."""
    for note in found.notes:
        print(f"spanwise: {note}", file=sys.stderr)
    if found.path is not None:
        count = _format.plural(len(found), noun)
        print(f"spanwise: {count} in {found.path}", file=sys.stderr)
