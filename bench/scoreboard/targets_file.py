# SPDX-License-Identifier: Apache-2.0
"""Reads bench/scoreboard/targets.toml, and refuses rows that break its rules."""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.errors import BenchError

from scoreboard.field_file import parse_field
from scoreboard.machine import Machine
from scoreboard.prototypes import STEPS
from scoreboard.targets import (
    METRICS,
    OURS,
    PEERS,
    PROPER,
    SCRIPTED,
    Requirement,
    Target,
    TargetFile,
    Weaker,
)

# Before Python 3.11 the same reader is imported from pip's copy.
tomllib: Any = importlib.import_module(
    "tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli"
)

OPTION = re.compile(r"^SPANWISE_[A-Z][A-Z_]*$")  # a variable that libspanwise-malloc.so reads


def _word(row: dict[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    value = row.get(key)
    if value not in allowed:
        raise ValueError(f"{key} is {value!r}; use one of {', '.join(allowed)}")
    return str(value)


def _above_zero(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        what = "ratio" if key in ("target", "figure") else "number"
        raise ValueError(f"{key} is {value!r}; use a {what} above 0")
    return float(value)


def _weaker(row: dict[str, Any], machines: Mapping[str, Machine]) -> tuple[Weaker, ...]:
    """The weaker targets of a row, each with its machine and its prototype."""
    found: list[Weaker] = []
    for raw in row.get("weaker", []):
        if not isinstance(raw, dict) or raw.keys() != {"machine", "target", "prototype", "figure"}:
            raise ValueError(f"weaker has {raw!r}; use machine, target, prototype and figure")
        machine, prototype = raw["machine"], raw["prototype"]
        target, figure = (_above_zero(raw[key], key) for key in ("target", "figure"))
        if machine not in machines:
            raise ValueError(f"weaker on machine '{machine}', which no [[machine]] is")
        if any(each.machine == machine for each in found):
            raise ValueError(f"weaker on '{machine}' twice")
        if prototype not in STEPS:
            raise ValueError(f"weaker by prototype '{prototype}', which ./dev study limits lacks")
        if not row.get("target", math.inf) < target:
            raise ValueError(f"weaker on '{machine}' is {target:g}: it lies above target")
        if target > figure:
            raise ValueError(
                f"weaker on '{machine}' is {target:g}, above the {figure:g} that its prototype "
                f"'{prototype}' reached"
            )
        found.append(Weaker(machine, target, prototype, figure))
    return tuple(found)


def _check_kinds(row: dict[str, Any]) -> None:
    for key in ("target", "needs_gb", "limit"):
        _above_zero(row.get(key, 1), key)
    texts = ("peer_bench", "path", "base", "cause", "constant", "unit", "decision", "because")
    for key in texts:
        if not isinstance(row.get(key, ""), str):
            raise ValueError(f"{key} is {row[key]!r}; use text")
    if bool(row.get("weaker")) != bool(row.get("decision")):
        raise ValueError("weaker and decision come together: a weaker target has its reason")


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


def parse_row(row: dict[str, Any], machines: Mapping[str, Machine]) -> Target:
    """Reads and checks a [[row]].

    Raises:
        ValueError: it breaks a rule.
    """
    known = Target.__dataclass_fields__.keys() - {"programs", "spare"}  # of the field
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
        weaker=_weaker(row, machines),
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
    if not row["name"].startswith(SCRIPTED):
        words = "' or '".join(SCRIPTED)
        raise ValueError(f"the name of a row with a script begins with '{words}'")
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


def _machines(raw: Any) -> dict[str, Machine]:
    """The classes of a file, by key.

    Raises:
        ValueError: one is not described, or described twice.
    """
    found: dict[str, Machine] = {}
    for each in raw:
        try:
            machine = Machine(each["vendor"], each["family"], each["model"], each["name"])
            if not isinstance(each["key"], str) or not each["key"]:
                raise TypeError
            if each["key"] in found or machine in found.values():
                raise ValueError(f"machine '{each['key']}' is described twice")
            found[each["key"]] = machine
        except (KeyError, TypeError):
            raise ValueError(f"machine {each!r}: use key, vendor, family, model, name") from None
    return found


def load(path: Path) -> TargetFile:
    """Reads and checks the file.

    Raises:
        BenchError: it is missing, no TOML, or breaks a rule; the message names the row.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BenchError(f"{path}: not TOML: {error}") from error
    if not data.get("row"):
        raise BenchError(f"{path}: no [[row]] in it")
    repetitions = data.get("repetitions")
    if isinstance(repetitions, bool) or not isinstance(repetitions, int) or repetitions < 1:
        raise BenchError(f"{path}: repetitions is {repetitions!r}; use a number, 1 or more")
    try:
        machines = _machines(data.get("machine", []))
        field, field_repetitions = parse_field(data["field"]) if "field" in data else ((), 0)
    except ValueError as error:
        raise BenchError(f"{path}: {error}") from error
    rows = (*_rows(path, data["row"], machines), *field)
    return TargetFile(rows, machines, repetitions, field_repetitions)


def _rows(path: Path, raws: list[dict[str, Any]], machines: Mapping[str, Machine]) -> list[Target]:
    rows: list[Target] = []
    for number, raw in enumerate(raws, start=1):
        try:
            row = parse_row(raw, machines)
            if any(row.name == other.name for other in rows):
                raise ValueError("the name is taken by a row above")
        except ValueError as error:
            name = raw.get("name", "without a name")
            raise BenchError(f"{path}: row {number} ({name}): {error}") from error
        rows.append(row)
    return rows
