# SPDX-License-Identifier: Apache-2.0
"""Go's procedure: parameters -> classes.

Method: Go 1.26.8, runtime/_mkmalloc/mksizeclasses.go (makeClasses). Candidates rise by a step that
grows with the size; the span of each is found by trial; a candidate that a span holds as often as
the one below replaces it; at the end each class grows as far as its span holds it equally often.
What differs here: the limits are parameters, and align "16" starts the 16 B step at 16 instead of
32, which leaves every class from 16 B up a multiple of 16 and drops exactly the 24 B class. Under
other limits than Go's a class may grow to the size of those above it (1408 to 1536 B with 4 KiB
pages); it then takes their place, and none grows past the largest. Last, spans of
small sizes with fewer slots than `span_slots` are doubled while they stay within 64 KiB: no size
changes, and the part of a span that its tail wastes does not grow. In a growing table a class
begins with the span that it had before, and spans of larger sizes are doubled too, within 32 KiB.
"""

from __future__ import annotations

from collections.abc import Iterator

from .model import (
    LONG_SPAN_BYTES,
    MIDDLE_SPAN_BYTES,
    SIZE_MAX,
    SLOTS_MAX,
    SMALL_MAX,
    SPAN_BYTES_MAX,
    Parameters,
    SizeClass,
    SizeClassError,
    Table,
)
from .rules import check_classes, check_page_bytes

# Classes grow in these units, so that a map with this step can tell all large classes apart.
_GROWTH_UNIT = 128


def _candidates(align: str, max_size: int) -> Iterator[int]:
    """Sizes to try, in bytes: 8, then up by a step that is reset at each power of two."""
    step_16_from = 16 if align == "16" else 32
    step = 8
    size = 8
    while size <= max_size:
        if size & (size - 1) == 0:
            if size >= 2048:
                step = 256
            elif size >= 128:
                step = size // 8
            elif size >= step_16_from:
                step = 16
        yield size
        size += step


def _span_pages(size: int, p: Parameters) -> int:
    """The fewest pages whose tail behind whole slots of `size` bytes is within the limit."""
    for span in range(p.page_bytes, SPAN_BYTES_MAX + 1, p.page_bytes):
        if span % size <= span * p.tail_limit:
            return span // p.page_bytes
    raise SizeClassError(
        f"size {size}: no span up to {SPAN_BYTES_MAX} bytes wastes at most {p.tail_limit} in its"
        " tail; raise the tail limit"
    )


def check_parameters(p: Parameters) -> None:
    """Raises SizeClassError for parameters that the procedure has no meaning for."""
    check_page_bytes(p.page_bytes)
    if p.align not in ("go", "16"):
        raise SizeClassError(f"align {p.align!r}: must be go or 16")
    if p.max_size & (p.max_size - 1) or not 16 <= p.max_size <= SIZE_MAX:
        raise SizeClassError(f"max_size {p.max_size}: must be a power of two from 16 to {SIZE_MAX}")
    if not 0 <= p.tail_limit < 1:
        raise SizeClassError(f"tail_limit {p.tail_limit}: must be at least 0 and below 1")
    if not 1 <= p.span_slots <= SLOTS_MAX:
        raise SizeClassError(f"span_slots {p.span_slots}: must be from 1 to {SLOTS_MAX}")


def make_table(p: Parameters) -> Table:
    """The table of the parameters.

    Raises:
        SizeClassError: for parameters out of range, or that lead to a table which breaks a rule.
    """
    check_parameters(p)
    merged: list[SizeClass] = []
    for size in _candidates(p.align, p.max_size):
        pages = _span_pages(size, p)
        span = pages * p.page_bytes
        if merged and merged[-1].pages == pages and span // merged[-1].size == span // size:
            merged.pop()
        merged.append(SizeClass(size, pages))
    classes: tuple[SizeClass, ...] = ()
    for c in merged:
        grown = _grown(c, p)
        if not classes or grown.size > classes[-1].size:  # else the one below serves these sizes
            classes += (_lengthened(grown, p),)
    check_classes(p.page_bytes, classes)
    return Table(p.name, p.page_bytes, classes, p)


def _grown(c: SizeClass, p: Parameters) -> SizeClass:
    """The class at the largest size, in growth units, that its span holds equally often."""
    span = c.pages * p.page_bytes
    largest = min(span // (span // c.size), p.max_size)
    return SizeClass(max(c.size, largest - largest % _GROWTH_UNIT), c.pages)


def _lengthened(c: SizeClass, p: Parameters) -> SizeClass:
    """The class, its span doubled as span_slots asks for and its limit of bytes allows.

    The limit is LONG_SPAN_BYTES for small sizes, MIDDLE_SPAN_BYTES for others in a growing table.
    """
    pages = c.pages
    small = c.size <= SMALL_MAX
    limit = LONG_SPAN_BYTES if small else MIDDLE_SPAN_BYTES if p.growing else 0
    while pages * p.page_bytes // c.size < p.span_slots and 2 * pages * p.page_bytes <= limit:
        pages *= 2
    return SizeClass(c.size, pages, c.pages if p.growing and pages != c.pages else None)
