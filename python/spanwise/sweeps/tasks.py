# SPDX-License-Identifier: Apache-2.0
"""The tasks of a sweep: one recording and a few tables each, and the rows that they give.

A task travels as JSON: the recording by path and hash, the tables by their classes. What comes back
is rows of plain values, also for what failed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from spanwise import errors
from spanwise.ledger.parts import PARTS
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
"""What a row says of a table; None in a failed row."""

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
"""Every field of a row."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What a worker is asked to do.

    Attributes:
        library: version of spanwise that the sweep was started with.
        recording: name, path and sha256 of the recording, valid_prefix; path None: in memory.
        at: moment of the ledgers, as of `Recording.ledger`.
        options: fields of `HeapOptions`.
        tables: name, hash (hexadecimal), page_bytes and classes [[size, pages, first pages]] of
            each table.
        attempt: 0, or how often a worker died on it before.
        lacked: how often it came to a worker that did not have the recording.
    """

    library: str
    recording: dict[str, Any]
    at: str | float
    options: dict[str, Any]
    tables: tuple[dict[str, Any], ...]
    attempt: int = 0
    lacked: int = 0

    def to_json(self) -> str:
        """The task as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """The task of `to_json`."""
        value = json.loads(text)
        return cls(**{**value, "tables": tuple(value["tables"])})

    def singles(self) -> list[Task]:
        """The same work as tasks of one table each."""
        return [replace(self, tables=(one,), attempt=self.attempt + 1) for one in self.tables]

    def failures(self, error: str) -> list[Row]:
        """A failed row for each table."""
        return [self.row(table, error=error) for table in self.tables]

    def row(self, table: dict[str, Any], *, error: str | None = None, **values: Any) -> Row:
        """A row of one of the tables."""
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
    """A table as a task has it."""
    file = table.to_dict()
    classes = [list(spec) for spec in file_specs(file)]
    return {
        "name": table.name,
        "hash": f"{table.hash:016x}",
        "page_bytes": table.page_bytes,
        "classes": classes,
    }


def spec_table(spec: dict[str, Any]) -> SizeClassTable:
    """The table of `table_spec`.

    Raises:
        InvalidError: it is no table, or not the one that its hash names.
    """
    classes = [(size, pages, first) for size, pages, first in spec["classes"]]
    table = SizeClassTable.custom(classes, name=spec["name"], page_bytes=spec["page_bytes"])
    if f"{table.hash:016x}" != spec["hash"]:
        raise errors.InvalidError(
            f"table {spec['name']}: hash {table.hash:016x} here, {spec['hash']} in the sweep;"
            " use the same spanwise on all workers"
        )
    return table


# --- recordings -----------------------------------------------------------------------------------


# --- running --------------------------------------------------------------------------------------
