# SPDX-License-Identifier: Apache-2.0
"""Access to the generator's families of size classes and to table files.

The package `spanwise_sizeclasses` defines them, and also generates the C tables. This module
translates its errors. The package is imported when a family or a table file is first used, since
most programs that import `spanwise` use neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spanwise.errors import InvalidError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from spanwise_sizeclasses.model import Table

NAMES_HELP = "go, c16, jemalloc, tcmalloc, mimalloc, pow2, fibonacci, geometric-R or FILE.json"
"""The table names that commands accept."""

_SMALL_LIMIT = 1024


@contextmanager
def _named_errors(where: str = "") -> Iterator[None]:
    """Translate the generator's errors to those of this package."""
    from spanwise_sizeclasses.model import SizeClassError  # noqa: PLC0415

    try:
        yield
    except SizeClassError as error:
        raise InvalidError(f"{where}{error}") from None


def named(name: str) -> Table | None:
    """Return the table of a family's name or of geometric-R; None if there is no such family."""
    from spanwise_sizeclasses import families  # noqa: PLC0415

    with _named_errors():
        return families.named(name)


def check_name(name: str) -> None:
    """Reject names that are not allowed in a table file, or in the C generated from it."""
    from spanwise_sizeclasses import model  # noqa: PLC0415

    with _named_errors():
        model.check_name(name)
    if name in model.BUILTINS:
        raise InvalidError(f"name {name!r} belongs to a built-in table; choose another")


def make(family: str, *arguments: Any, **options: Any) -> Table:
    """Return the table of a family with arguments: geometric, pow2 or fibonacci."""
    from spanwise_sizeclasses import families  # noqa: PLC0415

    with _named_errors():
        table: Table = getattr(families, family)(*arguments, **options)
        return table


def span_pages(size: int, page_bytes: int) -> int:
    """Return the fewest pages of a span whose tail is at most 1/8 of it."""
    from spanwise_sizeclasses import families  # noqa: PLC0415

    return families.span_pages(size, page_bytes)


def read_table_file(path: str, raw: bytes) -> Table:
    """Parse the bytes of a table file; `path` is for messages."""
    from spanwise_sizeclasses import tablefile  # noqa: PLC0415

    with _named_errors(f"{path}: "):
        return tablefile.parse_table(raw)


def large_step(sizes: NDArray[np.int64]) -> int:
    """Return the step of the lookup above 1024 B: 128, or less if classes are closer."""
    bits = 128
    for size in sizes[sizes > _SMALL_LIMIT].tolist():
        bits |= size
    return bits & -bits
