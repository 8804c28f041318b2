# SPDX-License-Identifier: Apache-2.0
"""Shared code of scripts/check_*.py: command line and exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path


class InputError(Exception):
    """A document, a source or an object file cannot be read as expected."""


def command_line(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option --root and the module's docstring as help."""
    first, _, after = (doc or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=after, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parent.parent,
        help="the project's root (default: this script's project)",
    )
    return parser


def run(name: str, work: Callable[[], tuple[list[str], str]], noun: str) -> int:
    """Print the findings of `work` and a summary of its input; return the exit status.

    0: no findings; 1: findings, one line each; 2: the input could not be read.
    """
    try:
        findings, seen = work()
    except (InputError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    for finding in findings:
        print(finding)
    print(f"{name}: {seen}, {len(findings)} {noun}")
    return 1 if findings else 0
