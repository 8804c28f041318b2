# SPDX-License-Identifier: Apache-2.0
"""What the commands of bench/ share: options, checks of them, exit statuses."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from runner.errors import BenchError


def add_peer_option(parser: argparse.ArgumentParser) -> None:
    """The option that adds an allocator to those which are found."""
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PATH[@VERSION]",
        help="adds an allocator to preload (repeatable)",
    )


def add_flags_option(parser: argparse.ArgumentParser) -> None:
    """The option that tells how an allocator was built."""
    parser.add_argument(
        "--flags",
        action="append",
        default=[],
        metavar="NAME=TEXT",
        help="the compiler's flags of an allocator, for the report, where its file does not tell "
        "them (repeatable)",
    )


def add_linked_option(parser: argparse.ArgumentParser) -> None:
    """The option that adds a bench program of a linked allocator."""
    parser.add_argument(
        "--linked",
        action="append",
        default=[],
        metavar="NAME=PROGRAM[@VERSION]",
        help="adds a bench_peer program that was built elsewhere (repeatable)",
    )


def add_calm_option(parser: argparse.ArgumentParser) -> None:
    """The option that makes each run wait for a calm moment."""
    parser.add_argument(
        "--calm",
        action="store_true",
        help="each run in a moment when nobody else slows the machine down; takes longer",
    )


def check_options(repetitions: int | None, plot: Path | None) -> None:
    """Raises BenchError unless there are repetitions and the picture's name says what it is."""
    if repetitions is not None and repetitions < 1:
        raise BenchError(f"--repetitions is {repetitions}; use 1 or more")
    check_picture("--plot", plot)


def check_picture(option: str, path: Path | None) -> None:
    """Raises BenchError unless the name says that it is a PNG."""
    if path is not None and path.suffix != ".png":
        raise BenchError(f"{option} is '{path}'; use a name that ends in .png")


def run_command(name: str, work: Callable[[], int]) -> int:
    """Does the work of a command; its errors are one line.

    Args:
        name: what the line begins with.
        work: returns the exit status.

    Returns:
        That status; 1 when the output was cut off, 2 for bad input, 130 after Ctrl-C.
    """
    try:
        return work()
    except BenchError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
