# SPDX-License-Identifier: Apache-2.0
"""What Go's benchmarks print of a few allocations: bytes, allocations, and the waste behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, SupportsIndex

import numpy as np

from spanwise import _lib
from spanwise.tables.table import SizeClassTable

BOOK_BYTES, POINTER_BYTES = 40, 8
"""Of a struct of two strings and an int, and of a pointer, in Go on 64-bit processors."""


class Blocks(NamedTuple):
    """The blocks of one operation, as `go test -benchmem` prints them.

    Attributes:
        allocated_bytes: of all blocks, rounded up (B/op).
        allocs: how many (allocs/op).
        waste_bytes: of these bytes, not asked for.
    """

    allocated_bytes: int
    allocs: int
    waste_bytes: int


def blocks(sizes: Iterable[SupportsIndex], table: SizeClassTable) -> Blocks:
    """Blocks for requests of these sizes.

    Args:
        sizes: bytes of each request.
        table: rounds each up to a class, or to pages.

    Raises:
        InvalidError: a size is negative.
        TypeError: a size is no integer.

    Example:
        blocks([33, 33, 66], SizeClassTable.go())  # Blocks(176, 3, 44)
    """
    wanted = np.array([_lib.as_index(size, "size") for size in sizes], np.uint64)
    given = int(np.asarray(table.round_up(wanted)).sum()) if len(wanted) else 0
    return Blocks(given, len(wanted), given - int(wanted.sum()))


def books(count: int, table: SizeClassTable, *, together: bool) -> Blocks:
    """`count` books and a list of pointers to them, after "Memory Blocks" of Go 101.

    Args:
        count: of books, 40 B each.
        table: rounds blocks up.
        together: all books in one block; else each in a block of its own.
    """
    ours = [count * BOOK_BYTES] if together else [BOOK_BYTES] * count
    return blocks([*ours, count * POINTER_BYTES], table)
