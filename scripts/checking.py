# SPDX-License-Identifier: Apache-2.0
"""What the scripts check_*.py share: their command line and exit status, lists of rooms, C text."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

GENERATED = ("src/gen/", "include/spanwise/gen/")

COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
STRINGS = re.compile(r'"(?:\\.|[^"\\\n])*"')
DIRECTIVES = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*$", re.MULTILINE)


class InputError(Exception):
    """A document, a source or an object file cannot be read as expected."""


# --- the command ----------------------------------------------------------------------------------


def command_line(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the option --root; the module's docstring is its help."""
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
    """Prints what `work` returns, its findings and what it looked at, and gives the exit status.

    0: there are no findings; 1: there are, one line each; 2: the input could not be read.
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


# --- lists of rooms -------------------------------------------------------------------------------


@dataclass
class Room:
    """A line of a list of rooms, which are ordered: each may use itself and those above it.

    Attributes:
        name: as written there.
        patterns: of paths; a trailing slash means everything below.
        allowed: names of the rooms (its own included) that it may use.
    """

    name: str
    patterns: list[str]
    allowed: set[str] = field(default_factory=set)

    def owns(self, path: str) -> bool:
        """Whether the path, with slashes, is in the room."""
        return any(
            path.startswith(pattern) if pattern.endswith("/") else fnmatch(path, pattern)
            for pattern in self.patterns
        )


ROOM_LINE = re.compile(r"^\d+\. `(?P<name>[a-z_-]+)`: (?P<patterns>`[^(]+`)(?P<note>.*)$")


def read_rooms(text: str, page: str, noun: str) -> list[Room]:
    """Parses the numbered list of a page; `noun` is what the page calls a room.

    Raises:
        InputError: nothing is listed, a name twice, or "uses only" names an unknown room.
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


# --- C text ---------------------------------------------------------------------------------------


def bare(text: str) -> str:
    """C source without comments, directives and the contents of strings."""
    for pattern in (COMMENTS, DIRECTIVES):
        text = pattern.sub(" ", text)
    return STRINGS.sub('""', text)


def written(root: Path, *patterns: str) -> Iterator[tuple[Path, str]]:
    """Files that people wrote, in the order of their paths, each with its path below the root."""
    for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
        name = path.relative_to(root).as_posix()
        if not name.startswith(GENERATED):
            yield path, name
