# SPDX-License-Identifier: Apache-2.0
"""The classes of a table in other forms: for JSON, as text, as Markdown, as a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise.tables.classes import CLASSES_DTYPE

COLUMN_TITLES = (
    "class",
    "bytes/obj",
    "bytes/span",
    "objects",
    "tail waste",
    "max waste",
    "min align",
)


def json_rows(classes: NDArray[np.void]) -> list[dict[str, Any]]:
    """One dictionary a class with the seven columns; percents have two digits."""
    keys = CLASSES_DTYPE.names or ()
    return [
        {
            key: (round(v, 2) if isinstance(v, float) else v)
            for key, v in zip(keys, row, strict=True)
        }
        for row in classes.tolist()
    ]


def text_rows(classes: NDArray[np.void]) -> list[tuple[str, ...]]:
    """The seven columns as text, one tuple a class."""
    return [
        (str(c), str(s), str(span), str(n), str(tail), f"{worst:.2f}%", str(align))
        for c, s, span, n, tail, worst, align in classes.tolist()
    ]


def markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows of `text_rows` as a Markdown table."""
    lines = ["| " + " | ".join(COLUMN_TITLES) + " |", "|" + "---:|" * len(COLUMN_TITLES)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
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
