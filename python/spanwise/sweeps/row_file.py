# SPDX-License-Identifier: Apache-2.0
"""Files that a later session continues: JSON lines, a header a session and a row a result.

Whole lines are appended and synced, so whatever ends a session leaves at most one cut line, the
last; the next session drops it. One session at a time writes to a file. Those of sweeps:
docs/design/sweep.md; those of `bench`: docs/design/programs.md.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanwise import _lib, errors
from spanwise.heap.options import DEFAULT, HeapOptions
from spanwise.results.files import READING_ERRORS, what_is_wrong
from spanwise.sweeps.row_types import (
    COUNT,
    HASH,
    MOMENT,
    NUMBER,
    OBJECT,
    OBJECTS,
    TABLES,
    TEXT,
    VERSIONS,
    FieldType,
    check_fields,
    optional,
)
from spanwise.sweeps.tasks import ROW_FIELDS, VALUE_FIELDS

FORMAT = 1
_BUILD = {"versions": VERSIONS, "commit": optional(TEXT), "build": optional(TEXT)}
_STARTED = {"started": TEXT}


def _as_it_is(value: dict[str, Any]) -> dict[str, Any]:
    return value


@dataclass(frozen=True)
class RowKind:
    """What the rows of a file are of.

    Attributes:
        noun: of the work, for messages; `spanwise NOUN` is the kind that a header tells.
        fixed: fields of headers that are the same in all sessions of a file.
        header_fields: the types of those, and of further ones that every header has.
        row_fields: the types of the fields that every row has.
        filled: fields that are not null in rows without an error.
        renamed: a line as it is called today.
    """

    noun: str
    fixed: tuple[str, ...]
    header_fields: Mapping[str, FieldType]
    row_fields: Mapping[str, FieldType]
    filled: tuple[str, ...] = ()
    renamed: Callable[[dict[str, Any]], dict[str, Any]] = _as_it_is

    @property
    def kind(self) -> str:
        """What a header calls it."""
        return f"spanwise {self.noun}"

    @property
    def start(self) -> bytes:
        """How a file begins."""
        return f'{{"kind": "{self.kind}"'.encode()


@dataclass
class Contents:
    """What a file holds.

    Attributes:
        headers: one a session, oldest first; rows of the same sessions in the order of the file.
        notes: what a person should know, e.g. of a line that was cut.
        whole_bytes: length of the file without a cut last line.
    """

    headers: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    whole_bytes: int = 0


def read(path: str | os.PathLike[str], kind: RowKind) -> Contents:
    """Reads a file of a kind.

    Raises:
        InvalidError: naming the line that is wrong; a cut last line is only noted.
        OSError: it cannot be read.
    """
    return _parse(os.fspath(path), Path(path).read_bytes(), kind)


def _parse(path: str, raw: bytes, kind: RowKind) -> Contents:
    if raw and raw[: len(kind.start)] != kind.start[: len(raw)]:
        raise errors.InvalidError(f"{path}: not the file of a {kind.noun}; give another name")
    found = Contents()
    lines = raw.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("no end")
            _sort_in(found, json.loads(line), kind)
        except errors.InvalidError as error:
            raise errors.InvalidError(f"{path}: line {number}: {error}") from None
        except READING_ERRORS as error:
            if number == len(lines):
                found.notes.append(f"{path}: line {number} was cut; it is dropped")
                break
            raise errors.InvalidError(
                f"{path}: line {number}, byte {found.whole_bytes}: not a line of a {kind.noun}"
                f" ({what_is_wrong(error)}); remove it"
            ) from None
        found.whole_bytes += len(line)
    return found


_ROW_NAMES = {"held_at_peak": "held_at_peak_bytes"}
_OPTION_NAMES = {"limit": "limit_bytes", "batch": "batch_spans"}


def _renamed(value: dict[str, Any]) -> dict[str, Any]:
    """A line with today's names, also where a spanwise before 0.2 wrote it."""
    value = {_ROW_NAMES.get(name, name): item for name, item in value.items()}
    if isinstance(value.get("knobs"), dict):
        knobs = value.pop("knobs")
        given = {_OPTION_NAMES.get(name, name): item for name, item in knobs.items()}
        value["options"] = HeapOptions(**given).to_dict()
    if value.get("kind") == "row":
        for name in ("resident_bytes", "peak_resident_bytes"):
            value.setdefault(name, None)  # a spanwise before 0.3 did not know
    if isinstance(value.get("options"), dict):
        value["options"] = {**DEFAULT.to_dict(), **value["options"]}  # what it did not know
    return value


def _sort_in(found: Contents, value: Any, kind: RowKind) -> None:
    told = value.get("kind") if isinstance(value, dict) else None
    value = kind.renamed(value) if told is not None else value
    if told == kind.kind:
        if value.get("format") != FORMAT:
            raise errors.InvalidError(
                f"format {value.get('format')} is not known here; this spanwise reads {FORMAT}"
            )
        _need(value, (*_BUILD, *kind.header_fields))
        check_fields(value, {**_STARTED, **_BUILD, **kind.header_fields})
        found.headers.append(value)
    elif told == "row":
        _need(value, kind.row_fields)
        check_fields(value, kind.row_fields)
        if value["error"] is None:
            _check_filled(value, kind.filled)
        found.rows.append({key: item for key, item in value.items() if key != "kind"})
    else:
        raise ValueError("neither header nor row")


def _check_filled(row: dict[str, Any], names: Iterable[str]) -> None:
    empty = next((name for name in names if row[name] is None), None)
    if empty is not None:
        raise errors.InvalidError(f"{empty} is null in a row without an error")


def _need(value: dict[str, Any], names: Iterable[str]) -> None:
    missing = [name for name in names if name not in value]
    if missing:
        raise ValueError(f"without {missing[0]}")


_OFTEN_NULL = ("resident_bytes", "peak_resident_bytes", "mean_held_over_requested")
_SWEEP_TYPES = {
    **{"recording": TEXT, "recording_sha256": optional(TEXT), "table": TEXT, "at": MOMENT},
    **{"table_hash": optional(HASH), "classes": COUNT},
    **dict.fromkeys(VALUE_FIELDS, optional(COUNT)),
    **{"mean_held_over_requested": optional(NUMBER), "seconds": optional(NUMBER)},
    **{"worker": optional(TEXT), "error": optional(TEXT)},
}
SWEEP = RowKind(
    "sweep",
    ("at", "options"),
    {"at": MOMENT, "options": OBJECT, "recordings": OBJECTS, "tables": TABLES},
    {name: _SWEEP_TYPES[name] for name in ROW_FIELDS},
    (
        *("recording_sha256", "table_hash"),
        *(name for name in VALUE_FIELDS if name not in _OFTEN_NULL),
    ),
    _renamed,
)


class RowFile:
    """A file of a kind, open for appending; nobody else writes to it meanwhile.

    Attributes:
        before: what it held when it was opened.

    Args:
        path: the file; it is made where there is none.
        header: of this session. Written with its first row, so that a session that finds nothing
            to do leaves the file as it is.
        kind: what its rows are of.

    Raises:
        InvalidError: the file is of another kind, or one with other fixed fields or another
            version.
        StateError: another session writes to it.
        OSError: the system refused.
    """

    def __init__(self, path: str | os.PathLike[str], header: dict[str, Any], kind: RowKind) -> None:
        self.path = os.fspath(path)
        self._kind = kind
        _lib.c_path(path)
        self._header: dict[str, Any] | None = header
        self._made = not Path(path).exists()
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        try:
            self._lock()
            with Path(self.path).open("rb") as file:
                self.before = _parse(self.path, file.read(), kind)
            self._check(header)
            self._end = self.before.whole_bytes
            os.ftruncate(self._fd, self._end)
            _sync_folder(self.path)
        except BaseException:
            os.close(self._fd)
            raise

    def _lock(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise errors.InvalidError(f"{self.path}: not a regular file; give another name")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.StateError(
                f"{self.path}: another {self._kind.noun} writes to it; wait for it or give another"
                " name"
            ) from None
        except OSError:
            return  # a file system without locks

    def _check(self, header: dict[str, Any]) -> None:
        """Rows of one file must be comparable."""
        for old in self.before.headers[-1:]:
            for name in self._kind.fixed:
                if old[name] != header[name]:
                    raise errors.InvalidError(
                        f"{self.path}: holds a {self._kind.noun} with {name} {_shown(old[name])},"
                        f" not {_shown(header[name])}; give another file"
                    )
            theirs, ours = old["versions"].get("spanwise"), header["versions"]["spanwise"]
            if theirs != ours:
                raise errors.InvalidError(
                    f"{self.path}: made by spanwise {theirs}, this is {ours}; give another file"
                )
            if (old["commit"], old["build"]) != (header["commit"], header["build"]):
                self.before.notes.append(
                    f"{self.path}: its rows were made by another build of spanwise {ours}"
                    f" (commit {old['commit'] or 'unknown'})"
                )

    def _head(self) -> dict[str, Any]:
        return {"kind": self._kind.kind, "format": FORMAT, **(self._header or {})}

    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        """Adds rows; when this returns they are on the disk.

        Raises:
            OSError: the system refused; the file is as it was before.
        """
        lines = [] if self._header is None else [self._head()]
        lines += [{"kind": "row", **row} for row in rows]
        raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        try:
            done = 0
            while done < len(raw):
                done += os.pwrite(self._fd, raw[done:], self._end + done)
            os.fsync(self._fd)
        except BaseException as error:  # Ctrl-C may come between the two too
            os.ftruncate(self._fd, self._end)
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror, self.path) from None
            raise
        self._header = None
        self._end += len(raw)

    def close(self) -> None:
        """Ends writing. A new file that got no row is removed."""
        if self._made and self._end == 0:
            Path(self.path).unlink(missing_ok=True)
        os.close(self._fd)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sync_folder(path: str) -> None:
    """Makes the file's name survive a crash, on file systems that can."""
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
