# SPDX-License-Identifier: Apache-2.0
"""Size-class tables: which slot serves a request, and how spans are cut."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from spanwise import _format, _lib, errors
from spanwise._lib import check, ffi, lib
from spanwise._owner import Life
from spanwise.results.drawing import draw
from spanwise.results.rows import Result, Rows, Tabular, as_rows
from spanwise.tables import families
from spanwise.tables.classes import (
    class_spec,
    file_rows,
    file_specs,
    json_rows,
    markdown,
    name_bytes,
    read_classes,
    text_rows,
    titles,
)
from spanwise.tables.explanation import Explanation, explain_request

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from spanwise_sizeclasses.model import Table

_SOURCES = {
    "go": "spanwise table go, equal to Go 1.26.8",
    "c16": "spanwise table c16: Go's procedure with step 16 from 16 B up, plus the 8 B class; up to"
    " 1 KiB spans that grow with what a heap holds, to 1024 slots or 64 KiB",
}


class SizeClassTable(Result, Tabular):
    """An immutable table of size classes.

    Make one with `go()`, `c16()`, `default()`, `jemalloc()`, `tcmalloc()`, `mimalloc()`, `pow2()`,
    `geometric()`, `fibonacci()`, `custom()`, `from_json()`, `named()` or `spanwise.optimize()`.
    Tables are equal when they place objects equally: same page size, same classes. They may be
    hashed, pickled and shared by any number of heaps and threads.
    """

    __slots__ = ("__weakref__", "_c", "_classes", "_life", "_parameters", "_sizes", "_source")

    def __init__(self, *arguments: object, **_: object) -> None:
        name = next((one for one in arguments if isinstance(one, str)), "c16")
        raise TypeError(
            "cannot create a SizeClassTable directly; call"
            f" spanwise.SizeClassTable.named({name!r}), or custom()"
        )

    @classmethod
    def _make(cls, c_table: Any, source: str, life: Life | None = None) -> SizeClassTable:
        self = cls.__new__(cls)
        self._set(c_table, source, life)
        return self

    def _set(self, c_table: Any, source: str, life: Life | None) -> None:
        self._c = c_table
        self._life = life
        self._source = source
        self._parameters: dict[str, Any] | None = None
        self._classes = as_rows(read_classes(c_table))
        self._sizes = self._classes["size_bytes"].astype(np.int64)

    # --- making ---

    @classmethod
    def go(cls) -> SizeClassTable:
        """Go 1.26.8's table, bit-exact: 67 classes from 8 B to 32 KiB."""
        return cls.named("go")

    @classmethod
    def c16(cls) -> SizeClassTable:
        """Go's procedure with the alignment that C promises: 66 classes; the default of heaps."""
        return cls.named("c16")

    @classmethod
    def default(cls) -> SizeClassTable:
        """The C library's default table, which is c16."""
        c_table = lib.sw_table_default()
        name = _lib.text(lib.sw_table_name(c_table))
        return cls._make(c_table, _SOURCES.get(name, f"spanwise table {name}"))

    @classmethod
    def jemalloc(cls) -> SizeClassTable:
        """Jemalloc 5.3.0's classes and slabs: 4 KiB pages, 53 classes to 256 KiB."""
        return cls.named("jemalloc")

    @classmethod
    def tcmalloc(cls) -> SizeClassTable:
        """Gperftools 2.10's classes and spans: 8 KiB pages, 85 classes to 256 KiB."""
        return cls.named("tcmalloc")

    @classmethod
    def mimalloc(cls) -> SizeClassTable:
        """Mimalloc 2.0.9's classes and pages of 64 and 512 KiB: 49 classes to 128 KiB."""
        return cls.named("mimalloc")

    @classmethod
    def pow2(cls, largest_bytes: int = 32768) -> SizeClassTable:
        """Powers of two from 8 to `largest_bytes`."""
        _lib.as_index(largest_bytes, "largest_bytes")
        return cls._of_family(families.make("pow2", largest_bytes))

    @classmethod
    def fibonacci(cls, largest_bytes: int = 32768, *, align: int = 16) -> SizeClassTable:
        """`align` (8 or 16 bytes) times the Fibonacci numbers, up to `largest_bytes`."""
        _lib.as_index(largest_bytes, "largest_bytes")
        return cls._of_family(families.make("fibonacci", largest_bytes, align))

    @classmethod
    def geometric(
        cls,
        ratio: float,
        *,
        smallest_bytes: int = 16,
        largest_bytes: int = 32768,
        align: int = 16,
    ) -> SizeClassTable:
        """Classes that grow by `ratio`, in multiples of `align` bytes.

        Args:
            ratio: above 1; 1.25 gives about 1/5 of waste at worst.
            smallest_bytes: size of the first class.
            largest_bytes: size of the last class.
            align: 8 or 16 bytes.

        Raises:
            InvalidError: for an argument out of range, or more than 255 classes.
        """
        _lib.check_type(ratio, (int, float), "ratio")
        _lib.as_index(smallest_bytes, "smallest_bytes")
        _lib.as_index(largest_bytes, "largest_bytes")
        made = families.make("geometric", ratio, smallest_bytes, largest_bytes, align)
        return cls._of_family(made)

    @classmethod
    def _of_family(cls, made: Table) -> SizeClassTable:
        specs = [(c.size, c.pages, c.shortest) for c in made.classes]
        table = cls.custom(specs, name=made.name, page_bytes=made.page_bytes)
        table._source = made.source or table._source
        return table

    @classmethod
    def custom(
        cls,
        classes: Iterable[int | tuple[int, int] | tuple[int, int, int]],
        *,
        name: str = "custom",
        page_bytes: int = 8192,
    ) -> SizeClassTable:
        """A table of your own.

        Args:
            classes: sizes in bytes, rising, or pairs (size in bytes, pages of a span), or (size,
                pages, first pages): the first span has first pages, and a heap doubles that as it
                holds more of the class. Where no pages are given, a span is as short as it can be
                with a tail of at most 1/8.
            name: 1 to 63 characters.
            page_bytes: a power of two from 4096 to 65536.

        Raises:
            InvalidError: naming the class and the rule that it breaks.
        """
        page = _lib.as_index(page_bytes, "page_bytes", (1 << 32) - 1)
        _lib.as_iterable(classes, "classes")
        specs = [class_spec(item, i, page) for i, item in enumerate(classes, 1)]
        c_specs = ffi.new("sw_class_spec[]", specs or 1)
        out = ffi.new("sw_table **")
        raw = name_bytes(name)
        check(lib.sw_table_create(raw, page, c_specs, len(specs), out))
        return cls._make(out[0], f"spanwise table {name}", Life(lib.sw_table_destroy, out[0]))

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> SizeClassTable:
        """Reads a table file: an object with name, page_bytes and classes [{size, pages}].

        A class may have first_pages as well.

        Raises:
            InvalidError: naming the file, and the class and rule, or the line, that is wrong.
            OSError: the file cannot be read.
        """
        _lib.check_type(path, (str, os.PathLike), "path")
        _lib.c_path(path)
        shown = os.fspath(path)
        raw = Path(path).read_bytes()
        table = cls._of_family(families.read_table_file(shown, raw))
        table._source = shown
        return table

    @classmethod
    def named(cls, name: str) -> SizeClassTable:
        """A table by what a command line calls it: a family's name, geometric-R or FILE.json.

        The families: go, c16, jemalloc, tcmalloc, mimalloc, pow2, fibonacci.

        Raises:
            InvalidError: there is no such table.
            OSError: the file cannot be read.
        """
        _lib.check_type(name, str, "name")
        if name in _SOURCES:
            return cls._make(lib.sw_table_builtin(name.encode()), _SOURCES[name])
        if name.endswith(".json"):
            return cls.from_json(name)
        made = families.named(name)
        if made is None:
            raise errors.InvalidError(
                f"unknown table {name!r}; use {families.NAMES_HELP} (R: a ratio such as 1.25)"
            )
        return cls._of_family(made)

    # --- what it is ---

    @property
    def name(self) -> str:
        """The table's name."""
        return _lib.text(lib.sw_table_name(self._c))

    @property
    def page_bytes(self) -> int:
        """Unit of span length, bytes."""
        return int(lib.sw_table_page_bytes(self._c))

    @property
    def largest_bytes(self) -> int:
        """Largest slot, bytes; larger requests get whole pages."""
        return int(lib.sw_table_max_bytes(self._c))

    @property
    def hash(self) -> int:
        """Identity of page size and classes, 64 bits; the name takes no part."""
        return int(lib.sw_table_hash(self._c))

    @property
    def classes(self) -> Rows:
        """The classes, read-only `Rows`.

        Columns: cls, size_bytes, span_bytes, slots, tail_bytes, max_waste_percent (percent; the
        worst round-up and tail of a span full of the smallest request), min_align (bytes),
        first_span_bytes (of the first span, which is shorter than span_bytes where spans grow).
        """
        return self._classes

    @property
    def array(self) -> Rows:
        """The same as `classes`."""
        return self._classes

    def __len__(self) -> int:
        return len(self._classes)

    # --- questions ---

    def class_of(self, size: SupportsIndex) -> int:
        """The class that serves a request of `size` bytes; 0: whole pages."""
        return int(lib.sw_table_class_of(self._c, _lib.as_index(size, "size")))

    def round_up(self, size: ArrayLike) -> Any:
        """Slot bytes, or whole pages, of requests of `size` bytes; 0 for 0.

        Args:
            size: one integer, or an array of them.

        Returns:
            An int, or an int64 array of the same shape.
        """
        if np.ndim(size) == 0:
            return int(lib.sw_table_round_up(self._c, _lib.as_index(_scalar(size), "size")))
        sizes = np.asarray(size)
        if sizes.dtype.kind not in "iu":
            raise TypeError(f"sizes must be integers, not {sizes.dtype}")
        if sizes.size and sizes.min() < 0:
            raise errors.InvalidError(f"size {sizes.min()} is negative; give 0 or more")
        wide = sizes.astype(np.int64)
        slot = self._sizes[np.searchsorted(self._sizes, np.minimum(wide, self.largest_bytes))]
        pages = -(-wide // self.page_bytes) * self.page_bytes
        return np.where(wide == 0, 0, np.where(wide > self.largest_bytes, pages, slot))

    def waste(self, size: ArrayLike) -> Any:
        """Bytes beyond what was asked for: round_up(size) - size. Shapes as there."""
        rounded = self.round_up(size)
        return rounded - (int(_scalar(size)) if np.ndim(size) == 0 else np.asarray(size))

    def explain(self, size: SupportsIndex) -> Explanation:
        """What happens to one request of `size` bytes."""
        return explain_request(self, _lib.as_index(size, "size"))

    def plot_waste(self, ax: Axes | None = None, *, largest_bytes: int | None = None) -> Axes:
        """Draws waste in percent of the slot against the size of the request.

        Args:
            ax: where to draw; None makes a new figure.
            largest_bytes: last size; None: the largest class.

        Returns:
            The matplotlib Axes.
        """
        return draw("waste", [self], ax=ax, largest_bytes=largest_bytes)

    # --- other forms ---

    def generator_dict(self) -> dict[str, Any]:
        """The table with every column, in the keys that `spanwise classes --json` prints.

        They are those of the generator's JSON, which other tables' files in the field have too.
        """
        return {
            "source": self._source,
            "page_bytes": self.page_bytes,
            "max_small": self.largest_bytes,
            "small_size_div": 8,
            "small_size_max": 1024,
            "large_size_div": families.large_step(self._sizes),
            "classes": json_rows(self._classes),
        }

    def to_dict(self) -> dict[str, Any]:
        """The table in the form that `from_json` and the generator read: a table file's."""
        file: dict[str, Any] = {
            "name": self.name,
            "page_bytes": self.page_bytes,
            "classes": file_rows(self._classes, self.page_bytes),
        }
        if self._parameters is not None:
            file["parameters"] = self._parameters
        return {**file, "provenance": self._source}

    def to_markdown(self) -> str:
        """The columns as a Markdown table."""
        return markdown(self._classes)

    def __str__(self) -> str:
        return _format.table(text_rows(self._classes), titles(self._classes), left=0)

    def __repr__(self) -> str:
        return (
            f"<SizeClassTable {self.name}: {len(self)} classes, {self._sizes[0]} to"
            f" {self.largest_bytes} B, pages of {self.page_bytes} B>"
        )

    def _repr_html_(self) -> str:
        title = f"{self.name}: {len(self)} classes, pages of {self.page_bytes} B"
        return _format.html_table(text_rows(self._classes), titles(self._classes), title, left=0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SizeClassTable) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._source in _SOURCES.values():
            return (SizeClassTable.named, (self.name,))
        specs = file_specs(self.to_dict())
        return (rebuild, (specs, self.name, self.page_bytes, self._source, self._parameters))


def rebuild(
    specs: Sequence[tuple[int, int] | tuple[int, int, int]],
    name: str,
    page_bytes: int,
    source: str,
    parameters: Mapping[str, Any] | None,
) -> SizeClassTable:
    """A table of given classes that says where it comes from, and what its maker was given."""
    table = SizeClassTable.custom(specs, name=name, page_bytes=page_bytes)
    table._source = source
    table._parameters = dict(parameters) if parameters is not None else None
    return table


def as_table(value: SizeClassTable | str) -> SizeClassTable:
    """A table as it is, or by name."""
    if isinstance(value, SizeClassTable):
        return value
    if isinstance(value, str):
        return SizeClassTable.named(value)
    raise TypeError(f"table must be a SizeClassTable or a name, not {type(value).__name__}")


CONDEMNED = "condemned"
"""The parameter of a table file that has the verdict against the table, where there is one."""

STOCK = ("go", "c16")
"""The built-in tables, which a comparison shows by default."""


def as_tables(
    value: SizeClassTable | str | Iterable[SizeClassTable | str],
) -> list[SizeClassTable]:
    """Tables as they are, or by name; one, or any number of them."""
    given = [value] if isinstance(value, SizeClassTable | str) else value
    return [as_table(one) for one in given]


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) else value
