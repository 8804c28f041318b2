# SPDX-License-Identifier: Apache-2.0
"""What the commands share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from tqdm import tqdm

from spanwise.families import NAMES_HELP
from spanwise.heap import PLACEMENTS
from spanwise.simulate import Progress
from spanwise.trace import Recording, RecordingSet

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    SubParsers = _SubParsersAction[argparse.ArgumentParser]

TABLE_HELP = NAMES_HELP


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def new_command(
    commands: SubParsers, name: str, text: str, example: str, run: Callable[[Any], int]
) -> argparse.ArgumentParser:
    """Declares a command with its help and an example; every command has --json."""
    parser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print JSON, for machines")
    return parser


def add_recording_options(parser: argparse.ArgumentParser) -> None:
    """What ledger and compare know of a recording and a heap."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE.swt", help="recordings; several are added up"
    )
    parser.add_argument(
        "--at",
        default="peak",
        metavar="WHEN",
        help="peak (of requested bytes, the default), end, or a time such as 1.5s or 200ms",
    )
    parser.add_argument(
        "--valid-prefix",
        action="store_true",
        help="of a cut or damaged recording take what is whole before the damage",
    )
    heap = parser.add_argument_group("placement")
    heap.add_argument(
        "--placement", default="lifo", choices=tuple(PLACEMENTS), help="which partial span is next"
    )
    heap.add_argument(
        "--decay-ms", type=float, metavar="MS", help="idle pages go back after this (default 500)"
    )
    heap.add_argument(
        "--batch",
        type=int,
        default=0,
        metavar="N",
        help="empty spans that a thread keeps per class",
    )


def open_recordings(options: argparse.Namespace) -> Recording | RecordingSet:
    """The recording, or the set of several."""
    opened = RecordingSet.open(options.files, options.valid_prefix)
    return opened[0] if len(opened) == 1 else opened


def heap_knobs(options: argparse.Namespace) -> dict[str, Any]:
    """The placement options, as `Recording.ledger` takes them."""
    return {
        "placement": options.placement,
        "decay_ms": options.decay_ms,
        "batch": options.batch,
    }


def event_count(recordings: Recording | RecordingSet) -> int:
    """About how many operations will be run, without reading them."""
    each = [recordings] if isinstance(recordings, Recording) else list(recordings)
    return sum(one.info["ops"] for one in each)


@contextmanager
def progress_bar(total: int, what: str) -> Iterator[Progress]:
    """A progress bar on a terminal, when the work takes more than a second."""
    with tqdm(
        total=total,
        desc=what,
        unit=" events",
        unit_scale=True,
        delay=1,
        leave=False,
        file=sys.stderr,
        disable=not sys.stderr.isatty(),
    ) as bar:
        yield bar.update


def print_json(value: Any) -> None:
    """JSON, indented as the shared data files are."""
    print(json.dumps(value, indent=1))
