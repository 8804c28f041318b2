# SPDX-License-Identifier: Apache-2.0
"""Families of size classes and table files, as the generator has them.

The package `spanwise_sizeclasses` alone defines them: the script that writes the C tables uses it,
and this module gives its tables with the errors of this package. It is imported when a family or a
table file is first used, since most programs that import `spanwise` use none.
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
"""What a command line may call a table."""

_SMALL_LIMIT = 1024


@contextmanager
def _named_errors(where: str = "") -> Iterator[None]:
    """The generator's errors as the package's."""
    from spanwise_sizeclasses.model import SizeClassError  # noqa: PLC0415

    try:
        yield
    except SizeClassError as error:
        raise InvalidError(f"{where}{error}") from None


def named(name: str) -> Table | None:
    """The table of a family's name, or of geometric-R; None when there is none of that name.

    Raises:
        InvalidError: geometric- without a ratio above 1.
    """
    from spanwise_sizeclasses import families  # noqa: PLC0415

    with _named_errors():
        return families.named(name)


def check_name(name: str) -> None:
    """Refuses names that a table file, or the C made of it, could not have.

    Raises:
        InvalidError: the name, and what it must be.
    """
    from spanwise_sizeclasses import model  # noqa: PLC0415

    with _named_errors():
        model.check_name(name)
    if name in model.BUILTINS:
        raise InvalidError(f"name {name!r} belongs to a built-in table; choose another")


def make(family: str, *arguments: Any, **options: Any) -> Table:
    """The table of a family with arguments: geometric, pow2, fibonacci.

    Raises:
        InvalidError: an argument is out of range.
    """
    from spanwise_sizeclasses import families  # noqa: PLC0415

    with _named_errors():
        table: Table = getattr(families, family)(*arguments, **options)
        return table


def span_pages(size: int, page_bytes: int) -> int:
    """The fewest pages whose tail after whole slots is at most 1/8 of the span."""
    from spanwise_sizeclasses import families  # noqa: PLC0415

    return families.span_pages(size, page_bytes)


def read_table_file(path: str, raw: bytes) -> Table:
    """The table of a table file's bytes; `path` is for messages.

    Raises:
        InvalidError: naming the file, and the line and column, or the class and rule.
    """
    from spanwise_sizeclasses import tablefile  # noqa: PLC0415

    with _named_errors(f"{path}: "):
        return tablefile.parse_table(raw)


def large_step(sizes: NDArray[np.int64]) -> int:
    """Step of the look-up above 1024 B: 128, or less where classes are closer."""
    bits = 128
    for size in sizes[sizes > _SMALL_LIMIT].tolist():
        bits |= size
    return bits & -bits
