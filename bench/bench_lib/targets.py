# SPDX-License-Identifier: Apache-2.0
"""The rows of bench/targets.toml: what is measured, against whom, and what is to be reached."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_lib.errors import BenchError

# Before Python 3.11 the same reader is found where pip keeps it.
tomllib: Any = importlib.import_module(
    "tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli"
)

OURS = ("inline", "bare", "exported", "generic", "preload")
PEERS = ("linked", "preload", "go", "constant")
METRICS = {"op": "ns", "rss_over_live": "x", "rss_over_table": "x"}
REQUIREMENT = re.compile(r"^([a-z][a-z0-9-]*) >= (\d+(?:\.\d+)*)$")


@dataclass(frozen=True)
class Requirement:
    """A peer that must have run for a verdict, and its least version."""

    family: str
    version: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Reads `NAME >= VERSION`, e.g. `snmalloc >= 0.7`.

        Raises:
            ValueError: the text has another form.
        """
        match = REQUIREMENT.match(text)
        if match is None:
            raise ValueError(f"reference '{text}' is not 'NAME >= VERSION'")
        return cls(match[1], parse_version(match[2]))

    def met_by(self, name: str, version: str) -> bool:
        """Whether a peer of that name (mimalloc3 counts as mimalloc) and version will do."""
        return family(name) == self.family and parse_version(version) >= self.version

    def __str__(self) -> str:
        return f"{self.family} >= {'.'.join(map(str, self.version))}"


@dataclass(frozen=True)
class Target:
    """One row of the scoreboard.

    Attributes:
        name: what people call it.
        bench: the row of the bench programs for ours, without the policy.
        peer_bench: the same for the peers.
        unit: of the values printed.
        ours: how ours is called (one of OURS).
        peers: how peers are called (one of PEERS); `constant`: the row's value is the ratio itself.
        metric: counter of the bench programs that holds the value.
        target: ours / best peer must not exceed it.
        reference: peers without which there is no verdict.
        constant: what the value is a ratio to, when peers is `constant`.
        path: path of bench/paths.c whose instructions stand beside the row, or "".
    """

    name: str
    bench: str
    peer_bench: str
    unit: str
    ours: str
    peers: str
    metric: str
    target: float
    reference: tuple[Requirement, ...]
    constant: str
    path: str


def family(name: str) -> str:
    """The allocator behind a peer's name: mimalloc3 -> mimalloc, go-special -> go."""
    return name.split("-", maxsplit=1)[0].rstrip("0123456789")


def parse_version(text: str) -> tuple[int, ...]:
    """The first run of numbers and dots: `5.3.0-0-g54e` -> (5, 3, 0), `go1.26` -> (1, 26)."""
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _word(row: dict[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    value = row.get(key)
    if value not in allowed:
        raise ValueError(f"{key} is {value!r}; use one of {', '.join(allowed)}")
    return str(value)


def _parse(row: dict[str, Any]) -> Target:
    known = {field.name for field in Target.__dataclass_fields__.values()}
    for key in row:
        if key not in known:
            raise ValueError(f"unknown key '{key}'; known are {', '.join(sorted(known))}")
    for key in ("name", "bench"):
        if not isinstance(row.get(key), str) or not row[key]:
            raise ValueError(f"{key} is missing")
    target = row.get("target")
    if isinstance(target, bool) or not isinstance(target, (int, float)) or target <= 0:
        raise ValueError(f"target is {target!r}; use a ratio above 0")
    peers = _word(row, "peers", PEERS)
    metric = _word({"metric": row.get("metric", "op")}, "metric", tuple(METRICS))
    reference = tuple(Requirement.parse(text) for text in row.get("reference", []))
    if (peers == "constant") != ("constant" in row):
        raise ValueError("constant belongs to peers = 'constant', and to it alone")
    if (peers == "constant") == bool(reference):
        raise ValueError("reference names a peer, except for peers = 'constant'")
    return Target(
        name=row["name"],
        bench=row["bench"],
        peer_bench=row.get("peer_bench", row["bench"]),
        unit=row.get("unit", METRICS[metric]),
        ours=_word(row, "ours", OURS),
        peers=peers,
        metric=metric,
        target=float(target),
        reference=reference,
        constant=row.get("constant", ""),
        path=row.get("path", ""),
    )


def load_targets(path: Path) -> list[Target]:
    """Reads and checks the file.

    Raises:
        BenchError: it is missing, no TOML, or a row breaks a rule; the message names the row.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BenchError(f"{path}: not TOML: {error}") from error
    rows: list[Target] = []
    for number, raw in enumerate(data.get("row", []), start=1):
        try:
            row = _parse(raw)
            if any(row.name == other.name for other in rows):
                raise ValueError("the name is taken by a row above")
        except ValueError as error:
            name = raw.get("name", "without a name")
            raise BenchError(f"{path}: row {number} ({name}): {error}") from error
        rows.append(row)
    if not rows:
        raise BenchError(f"{path}: no [[row]] in it")
    return rows
