# SPDX-License-Identifier: Apache-2.0
"""Files of rows: JSON lines, a header and then a row per result, written as they finish.

After a kill the file has whole rows and perhaps a truncated last line, which is dropped. Fields are
checked when a file is read. Sweeps: docs/design/sweep.md; benchmarks: docs/design/programs.md.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spanwise import _lib
from spanwise.errors import InvalidError
from spanwise.results.files import READING_ERRORS, check_output, is_text, what_is_wrong
from spanwise.results.jobs import Step

Row = dict[str, Any]

FORMAT = 1
_HASH = re.compile(r"[0-9a-f]{16}")
_NUMBER_MAX = 1e300
_VALUE_SHOWN = 40


# --- types of fields ------------------------------------------------------------------------------


class FieldType(NamedTuple):
    """The type of a field: its name in messages, and its predicate."""

    noun: str
    holds: Callable[[Any], bool]


def optional(kind: FieldType) -> FieldType:
    """Return the type that also allows null."""
    return FieldType(f"{kind.noun} or null", lambda value: value is None or kind.holds(value))


def list_of(noun: str, holds: Callable[[Any], bool]) -> FieldType:
    """Return the type of lists of such items."""
    return FieldType(
        f"a list of {noun}", lambda value: isinstance(value, list) and all(map(holds, value))
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -_NUMBER_MAX < value < _NUMBER_MAX


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def _is_versions(value: Any) -> bool:
    return isinstance(value, dict) and is_text(value.get("spanwise"))


def _is_class(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_count, value))


def _is_table(value: Any) -> bool:
    """Return whether it is a table of a task: name, hash, page_bytes, [[size, pages, first]]."""
    return (
        isinstance(value, dict)
        and is_text(value.get("name"))
        and _is_hash(value.get("hash"))
        and _is_count(value.get("page_bytes"))
        and isinstance(value.get("classes"), list)
        and all(map(_is_class, value["classes"]))
    )


TEXT = FieldType("a text", is_text)
COUNT = FieldType("an integer from 0 to 2^63 - 1", _is_count)
NUMBER = FieldType("a number", _is_number)
HASH = FieldType("16 hexadecimal digits", _is_hash)
MOMENT = FieldType("a text or a number", lambda value: is_text(value) or _is_number(value))
OBJECT = FieldType("an object", _is_object)
VERSIONS = FieldType("an object with the version of spanwise", _is_versions)
OBJECTS = list_of("objects", _is_object)
TABLES = list_of("tables", _is_table)

_HEADER = {
    **{"started": TEXT, "versions": VERSIONS},
    **{"commit": optional(TEXT), "build": optional(TEXT)},
}


def check_fields(line: Mapping[str, Any], types: Mapping[str, FieldType]) -> None:
    """Check that a line has fields of these types; ValueError: one is missing."""
    for name in types:
        if name not in line:
            raise ValueError(f"without {name}")
    for name, kind in types.items():
        if not kind.holds(line[name]):
            raise InvalidError(f"{name} must be {kind.noun}, not {_described(line[name])}")


def _described(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list of others"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "one of more than 64 bits"
    text = "null" if value is None else repr(value)
    return text if len(text) <= _VALUE_SHOWN else f"{text[: _VALUE_SHOWN - 3]}..."


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowKind:
    """A kind of row file.

    Attributes:
        header_fields: the types of the fields that its headers have besides those of `header_of`.
    """

    noun: str  # of the work, for messages; headers have the kind `spanwise NOUN`
    header_fields: Mapping[str, FieldType]
    row_fields: Mapping[str, FieldType]  # the types of the fields of every row
    filled: tuple[str, ...] = ()  # fields that are not null in rows without an error

    @property
    def kind(self) -> str:
        """The kind in headers."""
        return f"spanwise {self.noun}"


@dataclass
class Contents:
    """The contents of a file: its header ({} if it is empty), rows, and notes for the user."""

    header: Row = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read(path: str | os.PathLike[str], kind: RowKind) -> Contents:
    """Read a file of a kind; a truncated last line is noted, any other wrong line is an error."""
    name, raw = os.fspath(path), Path(path).read_bytes()
    start = f'{{"kind": "{kind.kind}"'.encode()
    if raw and raw[: len(start)] != start[: len(raw)]:
        raise InvalidError(f"{name}: not the file of a {kind.noun}; give another name")
    found = Contents()
    lines = raw.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("no end")
            _add_line(found, json.loads(line), kind)
        except InvalidError as error:
            raise InvalidError(f"{name}: line {number}: {error}") from None
        except READING_ERRORS as error:
            if number == len(lines):
                found.notes.append(f"{name}: line {number} was truncated; it is dropped")
                break
            raise InvalidError(
                f"{name}: line {number}: not a line of a {kind.noun} ({what_is_wrong(error)});"
                " remove it"
            ) from None
    return found


def _add_line(found: Contents, value: Any, kind: RowKind) -> None:
    name = value.get("kind") if isinstance(value, dict) else None
    if name == kind.kind and not found.header:
        if value.get("format") != FORMAT:
            raise InvalidError(
                f"format {value.get('format')} is unknown; this spanwise reads {FORMAT}"
            )
        check_fields(value, {**_HEADER, **kind.header_fields})
        found.header = value
    elif name == "row":
        check_fields(value, kind.row_fields)
        empty = [one for one in kind.filled if value[one] is None]
        if value["error"] is None and empty:
            raise InvalidError(f"{empty[0]} is null in a row without an error")
        found.rows.append({key: item for key, item in value.items() if key != "kind"})
    else:
        raise ValueError("neither header nor row")


# --- writing --------------------------------------------------------------------------------------


class RowStore:
    """The rows of a sweep or a benchmark, which are also written to a file if there is a path.

    Attributes:
        path: of the file, which is replaced if it exists; None: there is none.
    """

    def __init__(self, path: str | os.PathLike[str] | None, kind: RowKind, header: Row) -> None:
        self.rows: list[Row] = []  # in the order in which they finished
        self.path = None if path is None else os.fspath(path)
        if path is not None:
            _lib.c_path(path)
            check_output(path, json=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            self._write([{"kind": kind.kind, "format": FORMAT, **header}])

    def add(self, rows: Sequence[Row], progress: Step) -> None:
        """Write rows to the file, then report them as done."""
        if self.path is not None:
            self._write([{"kind": "row", **row} for row in rows])
        self.rows += rows
        progress(len(rows))

    def _write(self, lines: Sequence[Row]) -> None:
        raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        try:
            while raw:
                raw = raw[os.write(self._fd, raw) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None

    def close(self) -> None:
        """Close the file."""
        if self.path is not None:
            os.close(self._fd)


def header_of(**fields: Any) -> Row:
    """Return a header: when, by which versions, commit and build, on which machine, and more."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": {
            "spanwise": _lib.version(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "commit": commit(),
        "build": _build(),
        "machine": f"{platform.system()} {platform.machine()}",
        **fields,
    }


@functools.cache
def commit() -> str | None:
    """Return the commit of the checkout, with "+changes" if it is dirty; None: no checkout."""
    root = _git("rev-parse", "--show-toplevel")
    if root is None or not (Path(root) / "include/spanwise/spanwise.h").is_file():
        return None
    head = _git("rev-parse", "--short=12", "HEAD")
    dirty = _git("status", "--porcelain", "--untracked-files=no")
    return f"{head}+changes" if head and dirty else head


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@functools.cache
def _build() -> str | None:
    """Return a prefix of the compiled library's hash, to distinguish builds of one commit."""
    path = getattr(sys.modules.get("spanwise._spanwise"), "__file__", None)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path else None
