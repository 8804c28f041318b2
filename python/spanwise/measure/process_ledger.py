# SPDX-License-Identifier: Apache-2.0
"""What the preloaded malloc writes of a process at its end. The file: docs/design/preload.md."""

from __future__ import annotations

import json
import operator
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, errors
from spanwise.ledger.ledger import LEDGER_CLASS_DTYPE, Ledger
from spanwise.ledger.parts import OUTSIDE, PARTS, SUMS
from spanwise.ledger.run_stats import C_NAMES, RunStats
from spanwise.results.files import reading
from spanwise.results.rows import Result, Value, as_rows

_FORMAT, _VERSION = "spanwise-ledger", 1
_ROW_NAMES = (
    "size_bytes",
    "spans",
    "span_bytes",
    "slots",
    "live_objects",
    "requested_bytes",
    "roundup_bytes",
    "tail_bytes",
    "free_slot_bytes",
    "cached_bytes",
)


@dataclass(frozen=True, eq=False, repr=False)
class ProcessLedger(Result, Value):
    """What one process told at its end. Sizes are in bytes.

    Attributes:
        pid: its process id.
        program: path of its program.
        ledger: at its end.
        peak: when live requested bytes were at most 1/32 below their highest; None: untracked.
        peak_held_bytes: most that its heap held at once.
        peak_rss_bytes: most that was resident of the process, by the system's account.
        tracked: whether requested sizes are known.
        limit_bytes: limit of its heap; None: there was none.
    """

    pid: int
    program: str
    ledger: Ledger
    peak: Ledger | None
    peak_held_bytes: int
    peak_rss_bytes: int
    tracked: bool
    limit_bytes: int | None

    @property
    def stats(self) -> RunStats | None:
        """Counts and peaks of the whole run; None: untracked."""
        return self.ledger.stats

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "pid": self.pid,
            "program": self.program,
            "tracked": self.tracked,
            "limit_bytes": self.limit_bytes,
            "peak_held_bytes": self.peak_held_bytes,
            "peak_rss_bytes": self.peak_rss_bytes,
            "end": self.ledger.to_dict(),
            "peak": self.peak.to_dict() if self.peak else None,
        }

    def __repr__(self) -> str:
        resident, held = (_format.size(n) for n in (self.peak_rss_bytes, self.peak_held_bytes))
        return (
            f"<ProcessLedger of {self.program}, process {self.pid}: peak RSS {resident},"
            f" {held} held>"
        )


def read_process_ledger(path: str | os.PathLike[str]) -> ProcessLedger:
    """Reads a file that SPANWISE_LEDGER=PATH left.

    Raises:
        InvalidError: it is no such file.
        OSError: it cannot be read.
    """
    name = f"{os.fspath(path)}: no ledger of the preloaded malloc"
    with reading(name, error=errors.InvalidError):
        value = json.loads(Path(path).read_text(encoding="ascii"))
        if (value["format"], value["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"{value['format']} version {value['version']}")
        return _process_ledger(value)


def _count(value: Any) -> int:
    """A number of bytes or objects.

    Raises:
        TypeError, ValueError: it is none.
    """
    if not 0 <= operator.index(value) < 1 << 64:
        raise ValueError("a number is negative or has more than 64 bits")
    return int(value)


def _process_ledger(value: dict[str, Any]) -> ProcessLedger:
    stats = _stats(value["run"]) if value.get("run") else None
    peak = value["peak"]
    return ProcessLedger(
        pid=_count(value["pid"]),
        program=str(value["program"] or ""),
        ledger=_ledger(value, "end", stats),
        peak=_ledger(value, "peak", stats) if peak else None,
        peak_held_bytes=_count(value["peak_held_bytes"]),
        peak_rss_bytes=_count(value["peak_rss_bytes"]),
        tracked=bool(value["tracked"]),
        limit_bytes=_count(value["limit_bytes"]) or None,
    )


def _stats(value: dict[str, int]) -> RunStats:
    names = {told: name for name, told in C_NAMES.items()}
    counts = {names.get(told, told): _count(count) for told, count in value.items()}
    return RunStats(**counts, skipped=0, mean_held_over_requested=None)


def _ledger(value: dict[str, Any], at: str, stats: RunStats | None) -> Ledger:
    part = value[at]
    numbers: dict[str, Any] = {name: _count(part[name]) for name in SUMS if name not in OUTSIDE}
    # a program does not know all of them
    numbers |= {name: _count(part.get(name, 0)) for name in OUTSIDE}
    ledger = Ledger(
        **numbers,
        rss_bytes=_count(value["rss_bytes"]) if at == "end" else None,
        events=_count(part["ops"]),
        classes=as_rows(_rows(part["classes"])),
        table=str(value["table"]),
        at=at,
        source=Path(str(value["program"] or "")).name,
        tracked=bool(value["tracked"]),
        stats=stats,
    )
    if "resident" not in part:
        return ledger
    touched: dict[str, Any] = {
        name: _count(part["resident"][name]) for name in (*PARTS, "held_bytes")
    }
    resident = replace(ledger, **touched, classes=ledger.classes[:0], stats=None, rss_bytes=None)
    return replace(ledger, resident=resident)


def _rows(lists: list[list[int]]) -> NDArray[np.void]:
    rows = np.zeros(len(lists), LEDGER_CLASS_DTYPE)
    table = np.array(lists, np.uint64).reshape(len(lists), -1)
    rows["cls"] = np.arange(len(lists))
    for i, name in enumerate(_ROW_NAMES):
        rows[name] = table[:, i]
    rows["occupancy"] = table[:, len(_ROW_NAMES) :]
    rows.flags.writeable = False
    return rows
