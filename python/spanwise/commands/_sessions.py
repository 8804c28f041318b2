# SPDX-License-Identifier: Apache-2.0
"""Executors and result files of long commands."""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
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


def add_executor_option(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds `--executor` and `--workers`."""
    parser.add_argument(
        "--executor",
        default=default,
        metavar="E",
        help=f"{default}, processes, dask (a cluster on this machine) or dask:tcp://HOST:PORT (its"
        f" scheduler) [{default}]",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help=f"{'threads or ' if default == 'threads' else ''}processes [one per processor]",
    )


def check_executor(name: str, default: str) -> None:
    """Raise InvalidError if the name of the executor is unknown."""
    known = (default, "processes", "dask")
    kind, _, address = name.partition(":")
    if kind in known and (kind == "dask" or not address):
        return
    raise InvalidError(
        f"--executor {name}: give {known[0]}, {known[1]}, dask or dask:tcp://HOST:PORT"
        f"{suggestion(kind, known)}"
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


@contextmanager
def executor_of(name: str, workers: int | None) -> Iterator[Any]:
    """Yield the named executor, or None if the work runs in this process."""
    if name.startswith("dask"):
        with dask_executor(name, workers) as executor:
            yield executor
    elif name == "processes":
        if workers is not None and workers < 1:
            raise InvalidError(f"workers {workers}: give at least 1")
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as executor:
            yield executor
    else:
        yield None


def add_session_options(
    parser: argparse.ArgumentParser, noun: str, executor: str, picture: str
) -> None:
    """Adds `--output`, `--force`, `--plot`, `--executor` and `--workers`.

    Args:
        parser: of the command.
        noun: for a row.
        executor: the default of `--executor`.
        picture: the help text of `--plot`.
    """
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.jsonl",
        help=f"file for the {noun}s, written as they finish; the same command resumes it",
    )
    _options.add_force_option(parser, "begin FILE.jsonl anew: do all again")
    _options.add_plot_option(parser, picture)
    add_executor_option(parser, executor)


def check_session(
    options: argparse.Namespace, executor: str, more: Sequence[str | None] = ()
) -> None:
    """Check the executor and that all output files can be written, before the work begins.

    With --force, the rows of earlier runs are removed.
    """
    check_executor(options.executor, executor)
    for place in filter(None, (options.output, *more)):
        check_output(place)
    if options.plot:
        plots.check_place(options.plot)
    if options.force and options.output and Path(options.output).is_file():
        Path(options.output).unlink()


def print_session(found: Sweep | BenchResult, noun: str) -> None:
    """Print the notes of a result and the path of its rows to stderr."""
    for note in found.notes:
        print(f"spanwise: {note}", file=sys.stderr)
    if found.path is not None:
        print(
            f"spanwise: {_format.plural(len(found), noun)} in {found.path}; the same command does"
            " only what is missing",
            file=sys.stderr,
        )
