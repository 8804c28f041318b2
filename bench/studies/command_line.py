# SPDX-License-Identifier: Apache-2.0
"""What the command lines of studies of programs have in common, and the page that they write."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def parser_of(name: str, doc: str | None, example: str) -> argparse.ArgumentParser:
    """A parser with --only, --quick, -o and --plot.

    Args:
        name: of the study.
        doc: of its module; the first line is said.
        example: the words behind the study's name.
    """
    parser = argparse.ArgumentParser(
        prog=f"./dev study {name}",
        description=(doc or "").split("\n", 1)[0],
        epilog=f"example: ./dev study {name} {example}",
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="only this program")
    parser.add_argument("--quick", action="store_true", help="one program, once, as a test")
    parser.add_argument("-o", "--output", metavar="FILE.md", help="the page")
    parser.add_argument("--plot", metavar="FILE.png", help="the picture")
    return parser


def add_field_options(parser: argparse.ArgumentParser) -> None:
    """Of a study that runs a field: --rounds and --folder."""
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each (5)")
    parser.add_argument(
        "--folder",
        metavar="DIR",
        help="keep inputs, recordings, builds and runs there; the same command goes on with them",
    )


def command_of(name: str, options: argparse.Namespace, *more: str) -> str:
    """The command as the page tells it, with further words of the study's own."""
    words = [f"./dev study {name}", *(f"--only {one}" for one in options.only or ())]
    words += ["--quick"] if options.quick else [*more]
    words += [f"-o {options.output}"] if options.output else []
    words += [f"--plot {options.plot}"] if options.plot else []
    return " ".join(words)


def picture_from(options: argparse.Namespace) -> str | None:
    """The picture's name as the page refers to it."""
    if not options.plot:
        return None
    page = Path(options.output or ".").absolute().parent
    return os.path.relpath(Path(options.plot).absolute(), page)


def tell(text: str, options: argparse.Namespace) -> None:
    """Writes the page where it is to be, and prints it."""
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
    print(text, end="")
