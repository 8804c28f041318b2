# SPDX-License-Identifier: Apache-2.0
"""The classes of a table in other forms: for JSON, as text, as Markdown, as a file."""

from __future__ import annotations

from typing import Any

from spanwise.results.rows import AnyRows
from spanwise.tables.classes import grow

COLUMN_TITLES = (
    "class",
    "bytes/obj",
    "bytes/span",
    "objects",
    "tail waste",
    "max waste",
    "min align",
    "first span",
)
"""The last one only where spans grow."""

_GENERATOR_KEYS = (
    "cls",
    "size",
    "span_bytes",
    "objects",
    "tail_waste",
    "max_waste_pct",
    "min_align",
    "first_span_bytes",
)
"""What the columns are called in the generator's JSON, whose form other files of tables share."""


def json_rows(classes: AnyRows) -> list[dict[str, Any]]:
    """One dictionary a class, with the keys of the generator; percents have two digits."""
    keys = _GENERATOR_KEYS[: len(titles(classes))]
    return [
        {
            key: (round(v, 2) if isinstance(v, float) else v)
            for key, v in zip(keys, row, strict=False)
        }
        for row in classes.tolist()
    ]


def titles(classes: AnyRows) -> tuple[str, ...]:
    """The titles of the columns that `text_rows` gives."""
    return COLUMN_TITLES if grow(classes) else COLUMN_TITLES[:-1]


def text_rows(classes: AnyRows) -> list[tuple[str, ...]]:
    """The columns as text, one tuple a class."""
    columns = len(titles(classes))
    return [
        (str(c), str(s), str(span), str(n), str(tail), f"{worst:.2f}%", *map(str, last))[:columns]
        for c, s, span, n, tail, worst, *last in classes.tolist()
    ]


def markdown(classes: AnyRows) -> str:
    """The columns as a Markdown table."""
    heads = titles(classes)
    lines = ["| " + " | ".join(heads) + " |", "|" + "---:|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in text_rows(classes)]
    return "\n".join(lines)
