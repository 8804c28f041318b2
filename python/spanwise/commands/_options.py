# SPDX-License-Identifier: Apache-2.0
"""Options that several commands have."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, Protocol

from spanwise.errors import InvalidError
from spanwise.tables.families import NAMES_HELP

if TYPE_CHECKING:
    from spanwise.heap.options import HeapOptions


# --- sizes ----------------------------------------------------------------------------------------

SIZE_HELP = "4096, 4K and 4KiB are the same, 4KB is 4000"
"""Units in any case: K, KiB, ... are powers of 1024; KB, MB, ... of 1000; B or none is bytes."""

_SIZE = re.compile(r"([+-]?[0-9_]+) ?(?:([KMGT])(I?B)?|B)?", re.IGNORECASE)
_SHOWN = 40


def parse_size(word: str, what: str = "size") -> int:
    """Bytes; perhaps negative, which the caller judges.

    Args:
        word: what was written.
        what: its name in the error.

    Raises:
        InvalidError: it is no size.
    """
    match = _SIZE.fullmatch(word.strip())
    try:
        if match is None:
            raise ValueError
        number = int(match[1])
    except ValueError:
        shown = word if len(word) <= _SHOWN else word[: _SHOWN - 3] + "..."
        raise InvalidError(f"{what} {shown!r} is not a number of bytes: {SIZE_HELP}") from None
    if match[2] is None:
        return number
    step = 1000 if (match[3] or "").upper() == "B" else 1024
    return int(number * step ** ("KMGT".index(match[2].upper()) + 1))


# --- options --------------------------------------------------------------------------------------

DEFAULT_TABLE = "c16"
"""The table of a command that takes one and is given none: the one compiled into the library."""


class Group(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        """Declares one."""


def size(word: str) -> int:
    """For `type=` of an option that is a number of bytes."""
    try:
        return parse_size(word)
    except InvalidError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_recording_options(parser: argparse.ArgumentParser) -> None:
    """Recordings, a moment of them, and the heap that they are run on."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE.swt", help="recordings; several are added up"
    )
    add_at_option(parser)
    add_valid_prefix_option(parser)
    heap = parser.add_argument_group("placement")
    add_placement_options(heap)
    heap.add_argument(
        "--large-touched",
        type=float,
        default=100,
        metavar="PERCENT",
        help="of a large object's bytes so many the program is taken to write (default 100)",
    )


def add_at_option(parser: argparse.ArgumentParser) -> None:
    """The moment of a ledger."""
    parser.add_argument(
        "--at",
        default="peak",
        metavar="WHEN",
        help="peak (of requested bytes, the default), peak-resident, end, an operation such as"
        " #1000 (after so many), or a time such as 1.5s",
    )


def add_valid_prefix_option(parser: argparse.ArgumentParser) -> None:
    """For recordings that were cut."""
    parser.add_argument(
        "--valid-prefix",
        action="store_true",
        help="of a cut or damaged recording take what is whole before the damage",
    )


def add_placement_options(group: Group) -> None:
    """How a heap places objects and gives pages back."""
    from spanwise.heap.options import PLACEMENTS  # noqa: PLC0415  brings numpy

    group.add_argument(
        "--placement", default="lifo", choices=tuple(PLACEMENTS), help="which partial span is next"
    )
    group.add_argument(
        "--decay-ms", type=float, metavar="MS", help="idle pages go back after this (default 500)"
    )
    group.add_argument(
        "--batch",
        type=int,
        default=0,
        metavar="N",
        help="empty spans that a thread keeps per class",
    )
    group.add_argument(
        "--batch-by-use",
        action="store_true",
        help="keep as many as recent demand would have reused, at most --batch",
    )


def heap_options_of(options: argparse.Namespace, limit_bytes: int | None = None) -> HeapOptions:
    """What `add_placement_options` declared, a limit, and what a simulation assumes."""
    from spanwise.heap.options import HeapOptions  # noqa: PLC0415  brings numpy

    percent = getattr(options, "large_touched", 100)
    return HeapOptions(
        limit_bytes,
        options.placement,
        options.decay_ms,
        options.batch,
        percent,
        options.batch_by_use,
    )


def add_table_option(parser: argparse.ArgumentParser) -> None:
    """One table; without the option it is the library's own."""
    text = f"{NAMES_HELP} (default {DEFAULT_TABLE})"
    parser.add_argument("--table", default=DEFAULT_TABLE, metavar="T", help=text)


def add_tables_option(parser: argparse.ArgumentParser, text: str) -> None:
    """Any number of tables, by repeating the option; `{}` in the text is how one is named."""
    parser.add_argument("--table", action="append", metavar="T", help=text.format(NAMES_HELP))


def add_classes_option(parser: argparse.ArgumentParser) -> None:
    """How many classes a ledger shows."""
    parser.add_argument(
        "--classes",
        type=int,
        default=8,
        metavar="N",
        help="show the N classes with the most waste (default 8)",
    )


def add_plot_option(parser: argparse.ArgumentParser, text: str = "also draw it") -> None:
    """A picture in addition to the text."""
    parser.add_argument("--plot", metavar="FILE.png", help=text)


def add_program_options(parser: argparse.ArgumentParser) -> None:
    """A program that is run, and CPython's allocator in it; the program's words come last."""
    parser.add_argument(
        "--keep-pymalloc",
        action="store_true",
        help="leave CPython its own allocator; else it runs with PYTHONMALLOC=malloc",
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="PROGRAM ARGS", help="what to run"
    )


def program_of(options: argparse.Namespace, done: str) -> list[str]:
    """The words of the program.

    `done` is a participle for the error.

    Raises:
        InvalidError: there is none.
    """
    words: list[str] = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not words:
        raise InvalidError(f"no program to {done}; give it after --")
    return words
