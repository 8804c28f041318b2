# SPDX-License-Identifier: Apache-2.0
"""Reads bench/targets.toml, which explains the keys."""

from __future__ import annotations

import fnmatch
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from driver.tools import BenchError

# Before Python 3.11, use pip's copy of the same module.
tomllib: Any = importlib.import_module(
    "tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli"
)
NUMBERS = ("target", "limit", "per", "needs_gb", "spare", "rank")
# Way of our contender -> default way of the peers.
PEERS = {
    **dict.fromkeys(("inline", "bare"), "linked"),
    **dict.fromkeys(("preload", "generic"), "allocators"),
    "pattern": "pattern-allocators",
}
TEXTS = ("name", "ours", "base", "value", "unit")


@dataclass(frozen=True)
class Row:
    """One row: what is measured, the peers, and the target. targets.toml explains the keys."""

    name: str
    ours: str = ""
    peers: tuple[str, ...] = ()
    value: str = "ns"
    unit: str = ""
    target: float | None = None
    limit: float | None = None
    per: float = 1.0
    base: str = ""
    needs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    needs_gb: float = 0.0
    spare: float = 0.0
    rows: tuple[str, ...] = ()
    rank: float | None = None


@dataclass(frozen=True)
class Targets:
    """The content of the file: rows in order, and the repetitions that verdicts need."""

    rows: tuple[Row, ...]
    repetitions: int


def _checked(key: str, value: Any) -> Any:
    if key in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise ValueError(f"{key} is {value!r}; use a number above 0")
        return float(value)
    if key in TEXTS:
        if not isinstance(value, str) or not value:
            raise ValueError(f"{key} is {value!r}; use text")
        return value
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"{key} is {value!r}; use a text or a list of texts")
    return tuple(texts)


def parse_row(raw: Mapping[str, Any]) -> Row:
    """Check one row.

    Raises:
        ValueError: the row violates a rule.
    """
    known = {field.name for field in fields(Row)}
    for key in raw:
        if key not in known:
            raise ValueError(f"unknown key '{key}'; known are {', '.join(sorted(known))}")
    row = Row(**{"name": "", **{key: _checked(key, value) for key, value in raw.items()}})
    if not row.name:
        raise ValueError("name is missing")
    if bool(row.ours) == bool(row.rows):
        raise ValueError("give either ours (a measured row) or rows (a mean of measured rows)")
    if row.ours and not row.peers and row.limit is None:
        way, _, words = row.ours.partition(" ")
        if way not in PEERS:
            raise ValueError("give peers (and a target) or a limit")
        row = replace(row, peers=(f"{PEERS[way]} {words}",))
    elif row.peers and row.limit is not None:
        raise ValueError("give either peers (and a target) or a limit")
    if row.rank is not None and not row.rows:
        raise ValueError("rank belongs to a row with rows")
    for need in (*row.needs, *row.without):
        if re.fullmatch(r"[a-z][a-z0-9-]*( \d+(\.\d+)*)?", need) is None:
            raise ValueError(f"'{need}' is not NAME or NAME VERSION")
    return row


def expand(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per word of `each`, which replaces {} in texts; without `each`, the row.

    Raises:
        ValueError: `each` is not a list of texts.
    """
    rest = {key: value for key, value in raw.items() if key != "each"}
    if "each" not in raw:
        return [rest]

    def filled(value: Any, word: str) -> Any:
        if isinstance(value, list):
            return [filled(item, word) for item in value]
        return value.replace("{}", word) if isinstance(value, str) else value

    words = _checked("each", raw["each"])
    return [{key: filled(value, word) for key, value in rest.items()} for word in words]


def load(path: Path) -> Targets:
    """Read and check the file.

    Raises:
        BenchError: the file is missing, not TOML or invalid; the message names the row.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BenchError(f"{path}: not TOML: {error}") from error
    repetitions = data.get("repetitions")
    if isinstance(repetitions, bool) or not isinstance(repetitions, int) or repetitions < 1:
        raise BenchError(f"{path}: repetitions is {repetitions!r}; use a whole number, 1 or more")
    rows: list[Row] = []
    for index, raw in enumerate(data.get("rows", []), start=1):
        try:
            for row in map(parse_row, expand(raw)):
                if any(row.name == other.name for other in rows):
                    raise ValueError("an earlier row has the same name")
                rows.append(row)
        except ValueError as error:
            raise BenchError(f"{path}: row {index} ({raw.get('name', '?')}): {error}") from error
    if not rows:
        raise BenchError(f"{path}: has no rows")
    return Targets(tuple(rows), repetitions)


def choose(rows: Sequence[Row], patterns: Sequence[str]) -> list[Row]:
    """Return the rows whose name matches a shell pattern or contains a plain text.

    Raises:
        BenchError: a pattern matches no row.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        loose = pattern if any(mark in pattern for mark in "*?[") else f"*{pattern}*"
        found = {row.name for row in rows if fnmatch.fnmatchcase(row.name, loose)}
        if not found:
            names = ", ".join(row.name for row in rows[:4])
            raise BenchError(f"--rows '{pattern}' matches none of {len(rows)} rows: {names}, ...")
        chosen |= found
    return [row for row in rows if row.name in chosen]
