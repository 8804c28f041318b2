# SPDX-License-Identifier: Apache-2.0
"""Resumable row files: JSON lines, a header per session and a row per result.

Whole lines are appended and synced, so a killed session leaves at most one truncated line, the
last; the next session drops it. Only one session at a time writes to a file. Fields are checked
when a file is read. Sweeps: docs/design/sweep.md; benchmarks: docs/design/programs.md.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from spanwise import _lib
from spanwise.errors import InvalidError, StateError
from spanwise.results.files import READING_ERRORS, is_text, what_is_wrong
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

_SESSION = {
    **{"started": TEXT, "versions": VERSIONS},
    **{"commit": optional(TEXT), "build": optional(TEXT)},
}


def check_fields(line: Mapping[str, Any], types: Mapping[str, FieldType]) -> None:
    """Check that a line has fields of these types."""
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
        noun: of the work, for messages; headers have the kind `spanwise NOUN`.
        fixed: header fields that are the same in all sessions of a file.
        header_fields: the types of those, and of further fields of every header.
        row_fields: the types of the fields of every row.
        filled: fields that are not null in rows without an error.
    """

    noun: str
    fixed: tuple[str, ...]
    header_fields: Mapping[str, FieldType]
    row_fields: Mapping[str, FieldType]
    filled: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind in headers."""
        return f"spanwise {self.noun}"

    @property
    def start(self) -> bytes:
        """The first bytes of a file."""
        return f'{{"kind": "{self.kind}"'.encode()


@dataclass
class Contents:
    """The contents of a file.

    Attributes:
        headers: one per session, oldest first.
        rows: in the order of the file.
        notes: for the user, such as a truncated line.
        whole_bytes: length of the file without a truncated last line.
    """

    headers: list[Row] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    whole_bytes: int = 0


def read(path: str | os.PathLike[str], kind: RowKind) -> Contents:
    """Read a file of a kind."""
    return _parse(os.fspath(path), Path(path).read_bytes(), kind)


def _parse(path: str, raw: bytes, kind: RowKind) -> Contents:
    if raw and raw[: len(kind.start)] != kind.start[: len(raw)]:
        raise InvalidError(f"{path}: not the file of a {kind.noun}; give another name")
    found = Contents()
    lines = raw.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("no end")
            _add_line(found, json.loads(line), kind)
        except InvalidError as error:
            raise InvalidError(f"{path}: line {number}: {error}") from None
        except READING_ERRORS as error:
            if number == len(lines):
                found.notes.append(f"{path}: line {number} was truncated; it is dropped")
                break
            raise InvalidError(
                f"{path}: line {number}, byte {found.whole_bytes}: not a line of a {kind.noun}"
                f" ({what_is_wrong(error)}); remove it"
            ) from None
        found.whole_bytes += len(line)
    return found


def _add_line(found: Contents, value: Any, kind: RowKind) -> None:
    name = value.get("kind") if isinstance(value, dict) else None
    if name == kind.kind:
        if value.get("format") != FORMAT:
            raise InvalidError(
                f"format {value.get('format')} is unknown; this spanwise reads {FORMAT}"
            )
        check_fields(value, {**_SESSION, **kind.header_fields})
        found.headers.append(value)
    elif name == "row":
        check_fields(value, kind.row_fields)
        if value["error"] is None:
            _check_filled(value, kind.filled)
        found.rows.append({key: item for key, item in value.items() if key != "kind"})
    else:
        raise ValueError("neither header nor row")


def _check_filled(row: Row, names: Iterable[str]) -> None:
    empty = next((name for name in names if row[name] is None), None)
    if empty is not None:
        raise InvalidError(f"{empty} is null in a row without an error")


# --- writing --------------------------------------------------------------------------------------


class RowFile:
    """A file of a kind, open for appending and locked.

    Attributes:
        before: its contents when it was opened.
    """

    def __init__(self, path: str | os.PathLike[str], header: Row, kind: RowKind) -> None:
        self.path = os.fspath(path)
        self._kind = kind
        _lib.c_path(path)
        self._header: Row | None = header
        self._made = not Path(path).exists()
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        try:
            self._lock()
            self.before = read(self.path, kind)
            self._check(header)
            self._end = self.before.whole_bytes
            os.ftruncate(self._fd, self._end)
            _sync_folder(self.path)
        except BaseException:
            os.close(self._fd)
            raise

    def _lock(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise InvalidError(f"{self.path}: not a regular file; give another name")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(
                f"{self.path}: another {self._kind.noun} writes to it; wait for it or give another"
                " name"
            ) from None
        except OSError:
            return  # a file system without locks

    def _check(self, header: Row) -> None:
        """Check that the rows of both sessions are comparable."""
        for old in self.before.headers[-1:]:
            for name in self._kind.fixed:
                if old[name] != header[name]:
                    raise InvalidError(
                        f"{self.path}: holds a {self._kind.noun} with {name} {_shown(old[name])},"
                        f" not {_shown(header[name])}; give another file"
                    )
            theirs, ours = old["versions"].get("spanwise"), header["versions"]["spanwise"]
            if theirs != ours:
                raise InvalidError(
                    f"{self.path}: made by spanwise {theirs}, this is {ours}; give another file"
                )
            if (old["commit"], old["build"]) != (header["commit"], header["build"]):
                self.before.notes.append(
                    f"{self.path}: its rows were made by another build of spanwise {ours}"
                    f" (commit {old['commit'] or 'unknown'})"
                )

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows and sync them to the disk."""
        lines: list[Row] = []
        if self._header is not None:
            lines.append({"kind": self._kind.kind, "format": FORMAT, **self._header})
        lines += [{"kind": "row", **row} for row in rows]
        raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        try:
            done = 0
            while done < len(raw):
                done += os.pwrite(self._fd, raw[done:], self._end + done)
            os.fsync(self._fd)
        except BaseException as error:  # also Ctrl-C between the two calls
            os.ftruncate(self._fd, self._end)
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror, self.path) from None
            raise
        self._header = None
        self._end += len(raw)

    def close(self) -> None:
        """Close the file. A new file without rows is removed."""
        if self._made and self._end == 0:
            Path(self.path).unlink(missing_ok=True)
        os.close(self._fd)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sync_folder(path: str) -> None:
    """Sync the directory, so that the file's name survives a crash."""
    try:
        folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(folder)
    except OSError:
        pass
    finally:
        os.close(folder)


class RowStore:
    """The rows of a session by key, and in a file if there is one.

    Attributes:
        rows: by key; a later row of a key replaces an earlier one.
        before: the rows that the file had, oldest first.
        notes: about the file, for the user.
        path: of the file; None: there is none.
    """

    def __init__(
        self,
        output: str | os.PathLike[str] | None,
        header: Row,
        kind: RowKind,
        key: Callable[[Row], Hashable],
    ) -> None:
        self._file = RowFile(output, header, kind) if output is not None else None
        self._key = key
        self.rows: dict[Hashable, Row] = {}
        self.before: list[Row] = self._file.before.rows if self._file else []
        self.notes: list[str] = self._file.before.notes if self._file else []
        self.path = self._file.path if self._file else None

    def keep(self, rows: Iterable[Row]) -> None:
        """Keep rows that the file already has."""
        self.rows.update((self._key(row), row) for row in rows)

    def add(self, rows: Sequence[Row], progress: Step) -> None:
        """Write new rows to the file, then report them as done."""
        if self._file is not None:
            self._file.append(rows)
        self.keep(rows)
        progress(len(rows))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
