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
PEERS = ("linked", "preload", "go", "constant", "self", "counts")
METRICS = {"op": "ns", "rss_over_live": "x", "rss_over_table": "x"}
LOOP = "loop"  # how the names of rows begin that a script measures
PROPER = ("linked", "preload", "go")  # other allocators: these rows name a reference
REQUIREMENT = re.compile(r"^([a-z][a-z0-9-]*) >= (\d+(?:\.\d+)*)$")
OPTION = re.compile(r"^SPANWISE_[A-Z][A-Z_]*$")  # a variable that libspanwise-malloc.so reads


@dataclass(frozen=True)
class Requirement:
    """A peer and its least version, e.g. one that must have run for a verdict."""

    family: str
    version: tuple[int, ...]

    @classmethod
    def parse(cls, text: str, key: str = "reference") -> Requirement:
        """Reads `NAME >= VERSION`, e.g. `snmalloc >= 0.7`; the key is for messages.

        Raises:
            ValueError: the text has another form.
        """
        match = REQUIREMENT.match(text)
        if match is None:
            raise ValueError(f"{key} '{text}' is not 'NAME >= VERSION'")
        return cls(match[1], parse_version(match[2]))

    def met_by(self, name: str, version: str) -> bool:
        """Whether a peer of that name (mimalloc3 counts as mimalloc) and version will do."""
        named = self.family in (name, family(name))
        return named and parse_version(version) >= self.version

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
        peers: how peers are called (one of PEERS); `constant`: the row's value is the ratio itself;
            `self`: our own row peer_bench; `counts`: bench and peer_bench are paths, whose
            instructions are compared.
        metric: counter of the bench programs that holds the value.
        target: ours / best peer must not exceed it; None: the row is reported, not judged.
        reference: peers without which there is no verdict.
        constant: what the value is a ratio to, when peers is `constant`.
        path: path of bench/paths_*.c whose counts stand beside the row, or "".
        base: a row; what is compared is ours / best peer in `bench` over the same in it. "": none.
        needs_gb: the row is skipped on a machine with less memory free.
        cause: why the row is missed, as far as known; printed with a missed row.
        script: script of bench/ that measures and judges the row, which is its row `bench`; it is
            run only when --rows begins with `loop`. "": the bench programs.
        limit: what the script's value, in the row's unit, must not exceed; None: reported.
        asked: what was asked of the row before its limits were measured; None: that is `target`.
        decision: number of the note in docs/decisions/ that has the reason why `target` is weaker.
        apart: peers that are measured and shown, but do not compete.
        only: the only peers that compete; empty: all do but those of `apart`.
        environment: variables of the processes of ours, and of no other.
        because: why the row has `apart`, `only` or `environment`; printed with it.
    """

    name: str
    bench: str
    peer_bench: str
    unit: str
    ours: str
    peers: str
    metric: str
    target: float | None
    reference: tuple[Requirement, ...]
    constant: str
    path: str
    base: str = ""
    needs_gb: float = 0.0
    cause: str = ""
    script: str = ""
    limit: float | None = None
    asked: float | None = None
    decision: str = ""
    apart: tuple[Requirement, ...] = ()
    only: tuple[Requirement, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    because: str = ""

    def admits(self, name: str, version: str) -> bool:
        """Whether a peer of that name and version competes in the row."""
        if self.only:
            return any(each.met_by(name, version) for each in self.only)
        return not any(each.met_by(name, version) for each in self.apart)

    @property
    def paths(self) -> tuple[str, ...]:
        """What is to be counted for the row; the library without checks has paths of its own."""
        if self.peers == "counts":
            return (self.bench, self.peer_bench)
        if not self.path:
            return ()
        return (f"bare {self.path}" if self.ours == "bare" else self.path,)


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


def _check_kinds(row: dict[str, Any]) -> None:
    for key in ("target", "needs_gb", "limit", "asked"):
        value = row.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            what = "ratio" if key in ("target", "asked") else "number"
            raise ValueError(f"{key} is {value!r}; use a {what} above 0")
    texts = ("peer_bench", "path", "base", "cause", "constant", "unit", "decision", "because")
    for key in texts:
        if not isinstance(row.get(key, ""), str):
            raise ValueError(f"{key} is {row[key]!r}; use text")
    if ("asked" in row) != bool(row.get("decision")):
        raise ValueError("asked and decision come together: a weaker target has its reason")
    if "asked" in row and not row["asked"] < row.get("target", 0):
        raise ValueError("asked is the harder ratio: it lies below target")


def _requirements(row: dict[str, Any], key: str) -> tuple[Requirement, ...]:
    texts = row.get(key, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{key} is {texts!r}; use a list of 'NAME >= VERSION'")
    return tuple(Requirement.parse(text, key) for text in texts)


def _environment(row: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The variables of a row, in the order of their names."""
    found = row.get("environment", {})
    if not isinstance(found, dict):
        raise ValueError(f"environment is {found!r}; use a table, e.g. {{ SPANWISE_THP = 'off' }}")
    for name, value in found.items():
        if OPTION.match(name) is None:
            raise ValueError(f"environment has '{name}'; options of ours begin with SPANWISE_")
        if not isinstance(value, str):
            raise ValueError(f"environment has {name} = {value!r}; use text")
    return tuple(sorted(found.items()))


def _check_terms(row: dict[str, Any], peers: str) -> None:
    """The keys that say who competes, and under which terms."""
    for key in ("apart", "only"):
        if row.get(key) and peers not in PROPER:
            raise ValueError(f"{key} names peers for peers = {' or '.join(PROPER)}, and only then")
    if row.get("apart") and row.get("only"):
        raise ValueError("apart and only do not go together: only leaves out all others")
    if row.get("environment"):
        if row.get("ours") != "preload":
            raise ValueError("environment belongs to ours = 'preload', which reads it")
        if peers == "counts" or row.get("path"):
            raise ValueError("environment does not reach what is counted: no path, no counts")
    if any(row.get(key) for key in ("apart", "only", "environment")) != bool(row.get("because")):
        raise ValueError("because is the reason of apart, only or environment: none without it")


def _parse(row: dict[str, Any]) -> Target:
    known = {field.name for field in Target.__dataclass_fields__.values()}
    for key in row:
        if key not in known:
            raise ValueError(f"unknown key '{key}'; known are {', '.join(sorted(known))}")
    for key in ("name", "bench"):
        if not isinstance(row.get(key), str) or not row[key]:
            raise ValueError(f"{key} is missing")
    _check_kinds(row)
    if "script" in row or "limit" in row:
        return _scripted(row)
    target = row.get("target")
    peers = _word(row, "peers", PEERS)
    metric = _word({"metric": row.get("metric", "op")}, "metric", tuple(METRICS))
    reference, apart, only = (_requirements(row, key) for key in ("reference", "apart", "only"))
    environment = _environment(row)
    if (peers == "constant") != ("constant" in row):
        raise ValueError("constant belongs to peers = 'constant', and to it alone")
    if (peers in PROPER) != bool(reference):
        raise ValueError(f"reference names a peer for peers = {' or '.join(PROPER)}, and only then")
    if peers in ("self", "counts") and "peer_bench" not in row:
        raise ValueError(f"peer_bench is missing: peers = '{peers}' compares bench with it")
    _check_terms(row, peers)
    return Target(
        name=row["name"],
        bench=row["bench"],
        peer_bench=row.get("peer_bench", row["bench"]),
        unit=row.get("unit", "instr" if peers == "counts" else METRICS[metric]),
        ours=_word(row, "ours", OURS),
        peers=peers,
        metric=metric,
        target=None if target is None else float(target),
        reference=reference,
        constant=row.get("constant", ""),
        path=row.get("path", ""),
        base=row.get("base", ""),
        needs_gb=float(row.get("needs_gb", 0)),
        cause=row.get("cause", ""),
        asked=float(row["asked"]) if "asked" in row else None,
        decision=row.get("decision", ""),
        apart=apart,
        only=only,
        environment=environment,
        because=row.get("because", ""),
    )


def _scripted(row: dict[str, Any]) -> Target:
    """A row that a script judges by a limit: its ratio is to the limit."""
    strange = sorted(row.keys() - {"name", "bench", "unit", "script", "limit", "cause"})
    if strange:
        raise ValueError(f"{strange[0]} does not belong to a row with a script or limit")
    if not isinstance(row.get("script"), str) or not row.get("unit"):
        raise ValueError("script and unit are missing, or no text")
    if not row["name"].startswith(LOOP):
        raise ValueError(f"the name of a row with a script begins with '{LOOP}'")
    limit = row.get("limit")
    return Target(
        name=row["name"],
        bench=row["bench"],
        peer_bench=row["bench"],
        unit=row["unit"],
        ours="",
        peers="",
        metric="op",
        target=None if limit is None else 1.0,
        reference=(),
        constant="",
        path="",
        cause=row.get("cause", ""),
        script=row["script"],
        limit=None if limit is None else float(limit),
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
