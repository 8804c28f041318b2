# SPDX-License-Identifier: Apache-2.0
"""The tasks of a sweep: one recording and a few tables each, and their rows.

A task is sent as JSON: the recording by path and hash, the tables by their classes. Rows are plain
values, even those of failures. A worker that shares no disk with the sweep requests the file of a
recording once and keeps it in a directory of its own.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import socket
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import errors
from spanwise.ledger.parts import PARTS
from spanwise.recordings.recording import Recording
from spanwise.results.files import write_whole
from spanwise.sweeps.row_file import (
    COUNT,
    HASH,
    MOMENT,
    NUMBER,
    OBJECT,
    OBJECTS,
    TABLES,
    TEXT,
    Row,
    RowKind,
    optional,
)
from spanwise.tables.classes import file_specs
from spanwise.tables.table import SizeClassTable

LEDGER_FIELDS = (
    *PARTS,
    "held_bytes",
    "resident_bytes",
    "waste_bytes",
    "live_objects",
    "spans",
    "time_ns",
)
STATS_FIELDS = (
    "failed",
    "skipped",
    "peak_requested_bytes",
    "peak_held_bytes",
    "peak_resident_bytes",
    "held_at_peak_bytes",
    "mean_held_over_requested",
)
VALUE_FIELDS = (*LEDGER_FIELDS, "events", *STATS_FIELDS)
"""The values of a row; None in a failed row."""

ROW_FIELDS = (
    "recording",
    "recording_sha256",
    "table",
    "table_hash",
    "classes",
    "at",
    *VALUE_FIELDS,
    "seconds",
    "worker",
    "error",
)
"""All fields of a row."""

_TYPES = {
    **dict.fromkeys(ROW_FIELDS, optional(COUNT)),
    **{"recording": TEXT, "recording_sha256": optional(TEXT), "table": TEXT, "at": MOMENT},
    **{"table_hash": optional(HASH), "classes": COUNT},
    **{"mean_held_over_requested": optional(NUMBER), "seconds": optional(NUMBER)},
    **{"worker": optional(TEXT), "error": optional(TEXT)},
}
SWEEP = RowKind(
    "sweep",
    ("at", "options"),
    {"at": MOMENT, "options": OBJECT, "recordings": OBJECTS, "tables": TABLES},
    _TYPES,
    (
        *("recording_sha256", "table_hash"),
        *(name for name in VALUE_FIELDS if name != "mean_held_over_requested"),
    ),
)

SENT_BYTES_MAX = 256 << 20
"""The largest file that is sent to a worker."""


@dataclass(frozen=True)
class Task:
    """A recording and tables for a worker.

    Attributes:
        library: version of spanwise of the sweep.
        recording: name, path and sha256 of the recording, valid_prefix; path None: in memory.
        at: moment of the ledgers, as of `Recording.ledger`.
        options: fields of `HeapOptions`.
        tables: name, hash (hexadecimal), page_bytes and classes [[size, pages, first pages]] of
            each table.
        attempt: number of workers that died on it.
        lacked: number of workers that did not have its recording.
    """

    library: str
    recording: dict[str, Any]
    at: str | float
    options: dict[str, Any]
    tables: tuple[dict[str, Any], ...]
    attempt: int = 0
    lacked: int = 0

    def to_json(self) -> str:
        """Return the task as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Return the task of `to_json`."""
        value = json.loads(text)
        return cls(**{**value, "tables": tuple(value["tables"])})

    def singles(self) -> list[Task]:
        """Split the task into tasks of one table each."""
        return [replace(self, tables=(one,), attempt=self.attempt + 1) for one in self.tables]

    def failures(self, error: str) -> list[Row]:
        """Return a failed row for each table."""
        return [self.row(table, error=error) for table in self.tables]

    def row(self, table: dict[str, Any], *, error: str | None = None, **values: Any) -> Row:
        """Return a row of one of the tables."""
        return {
            "recording": self.recording["name"],
            "recording_sha256": self.recording["sha256"],
            "table": table["name"],
            "table_hash": table["hash"],
            "classes": len(table["classes"]),
            "at": self.at,
            **{name: values.get(name) for name in VALUE_FIELDS},
            "seconds": values.get("seconds"),
            "worker": values.get("worker"),
            "error": error,
        }


def table_spec(table: SizeClassTable) -> dict[str, Any]:
    """Return a table in the form of a task."""
    file = table.to_dict()
    classes = [list(spec) for spec in file_specs(file)]
    return {
        "name": table.name,
        "hash": f"{table.hash:016x}",
        "page_bytes": table.page_bytes,
        "classes": classes,
    }


def spec_table(spec: dict[str, Any]) -> SizeClassTable:
    """Return the table of `table_spec`.

    Raises:
        InvalidError: it is not a table, or has another hash.
    """
    classes = [(size, pages, first) for size, pages, first in spec["classes"]]
    table = SizeClassTable.custom(classes, name=spec["name"], page_bytes=spec["page_bytes"])
    if f"{table.hash:016x}" != spec["hash"]:
        raise errors.InvalidError(
            f"table {spec['name']}: hash {table.hash:016x} here, {spec['hash']} in the sweep;"
            " use the same spanwise on all workers"
        )
    return table


def describe(error: BaseException) -> str:
    """Describe an error on one line, with its type if the message is not enough."""
    text = " ".join(str(error).split())
    if isinstance(error, errors.SpanwiseError) and text:
        return text
    if isinstance(error, OSError) and error.strerror:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# --- recordings -----------------------------------------------------------------------------------


class AbsentRecordingError(Exception):
    """A worker does not have the file of a recording."""

    def __init__(self, path: str, worker: str) -> None:
        super().__init__(path, worker)
        self.path, self.worker = path, worker

    def __str__(self) -> str:
        host = self.worker.rpartition(":")[0]
        return f"{self.path}: is not on {host}; put the same file there, under the same name"


def worker_name() -> str:
    """Return host and process id, for rows."""
    return f"{socket.gethostname()}:{os.getpid()}"


def ops_sha256(ops: NDArray[np.void]) -> str:
    """Return the hash of operations in memory."""
    return hashlib.sha256(np.ascontiguousarray(ops).view(np.uint8).data).hexdigest()


def file_sha256(path: str) -> str:
    """Return the hash of a file, cached by the file's identity, size and time.

    Raises:
        OSError: it cannot be read.
    """
    status = Path(path).stat()
    return _file_sha256(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))


@functools.lru_cache(maxsize=1024)
def _file_sha256(path: str, _identity: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def open_checked(recording: dict[str, Any]) -> Recording:
    """Open a recording by its path if the hash matches, or the file that was sent.

    Raises:
        InvalidError: the file there has another hash.
        AbsentRecordingError: there is no such file here.
        OSError: it cannot be read. Others as of `Recording.open`.
    """
    path = recording["path"]
    wanted = wanted_sha256(recording)
    try:
        found = file_sha256(path)
    except FileNotFoundError:
        path = _kept(wanted)
        if not path.is_file():
            raise AbsentRecordingError(recording["path"], worker_name()) from None
        return _open(str(path), wanted, recording["valid_prefix"])
    if found != wanted:
        raise errors.InvalidError(
            f"{path}: sha256 {found[:16]}... on {socket.gethostname()}, {wanted[:16]}... in the"
            " sweep; put the same file there"
        )
    return _open(path, wanted, recording["valid_prefix"])


def wanted_sha256(recording: dict[str, Any]) -> str:
    """Return the hash of the file of a recording."""
    found: str = recording.get("file_sha256", recording["sha256"])  # set if it was in memory
    return found


def content_of(recording: dict[str, Any]) -> bytes:
    """Read the file of a recording, for a worker without it.

    Raises:
        InvalidError: it is too large, or changed.
        OSError: it cannot be read.
    """
    path = Path(recording["path"])
    size = path.stat().st_size
    if size > SENT_BYTES_MAX:
        raise errors.InvalidError(
            f"{size >> 20} MiB are not sent to workers ({SENT_BYTES_MAX >> 20} MiB are)"
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != wanted_sha256(recording):
        raise errors.InvalidError(f"{path} changed since the sweep began")
    return content


def keep_content(recording: dict[str, Any], content: bytes) -> None:
    """Store a file that was sent to this worker."""
    write_whole(_kept(wanted_sha256(recording)), content)


def _kept(sha256: str) -> Path:
    return Path(_folder(os.getpid()).name) / f"{sha256}.swt"


@functools.lru_cache(maxsize=1)
def _folder(_process: int) -> tempfile.TemporaryDirectory[str]:
    """Return the folder of sent files, removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="spanwise-sweep-")


@functools.lru_cache(maxsize=16)
def _open(path: str, _sha256: str, valid_prefix: bool) -> Recording:
    """Open a recording; cached, because the summary of a raw one costs a pass."""
    return Recording.open(path, valid_prefix)
