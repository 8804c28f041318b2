# SPDX-License-Identifier: Apache-2.0
"""The classes of a table in other forms: for JSON, as text, as Markdown, as a file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise.tables.classes import CLASSES_DTYPE, grow

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


def json_rows(classes: NDArray[np.void]) -> list[dict[str, Any]]:
    """One dictionary a class with its columns; percents have two digits."""
    keys = (CLASSES_DTYPE.names or ())[: len(titles(classes))]
    return [
        {
            key: (round(v, 2) if isinstance(v, float) else v)
            for key, v in zip(keys, row, strict=False)
        }
        for row in classes.tolist()
    ]


def titles(classes: NDArray[np.void]) -> tuple[str, ...]:
    """The titles of the columns that `text_rows` gives."""
    return COLUMN_TITLES if grow(classes) else COLUMN_TITLES[:-1]


def text_rows(classes: NDArray[np.void]) -> list[tuple[str, ...]]:
    """The columns as text, one tuple a class."""
    columns = len(titles(classes))
    return [
        (str(c), str(s), str(span), str(n), str(tail), f"{worst:.2f}%", *map(str, last))[:columns]
        for c, s, span, n, tail, worst, *last in classes.tolist()
    ]


def markdown(classes: NDArray[np.void]) -> str:
    """The columns as a Markdown table."""
    heads = titles(classes)
    lines = ["| " + " | ".join(heads) + " |", "|" + "---:|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in text_rows(classes)]
    return "\n".join(lines)


def write_whole(path: str | os.PathLike[str], content: str) -> None:
    """Writes a text file that appears whole or not at all.

    Raises:
        OSError: naming `path`; what was there before stays.
    """
    place = Path(path)
    growing = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        growing.write_text(content, encoding="utf-8")
        growing.replace(place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place)) from None
    finally:
        with suppress(OSError):
            growing.unlink()
