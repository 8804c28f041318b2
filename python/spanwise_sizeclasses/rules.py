# SPDX-License-Identifier: Apache-2.0
"""The rules that every table obeys, with the same texts as sw_table_create in C."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .model import (
    CLASSES_MAX,
    NAME_MAX,
    PAGE_BYTES_MAX,
    PAGE_BYTES_MIN,
    SIZE_MAX,
    SLOTS_MAX,
    SPAN_BYTES_MAX,
    SizeClass,
    SizeClassError,
)

_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_.-]{{0,{NAME_MAX - 1}}}")


def check_name(name: str) -> None:
    """Raises SizeClassError unless `name` can name a table, its files and its C symbols."""
    if not _NAME.fullmatch(name):
        raise SizeClassError(
            f"name {name[: NAME_MAX + 1]!r}: must be 1 to {NAME_MAX} of A-Z a-z 0-9 _ . -"
            " and begin with a letter"
        )


def check_page_bytes(page_bytes: int) -> None:
    """Raises SizeClassError unless `page_bytes` is a page size of tables."""
    power = page_bytes & (page_bytes - 1) == 0
    if not power or not PAGE_BYTES_MIN <= page_bytes <= PAGE_BYTES_MAX:
        raise SizeClassError(
            f"page_bytes {page_bytes}: must be a power of two"
            f" from {PAGE_BYTES_MIN} to {PAGE_BYTES_MAX}"
        )


def check_classes(page_bytes: int, classes: Sequence[SizeClass]) -> None:
    """Raises SizeClassError that names the first class to break a rule, the rule and the mend."""
    if not 1 <= len(classes) <= CLASSES_MAX:
        raise SizeClassError(f"{len(classes)} classes: must be 1 to {CLASSES_MAX}")
    previous = 0
    for cls, c in enumerate(classes, 1):
        broken = (
            _broken_size(c.size, cls - 1, previous)
            or _broken_span(page_bytes, c)
            or _broken_first_span(page_bytes, c)
        )
        if broken:
            raise SizeClassError(f"class {cls} ({c.size} bytes): {broken}")
        previous = c.size


def _broken_size(size: int, below: int, previous: int) -> str | None:
    if size < 8:
        return "size must be at least 8"
    if size % 8:
        return f"size must be a multiple of 8; use {(size + 7) & ~7}"
    if size <= previous:
        return (
            f"size must be above the {previous} bytes of class {below};"
            " list the classes in rising order"
        )
    if size > SIZE_MAX:
        return f"size must be at most {SIZE_MAX}; leave it out, larger requests get whole pages"
    return None


def _broken_span(page_bytes: int, c: SizeClass) -> str | None:
    span = c.pages * page_bytes
    if c.pages < 1:
        return "pages must be at least 1"
    if span < c.size:
        return f"does not fit its span of {span} bytes; use {-(-c.size // page_bytes)} pages"
    if span > SPAN_BYTES_MAX:
        most = SPAN_BYTES_MAX // page_bytes
        return f"span of {span} bytes is above {SPAN_BYTES_MAX}; use at most {most} pages"
    if span // c.size > SLOTS_MAX:
        most = SLOTS_MAX * c.size // page_bytes
        return f"span holds {span // c.size} objects, above {SLOTS_MAX}; use at most {most} pages"
    return None


def _broken_first_span(page_bytes: int, c: SizeClass) -> str | None:
    first = c.shortest or c.pages
    times = c.pages // first
    if c.pages % first or times & (times - 1):
        return f"first_pages {first}: {c.pages} pages must be a power of two times as many"
    if first * page_bytes < c.size:
        needed = -(-c.size // page_bytes)
        return f"does not fit its first span of {first * page_bytes} bytes; use {needed} pages"
    return None
