# SPDX-License-Identifier: Apache-2.0
"""What `sweep` and `bench` have in common: rows that go to a file as they come, on an executor."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from spanwise import _format, plots
from spanwise.commands import _options
from spanwise.commands._executors import add_executor_option, check_executor
from spanwise.measure.bench_result import BenchResult
from spanwise.recordings.outputs import check_output
from spanwise.sweeps.result import Sweep


def add_session_options(
    parser: argparse.ArgumentParser, noun: str, executor: str, picture: str
) -> None:
    """`--output`, `--plot`, `--executor` and `--workers`.

    Args:
        parser: of the command.
        noun: what a row is.
        executor: what runs the work if nothing is asked for.
        picture: what the picture shows.
    """
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.jsonl",
        help=f"file for the {noun}s, written as they finish; the same command resumes it",
    )
    _options.add_plot_option(parser, picture)
    add_executor_option(parser, executor)


def check_session(
    options: argparse.Namespace, executor: str, more: Sequence[str | None] = ()
) -> None:
    """Refuses an executor, and places of files that cannot be written, before there is work."""
    check_executor(options.executor, executor)
    for place in filter(None, (options.output, *more)):
        check_output(place)
    if options.plot:
        plots.check_place(options.plot)


def tell_session(found: Sweep | BenchResult, noun: str) -> None:
    """Its notes, and where its rows are, on stderr."""
    for note in found.notes:
        print(f"spanwise: {note}", file=sys.stderr)
    if found.path is not None:
        print(
            f"spanwise: {_format.plural(len(found), noun)} in {found.path}; the same command does"
            " only what is missing",
            file=sys.stderr,
        )
