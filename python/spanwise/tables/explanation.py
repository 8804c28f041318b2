# SPDX-License-Identifier: Apache-2.0
"""Explains how a size-class table serves one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.results.rows import Result

if TYPE_CHECKING:
    from spanwise.tables.table import SizeClassTable


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
        note = f"Larger than every class ({table.largest_bytes} B): whole pages of its own."
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
