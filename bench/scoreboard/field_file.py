# SPDX-License-Identifier: Apache-2.0
"""Reads the table [field] of bench/scoreboard/targets.toml: the rows that bench/field measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scoreboard.targets import FIELD, METRICS, Requirement, Target

# What a row is compared with: the best of the field's peers; an earlier library of ours that takes
# part as --peer today=PATH; itself, its value being the ratio; over several programs, the best peer
# of each (mean), or all allocators by their geometric means (rank).
AGAINST = ("best", "today", "itself", "mean", "rank")
KEYS = {"name", "bench", "programs", "metric", "against", "target", "spare", "cause"}
TODAY = "today"


def _number(row: Mapping[str, Any], key: str) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ValueError(f"{key} is {value!r}; use a number above 0")
    return float(value)


def _texts(row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key, [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{key} is {value!r}; use a list of texts")
    return tuple(value)


def _terms(against: str, peers: Sequence[Requirement]) -> tuple[str, tuple[Requirement, ...]]:
    """Target.peers of a row, and who competes in it."""
    if against == TODAY:
        return "preload", (Requirement(TODAY, (), exact=True),)
    if against == "itself":
        return "constant", ()
    return ("preload" if against == "best" else against), tuple(peers)


def _check_words(row: Mapping[str, Any], against: str, metric: str) -> None:
    strange = sorted(row.keys() - KEYS)
    if strange:
        raise ValueError(f"unknown key '{strange[0]}'; known are {', '.join(sorted(KEYS))}")
    if not str(row.get("name", "")).startswith(FIELD):
        raise ValueError(f"the name of a row of the field begins with '{FIELD}'")
    if against not in AGAINST:
        raise ValueError(f"against is {against!r}; use one of {', '.join(AGAINST)}")
    if metric not in METRICS:
        raise ValueError(f"metric is {metric!r}; use one of {', '.join(METRICS)}")
    if (against in ("mean", "rank")) != ("programs" in row) or ("programs" in row) == (
        "bench" in row
    ):
        raise ValueError("programs belong to against = 'mean' and 'rank', bench to all others")


def parse_field_row(row: Mapping[str, Any], peers: Sequence[Requirement]) -> Target:
    """Reads and checks a [[field.row]].

    Args:
        row: as TOML has it.
        peers: those of the field.

    Raises:
        ValueError: it breaks a rule.
    """
    against, metric = row.get("against", "best"), row.get("metric", "cpu")
    _check_words(row, against, metric)
    kind, competing = _terms(against, peers)
    programs = _texts(row, "programs")
    bench = str(row.get("bench", f"{len(programs)} programs"))
    return Target(
        name=row["name"],
        bench=bench,
        peer_bench=bench,
        unit="x" if programs else METRICS[metric],
        ours="preload",
        peers=kind,
        metric=metric,
        target=_number(row, "target"),
        reference=competing,
        constant="no growth" if against == "itself" else "",
        path="",
        cause=str(row.get("cause", "")),
        only=competing,
        programs=programs,
        spare=_number(row, "spare") or 0.0,
    )


def parse_field(raw: Mapping[str, Any]) -> tuple[tuple[Target, ...], int]:
    """The rows of the field, and how often each is repeated to be judged.

    Args:
        raw: the table [field].

    Raises:
        ValueError: it breaks a rule; the message names the row.
    """
    repetitions = raw.get("repetitions")
    if isinstance(repetitions, bool) or not isinstance(repetitions, int) or repetitions < 1:
        raise ValueError(f"field: repetitions is {repetitions!r}; use a number, 1 or more")
    peers = [Requirement.parse(text, "field: peers", exact=True) for text in _texts(raw, "peers")]
    rows: list[Target] = []
    for row in raw.get("row", []):
        try:
            made = parse_field_row(row, peers)
            if any(made.name == other.name for other in rows):
                raise ValueError("the name is taken by a row above")
        except ValueError as error:
            raise ValueError(f"field: row {row.get('name', 'without a name')}: {error}") from error
        rows.append(made)
    return tuple(rows), repetitions
