# SPDX-License-Identifier: Apache-2.0
"""Families of size classes and table files, as the generator has them.

There is one truth, scripts/sizeclasses_lib (standard library only): the generator is made of it,
and it is loaded from there, in a checkout, or from the sources that the wheel carries.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise.errors import InvalidError, UnsupportedError

if TYPE_CHECKING:
    from sizeclasses_lib.model import Table

NAMES_HELP = "go, c16, jemalloc, tcmalloc, mimalloc, pow2, fibonacci, geometric-R or FILE.json"
"""What a command line may call a table."""

_SMALL_LIMIT = 1024
_PACKAGE = "spanwise._sizeclasses"


@functools.cache
def generator(module: str) -> Any:
    """A module of the generator's library, e.g. "families".

    Raises:
        UnsupportedError: its sources are not there.
    """
    if _PACKAGE not in sys.modules:
        folder = _folder()
        spec = importlib.util.spec_from_file_location(
            _PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None and spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[_PACKAGE] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"{_PACKAGE}.{module}")


def _folder() -> Path:
    package = Path(__file__).parent
    places = [package / "_source/scripts", package.parents[1] / "scripts"]
    for place in places:
        if (place / "sizeclasses_lib/families.py").is_file():
            return place / "sizeclasses_lib"
    raise UnsupportedError(f"{places[0]}: the generator is not there; install the wheel anew")


@contextmanager
def _named_errors(where: str = "") -> Iterator[None]:
    """The generator's errors as the package's."""
    bad: type[Exception] = generator("model").SizeClassError
    try:
        yield
    except bad as error:
        raise InvalidError(f"{where}{error}") from None


def named(name: str) -> Table | None:
    """The table of a family's name, or of geometric-R; None when there is none of that name.

    Raises:
        InvalidError: geometric- without a ratio above 1.
    """
    with _named_errors():
        table: Table | None = generator("families").named(name)
        return table


def check_name(name: str) -> None:
    """Refuses names that a table file, or the C made of it, could not have.

    Raises:
        InvalidError: the name, and what it must be.
    """
    with _named_errors():
        generator("rules").check_name(name)
    if name in generator("model").BUILTINS:
        raise InvalidError(f"name {name!r} belongs to a built-in table; choose another")


def make(family: str, *arguments: Any, **options: Any) -> Table:
    """The table of a family with arguments: geometric, pow2, fibonacci.

    Raises:
        InvalidError: an argument is out of range.
    """
    with _named_errors():
        table: Table = getattr(generator("families"), family)(*arguments, **options)
        return table


def span_pages(size: int, page_bytes: int) -> int:
    """The fewest pages whose tail behind whole slots is at most 1/8 of the span."""
    return int(generator("families").span_pages(size, page_bytes))


def read_table_file(path: str, raw: bytes) -> Table:
    """The table of a table file's bytes; `path` is for messages.

    Raises:
        InvalidError: naming the file, and the line and column, or the class and rule.
    """
    with _named_errors(f"{path}: "):
        table: Table = generator("tablefile").parse_table(raw)
        return table


def large_step(sizes: NDArray[np.int64]) -> int:
    """Step of the look-up above 1024 B: 128, or less where classes lie closer."""
    bits = 128
    for size in sizes[sizes > _SMALL_LIMIT].tolist():
        bits |= size
    return bits & -bits
