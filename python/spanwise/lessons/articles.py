# SPDX-License-Identifier: Apache-2.0
"""What five articles about memory claim, and the verdict on each claim that has one.

`article-figures.json` has the claims as they were printed; they are quoted, never asserted.
`verdicts.json` has groups of verdicts with one reason each, and the claims that are still open.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

from spanwise import _format
from spanwise.errors import InvalidError

VERDICTS = ("reproduced", "different", "not reproducible")

Key = tuple[str, str, str]
"""Source, case and unit: what names a claim."""


class Claim(NamedTuple):
    """What an article says of one case, and our verdict.

    Attributes:
        source: the article.
        machine: on which it measured.
        case: what was measured, or the statement.
        value: the figure; None: a statement.
        unit: of the figure; "statement" of a statement.
        verdict: one of VERDICTS; None: it has none yet.
        ours: our figure or finding; None: there is none.
        reason: of the verdict.
        notebook: number of the notebook in which it stands.
    """

    source: str
    machine: str
    case: str
    value: float | None
    unit: str
    verdict: str | None = None
    ours: float | str | None = None
    reason: str = ""
    notebook: str = ""

    @property
    def key(self) -> Key:
        """What names the claim."""
        return (self.source, self.case, self.unit)


def _read(name: str) -> Any:
    file = resources.files("spanwise.lessons").joinpath(name)
    return json.loads(file.read_text(encoding="utf-8"))


@functools.cache
def claims() -> tuple[Claim, ...]:
    """All claims in the order of the articles, with their verdicts."""
    found: dict[Key, dict[str, Any]] = {}
    for group in _read("verdicts.json")["groups"]:
        shared = {name: group[name] for name in ("notebook", "verdict", "reason")}
        for row in group["rows"]:
            found[row["source"], row["case"], row["unit"]] = {**shared, "ours": row.get("ours")}
    fields = ("source", "machine", "case", "value", "unit")
    rows = [Claim(*(row[name] for name in fields)) for row in _read("article-figures.json")["rows"]]
    return tuple(row._replace(**found.get(row.key, {})) for row in rows)


def open_keys() -> frozenset[Key]:
    """The claims that are listed as having no verdict yet."""
    return frozenset((row[0], row[1], row[2]) for row in _read("verdicts.json")["open"])


def verdicts(notebook: str, counted: Mapping[tuple[str, str], float]) -> str:
    """The claims that stand in a notebook, as a table: the article's figure, ours, verdict, reason.

    Args:
        notebook: its number.
        counted: what the notebook has counted just now, by case and unit.

    Raises:
        InvalidError: the notebook has no claim; a case is none of its claims; or a count is not
            the one that the verdict rests on.
    """
    mine = {(claim.case, claim.unit): claim for claim in claims() if claim.notebook == notebook}
    if not mine:
        raise InvalidError(f"no claim stands in notebook {notebook!r}")
    for key, value in counted.items():
        if key not in mine:
            raise InvalidError(f"{key[0]!r} in {key[1]}: no claim of notebook {notebook}")
        if mine[key].ours != value:
            raise InvalidError(f"{key[0]!r}: counted {value}, but the verdict has {mine[key].ours}")
    return _text(list(mine.values()))


def _text(rows: list[Claim]) -> str:
    """Groups of one reason: its claims as lines, the reason below."""
    lines, reasons = [], list(dict.fromkeys((row.verdict, row.reason) for row in rows))
    for verdict, reason in reasons:
        group = [row for row in rows if (row.verdict, row.reason) == (verdict, reason)]
        lines.append(f"{verdict}: {_format.plural(len(group), 'claim')}. {reason}")
        for row in group:
            said = "" if row.value is None else f": {row.value:,g} {row.unit}"
            ours = "" if row.ours is None else f"; here {row.ours}"
            lines.append(f"    {row.case}{said}{ours}")
    return "\n".join(lines)
