# SPDX-License-Identifier: Apache-2.0
"""Shared code of scripts/check_*.py: command line, exit status and lists of rooms."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
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


@dataclass
class Room:
    """A line of an ordered list of rooms: each may use itself and those above it.

    Attributes:
        name: name in the list.
        patterns: of paths; a trailing slash means everything below.
        allowed: names of the rooms that it may use, including itself.
    """

    name: str
    patterns: list[str]
    allowed: set[str] = field(default_factory=set)

    def owns(self, path: str) -> bool:
        """Return whether the path, with slashes, is in the room."""
        return any(
            path.startswith(pattern) if pattern.endswith("/") else fnmatch(path, pattern)
            for pattern in self.patterns
        )


ROOM_LINE = re.compile(r"^\d+\. `(?P<name>[a-z_-]+)`: (?P<patterns>`[^(]+`)(?P<note>.*)$")


def read_rooms(text: str, page: str, noun: str) -> list[Room]:
    """Parse the numbered list of a page; `noun` is the page's word for a room.

    Raises:
        InputError: nothing is listed, a name is listed twice, or "uses only" names an unknown room.
    """
    rooms: list[Room] = []
    for line in text.splitlines():
        match = ROOM_LINE.match(line)
        if match is None:
            continue
        name = match["name"]
        known = {room.name for room in rooms}
        if name in known:
            raise InputError(f"{page}: {noun} '{name}' is listed twice")
        allowed = known
        if "uses only" in match["note"]:
            allowed = set(re.findall(r"`([a-z_-]+)`", match["note"]))
            if not allowed <= known:
                unknown = ", ".join(sorted(allowed - known))
                raise InputError(f"{page}: '{name}' uses '{unknown}', not a {noun} above it")
        rooms.append(Room(name, re.findall(r"`([^`]+)`", match["patterns"]), allowed | {name}))
    if not rooms:
        raise InputError(f"{page}: no line of the form '1. `name`: `folder/`'")
    return rooms
