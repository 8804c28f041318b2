# SPDX-License-Identifier: Apache-2.0
"""The tasks of a sweep: one recording and a few tables each, and their rows.

A task is sent as JSON: the recording by path and hash, the tables by their classes. Rows are plain
values, even those of failures.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import errors
from spanwise.ledger.parts import PARTS
from spanwise.recordings.recording import Recording
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
    {"at": MOMENT, "options": OBJECT, "recordings": OBJECTS, "tables": TABLES},
    _TYPES,
    (
        *("recording_sha256", "table_hash"),
        *(name for name in VALUE_FIELDS if name != "mean_held_over_requested"),
    ),
)


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
    """

    library: str
    recording: dict[str, Any]
    at: str | float
    options: dict[str, Any]
    tables: tuple[dict[str, Any], ...]

    def to_json(self) -> str:
        """Return the task as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Return the task of `to_json`."""
        value = json.loads(text)
        return cls(**{**value, "tables": tuple(value["tables"])})

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
    """Return the table of `table_spec`."""
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


def worker_name() -> str:
    """Return host and process id, for rows."""
    return f"{socket.gethostname()}:{os.getpid()}"


def ops_sha256(ops: NDArray[np.void]) -> str:
    """Return the hash of operations in memory."""
    return hashlib.sha256(np.ascontiguousarray(ops).view(np.uint8).data).hexdigest()


def file_sha256(path: str) -> str:
    """Return the hash of a file, cached by the file's identity, size and time."""
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
    """Open a recording by its path if the hash matches."""
    path, host = recording["path"], socket.gethostname()
    wanted = recording.get("file_sha256", recording["sha256"])  # set if it was in memory
    try:
        found = file_sha256(path)
    except FileNotFoundError:
        raise errors.InvalidError(
            f"{path}: is not on {host}; put the same file there, under the same name"
        ) from None
    if found != wanted:
        raise errors.InvalidError(
            f"{path}: sha256 {found[:16]}... on {host}, {wanted[:16]}... in the sweep; put the same"
            " file there"
        )
    return _open(path, wanted, recording["valid_prefix"])


@functools.lru_cache(maxsize=16)
def _open(path: str, _sha256: str, valid_prefix: bool) -> Recording:
    """Open a recording; cached, because the summary of a raw one costs a pass."""
    return Recording.open(path, valid_prefix)
