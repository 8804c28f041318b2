# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from spanwise.errors import InvalidError
from spanwise.tables.families import NAMES_HELP

if TYPE_CHECKING:
    from spanwise.heap.options import HeapOptions


# --- sizes ----------------------------------------------------------------------------------------

SIZE_HELP = "4096, 4K and 4KiB are the same, 4KB is 4000"
"""K, KiB, ... are powers of 1024; KB, MB, ... of 1000; B or none means bytes. Case is ignored."""

_SIZE = re.compile(r"([+-]?[0-9_]+) ?(?:([KMGT])(I?B)?|B)?", re.IGNORECASE)
_SHOWN = 40


def parse_size(word: str, what: str = "size") -> int:
    """Parse a number of bytes, which may be negative; `what` is its name in the error."""
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
"""The default table of commands, which is compiled into the library."""


DEFAULT_MOMENT = "peak-resident"
"""The moment of a command that is given none: the peak resident decides."""

MOMENTS_HELP = "peak-resident (of resident bytes, the default), peak (of requested bytes)"


class Group(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        """Declares an option."""


def add_option(group: Group, spec: str, text: str, **settings: Any) -> None:
    """Adds an option, "-o --output FILE"; without the last word and settings it has no value."""
    *names, last = spec.split()
    if not last.startswith("-"):
        settings["metavar"] = last
    else:
        names.append(last)
        settings = settings or {"action": "store_true"}
    group.add_argument(*names, help=text, **settings)


def size(word: str) -> int:
    """Parse a number of bytes, for `type=` of an option."""
    try:
        return parse_size(word)
    except InvalidError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_recording_options(
    parser: argparse.ArgumentParser, at: str = DEFAULT_MOMENT, moments: str = MOMENTS_HELP
) -> None:
    """Adds recordings, `--at`, `--valid-prefix` and the options of the simulated heap."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE.swt", help="recordings; several are summed"
    )
    add_at_option(parser, at, moments)
    add_valid_prefix_option(parser)
    heap = parser.add_argument_group("placement")
    add_placement_options(heap)
    add_option(
        heap,
        "--large-touched PERCENT",
        "share of a large object's bytes that the program is assumed to write (default 100)",
        type=float,
        default=100,
    )


def add_at_option(
    parser: argparse.ArgumentParser, at: str = DEFAULT_MOMENT, moments: str = MOMENTS_HELP
) -> None:
    """Adds `--at`, the moment of a ledger."""
    text = f"{moments}, end, after an operation (such as #1000), or at a time (such as 1.5s)"
    add_option(parser, "--at WHEN", text, default=at)


def add_valid_prefix_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--valid-prefix`, for truncated recordings."""
    add_option(parser, "--valid-prefix", "read a truncated or damaged recording up to the damage")


def add_placement_options(group: Group) -> None:
    """Adds the options for how a heap places objects and returns pages."""
    from spanwise.heap.options import PLACEMENTS  # noqa: PLC0415  brings numpy

    add_option(
        group, "--placement", "order of partial spans", default="lifo", choices=tuple(PLACEMENTS)
    )
    add_option(
        group,
        "--decay-ms MS",
        "return pages that were free for MS milliseconds, during later calls (default 500)",
        type=float,
    )
    add_option(group, "--batch N", "empty spans that a thread keeps per class", type=int, default=0)


def heap_options_of(options: argparse.Namespace, limit_bytes: int | None = None) -> HeapOptions:
    """Return the HeapOptions of the options of `add_placement_options`, with a limit."""
    from spanwise.heap.options import HeapOptions  # noqa: PLC0415  brings numpy

    percent = getattr(options, "large_touched", 100)
    return HeapOptions(limit_bytes, options.placement, options.decay_ms, options.batch, percent)


def add_table_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--table`; the default is the library's own table."""
    text = f"{NAMES_HELP} (default {DEFAULT_TABLE})"
    add_option(parser, "--table T", text, default=DEFAULT_TABLE)


def add_tables_option(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds a repeatable `--table`; `{}` in the text becomes NAMES_HELP."""
    add_option(parser, "--table T", text.format(NAMES_HELP), action="append")


def add_classes_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--classes`, the number of classes that a ledger shows."""
    add_option(
        parser,
        "--classes N",
        "show the N classes with the most waste (default 8)",
        type=int,
        default=8,
    )


def add_names_options(parser: argparse.ArgumentParser) -> None:
    """Add options that fold frames of call sites."""
    add_option(
        parser,
        "--full-stacks",
        "show all frames, including allocator wrappers such as operator new",
    )
    add_hide_frames_option(parser)


def add_hide_frames_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for wrappers of the program itself."""
    add_option(
        parser,
        "--hide-frames REGEX",
        "hide leading frames whose function matches, as allocator wrappers are hidden; may be"
        " repeated",
        action="append",
        default=[],
    )
    add_option(
        parser,
        "--symbols DIR",
        "look for modules in DIR, too: a root file system, such as /proc/PID/root or an unpacked"
        " container image, or debug files; may be repeated",
        action="append",
        default=[],
    )
    add_option(
        parser,
        "--debuginfod",
        "fetch debug information that is not here from the servers in DEBUGINFOD_URLS",
    )


def names_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `add_names_options` as arguments of `LiveSites.named`.

    Those of `symbol_files` become environment variables, which processes of workers inherit.
    """
    from spanwise.recordings.names import Folding  # noqa: PLC0415  loaded by few commands
    from spanwise.recordings.symbol_files import look_in  # noqa: PLC0415

    look_in(options.symbols, options.debuginfod)
    full_stacks = getattr(options, "full_stacks", False)
    return asdict(Folding(full_stacks, tuple(options.hide_frames)))


def add_plot_option(parser: argparse.ArgumentParser, text: str = "also draw it") -> None:
    """Adds `--plot`, a picture in addition to the text."""
    add_option(parser, "--plot FILE.png", text)


def add_force_option(
    parser: argparse.ArgumentParser, text: str = "no effect: files are replaced anyway"
) -> None:
    """For every command that writes a file. Recordings are replaced by record and convert alone."""
    add_option(parser, "-f --force", text)


def add_site_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--stacks` and `--python-sites`, of commands that record."""
    from spanwise.recordings.recorder import PYTHON_STACKS, STACKS  # noqa: PLC0415

    add_option(
        parser,
        "--stacks N",
        f"return addresses or lines of Python per call, 0 to 128 (default {STACKS} and"
        f" {PYTHON_STACKS}; 0: no call sites)",
        type=int,
    )
    add_option(
        parser,
        "--python-sites",
        "for CPython 3.9 to 3.14, call sites are lines of Python with function, file and callers"
        " (the default); without, they are return addresses, which costs less",
        action=argparse.BooleanOptionalAction,
    )


def add_program_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--keep-pymalloc`, and the program with its arguments at the end."""
    add_option(
        parser,
        "--keep-pymalloc",
        "let CPython use its own allocator instead of PYTHONMALLOC=malloc",
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="PROGRAM ARGS", help="program to run"
    )


def program_of(options: argparse.Namespace, done: str) -> list[str]:
    """Return the program and its arguments; `done` is the verb for the error, such as "run"."""
    words: list[str] = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not words:
        raise InvalidError(f"no program to {done}; give it after --")
    return words
