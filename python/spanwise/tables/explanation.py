# SPDX-License-Identifier: Apache-2.0
"""What a size-class table does with one request."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from spanwise import _format
from spanwise.errors import InvalidError

if TYPE_CHECKING:
    from spanwise.tables.table import SizeClassTable


@dataclass(frozen=True)
class Explanation:
    """What a table does with one request. Every size is in bytes.

    Attributes:
        table: name of the table.
        size: what is requested.
        cls: the class that serves it; 0 for whole pages (and for nothing).
        rounded: what it is rounded up to: the slot, or whole pages; 0 for 0.
        waste: rounded - size.
        waste_pct: waste as a part of rounded, percent.
        span_bytes: length of a span of the class, or of the pages.
        objects: slots in such a span.
        tail_waste: end of the span that is too short for a slot.
        min_align: alignment that every slot has.
        note: what else there is to say, or "".
    """

    table: str
    size: int
    cls: int
    rounded: int
    waste: int
    waste_pct: float
    span_bytes: int
    objects: int
    tail_waste: int
    min_align: int
    note: str

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON; `class` stands for `cls`."""
        value = asdict(self)
        return {("class" if key == "cls" else key): item for key, item in value.items()}

    def __str__(self) -> str:
        name = f"class {self.cls}" if self.cls else "whole pages" if self.size else "none"
        rows = [
            ("table", self.table),
            ("request", f"{self.size} B"),
            ("class", name),
            ("rounded up to", f"{self.rounded} B"),
            ("waste", f"{self.waste} B ({self.waste_pct:.2f} %)"),
            ("span", f"{self.span_bytes} B, {_format.plural(self.objects, 'object')}"),
            ("tail of the span", f"{self.tail_waste} B"),
            ("alignment", f"{self.min_align} B"),
        ]
        text = _format.table(rows, left=2)
        return f"{text}\n{self.note}" if self.note else text


def explain_request(table: SizeClassTable, size: int) -> Explanation:
    """What happens under `table` to one request of `size` bytes.

    Raises:
        InvalidError: the size is too large to be rounded up to whole pages.
    """
    rounded = int(table.round_up(size))
    cls = table.class_of(size)
    note = ""
    if size == 0:
        note = (
            "A request of 0 bytes takes nothing; the C call still returns a unique slot of"
            f" {table.classes['size'][0]} B."
        )
    elif rounded == 0:
        raise InvalidError(f"size {size} is too large to round up to whole pages")
    elif cls == 0:
        note = f"Larger than every class ({table.max_bytes} B): whole pages of its own."
    row = table.classes[cls - 1] if cls else None
    return Explanation(
        table=table.name,
        size=size,
        cls=0 if size == 0 else cls,
        rounded=rounded,
        waste=rounded - size,
        waste_pct=100 * (rounded - size) / rounded if rounded else 0.0,
        span_bytes=int(row["span_bytes"]) if row is not None else rounded,
        objects=int(row["objects"]) if row is not None else 1,
        tail_waste=int(row["tail_waste"]) if row is not None else 0,
        min_align=int(row["min_align"]) if row is not None else table.page_bytes,
        note=note,
    )
