# SPDX-License-Identifier: Apache-2.0
"""The classes of a table, to the C library and from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib, errors
from spanwise._lib import check, ffi, lib
from spanwise.tables import families

CLASSES_DTYPE = np.dtype(
    [
        ("cls", "<u4"),
        ("size", "<u4"),
        ("span_bytes", "<u4"),
        ("objects", "<u4"),
        ("tail_waste", "<u4"),
        ("max_waste_pct", "<f8"),
        ("min_align", "<u4"),
    ]
)
"""The seven columns of a table, with the names that its JSON has."""


def name_bytes(name: str) -> bytes:
    """A table's name for the C library; raises for what it cannot hold."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, not {type(name).__name__}")
    raw = name.encode("utf-8", "surrogateescape")
    if b"\0" in raw:
        raise errors.InvalidError("name: must not hold a NUL character")
    return raw


def class_spec(item: Any, cls: int, page_bytes: int) -> tuple[int, int]:
    """One class as (size, pages); where no pages are given they are chosen."""
    if isinstance(item, np.void):
        item = item.item()
    if isinstance(item, tuple | list):
        if len(item) != 2:
            raise errors.InvalidError(f"class {cls}: give a size, or a pair (size, pages)")
        size, pages = item
        return (
            _lib.as_index(size, f"class {cls}: size", (1 << 32) - 1),
            _lib.as_index(pages, f"class {cls}: pages", (1 << 32) - 1),
        )
    size = _lib.as_index(item, f"class {cls}: size", (1 << 32) - 1)
    return size, families.span_pages(size, page_bytes)


def read_classes(c_table: Any) -> NDArray[np.void]:
    """The rows of a table, shape (classes,), not to be written to."""
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
        )
    rows.flags.writeable = False
    return rows
