# SPDX-License-Identifier: Apache-2.0
"""Conversions of the classes of a table: to and from C, to JSON, text and Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise._lib import check, ffi, lib
from spanwise.errors import InvalidError
from spanwise.results.rows import AnyRows, Result
from spanwise.tables import families

if TYPE_CHECKING:
    from spanwise.tables.table import SizeClassTable


CLASSES_DTYPE = np.dtype(
    [
        ("cls", "<u4"),
        ("size_bytes", "<u4"),
        ("span_bytes", "<u4"),
        ("slots", "<u4"),
        ("tail_bytes", "<u4"),
        ("max_waste_percent", "<f8"),
        ("min_align", "<u4"),
        ("first_span_bytes", "<u4"),
    ]
)
"""The columns of a table."""

COLUMN_TITLES = (
    "class",
    "bytes/obj",
    "bytes/span",
    "objects",
    "tail",
    "max waste",
    "min align",
    "first span",
)
"""The last column is shown only if spans grow."""

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
"""The names of the columns in the generator's JSON, a format that other table files share."""


def name_bytes(name: str) -> bytes:
    """Return a table's name as bytes for the C library; raise if it contains a NUL."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, not {type(name).__name__}")
    raw = name.encode("utf-8", "surrogateescape")
    if b"\0" in raw:
        raise errors.InvalidError("name: must not hold a NUL character")
    return raw


def class_spec(item: Any, cls: int, page_bytes: int) -> tuple[int, int, int]:
    """Return one class as (size, pages, first pages or 0); choose the pages if not given."""
    if isinstance(item, np.void):
        item = item.item()
    if isinstance(item, tuple | list):
        if len(item) not in (2, 3):
            raise errors.InvalidError(
                f"class {cls}: give a size, a pair (size, pages) or (size, pages, first pages)"
            )
        size, pages, first = (*item, 0)[:3]
        return (
            _lib.as_index(size, f"class {cls}: size", (1 << 32) - 1),
            _lib.as_index(pages, f"class {cls}: pages", (1 << 32) - 1),
            _lib.as_index(first, f"class {cls}: first pages", (1 << 32) - 1),
        )
    size = _lib.as_index(item, f"class {cls}: size", (1 << 32) - 1)
    return size, families.span_pages(size, page_bytes), 0


def file_specs(file: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Return the classes of a parsed table file, as `class_spec` does."""
    return [(c["size"], c["pages"], c.get("first_pages", 0)) for c in file["classes"]]


def file_rows(classes: AnyRows, page_bytes: int) -> list[dict[str, int]]:
    """Return the classes in the form of a table file."""
    return [
        {"size": size, "pages": span // page_bytes}
        | ({} if first == span else {"first_pages": first // page_bytes})
        for size, span, first in classes[["size_bytes", "span_bytes", "first_span_bytes"]].tolist()
    ]


def grow(classes: AnyRows) -> bool:
    """Return whether some class has spans that grow."""
    return bool((classes["first_span_bytes"] != classes["span_bytes"]).any())


def read_classes(c_table: Any) -> NDArray[np.void]:
    """Return the rows of a table, shape (classes,), read-only."""
    count = lib.sw_table_class_count(c_table)
    rows = np.empty(count, CLASSES_DTYPE)
    info = ffi.new("sw_class_info *")
    for i in range(count):
        check(lib.sw_table_class(c_table, i + 1, info))
        rows[i] = (
            info.cls,
            info.size_bytes,
            info.span_bytes,
            info.slots,
            info.tail_bytes,
            info.max_waste_percent,
            info.min_align,
            info.first_span_bytes,
        )
    rows.flags.writeable = False
    return rows


def json_rows(classes: AnyRows) -> list[dict[str, Any]]:
    """Return one dictionary per class, with the generator's keys; percentages have two decimals."""
    keys = _GENERATOR_KEYS[: len(titles(classes))]
    return [
        {
            key: (round(v, 2) if isinstance(v, float) else v)
            for key, v in zip(keys, row, strict=False)
        }
        for row in classes.tolist()
    ]


def titles(classes: AnyRows) -> tuple[str, ...]:
    """Return the titles of the columns of `text_rows`."""
    return COLUMN_TITLES if grow(classes) else COLUMN_TITLES[:-1]


def text_rows(classes: AnyRows) -> list[tuple[str, ...]]:
    """Return the columns as text, one tuple per class."""
    columns = len(titles(classes))
    return [
        (str(c), str(s), str(span), str(n), str(tail), f"{worst:.2f}%", *map(str, last))[:columns]
        for c, s, span, n, tail, worst, *last in classes.tolist()
    ]


def markdown(classes: AnyRows) -> str:
    """Return the columns as a Markdown table."""
    heads = titles(classes)
    lines = ["| " + " | ".join(heads) + " |", "|" + "---:|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in text_rows(classes)]
    return "\n".join(lines)


# --- explanations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Explanation(Result):
    """How a table serves one request. Sizes are in bytes.

    Attributes:
        table: name of the table.
        size_bytes: the requested size.
        cls: the class that serves it; 0 for whole pages, and for size 0.
        rounded_bytes: size of the slot, or of whole pages; 0 for size 0.
        waste_bytes: rounded_bytes - size_bytes.
        waste_percent: waste_bytes in percent of rounded_bytes.
        span_bytes: length of a span of the class, or of the pages.
        slots: slots per span.
        tail_bytes: end of the span that is too short for a slot.
        min_align: alignment that every slot has.
        note: a remark, or "".
    """

    table: str
    size_bytes: int
    cls: int
    rounded_bytes: int
    waste_bytes: int
    waste_percent: float
    span_bytes: int
    slots: int
    tail_bytes: int
    min_align: int
    note: str

    def __str__(self) -> str:
        name = f"class {self.cls}" if self.cls else "whole pages" if self.size_bytes else "none"
        rows = [
            ("table", self.table),
            ("request", f"{self.size_bytes} B"),
            ("class", name),
            ("rounded up to", f"{self.rounded_bytes} B"),
            ("waste", f"{self.waste_bytes} B ({self.waste_percent:.2f} %)"),
            ("span", f"{self.span_bytes} B, {_format.plural(self.slots, 'slot')}"),
            ("tail of the span", f"{self.tail_bytes} B"),
            ("alignment", f"{self.min_align} B"),
        ]
        text = _format.table(rows, left=2)
        return f"{text}\n{self.note}" if self.note else text


def explain_request(table: SizeClassTable, size: int) -> Explanation:
    """Explain how `table` serves a request of `size` bytes."""
    rounded = int(table.round_up(size))
    cls = table.class_of(size)
    note = ""
    if size == 0:
        note = (
            "Nothing is needed for 0 bytes, but malloc(0) takes a slot of"
            f" {table.classes['size_bytes'][0]} B, so that its address is unique."
        )
    elif rounded == 0:
        raise InvalidError(f"size {size} is too large to round up to whole pages")
    elif cls == 0:
        note = f"Larger than every class ({table.largest_bytes} B): its own whole pages."
    row = table.classes[cls - 1] if cls else None
    return Explanation(
        table=table.name,
        size_bytes=size,
        cls=0 if size == 0 else cls,
        rounded_bytes=rounded,
        waste_bytes=rounded - size,
        waste_percent=100 * (rounded - size) / rounded if rounded else 0.0,
        span_bytes=int(row["span_bytes"]) if row is not None else rounded,
        slots=int(row["slots"]) if row is not None else 1,
        tail_bytes=int(row["tail_bytes"]) if row is not None else 0,
        min_align=int(row["min_align"]) if row is not None else table.page_bytes,
        note=note,
    )
