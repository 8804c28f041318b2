# SPDX-License-Identifier: Apache-2.0
"""Size-class tables: which slot serves a request, and how spans are divided."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanwise import _format, _lib, errors
from spanwise._lib import check, ffi, lib
from spanwise._owner import Life
from spanwise.results.rows import Result, Rows, Tabular, as_rows, draw
from spanwise.tables import families
from spanwise.tables.classes import (
    Explanation,
    class_spec,
    explain_request,
    file_rows,
    file_specs,
    json_rows,
    markdown,
    name_bytes,
    read_classes,
    text_rows,
    titles,
)

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

    Create one with `go()`, `c16()`, `default()`, `jemalloc()`, `tcmalloc()`, `mimalloc()`,
    `pow2()`, `geometric()`, `fibonacci()`, `custom()`, `from_json()`, `named()` or
    `spanwise.optimize()`. Tables are equal if they have the same page size and the same classes.
    They are hashable and picklable, and any number of heaps and threads may share one.
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

    # --- construction ---

    @classmethod
    def go(cls) -> SizeClassTable:
        """Return the table of Go 1.26.8, bit-exact: 67 classes from 8 B to 32 KiB."""
        return cls.named("go")

    @classmethod
    def c16(cls) -> SizeClassTable:
        """Return Go's table adapted to the alignment of C: 66 classes; the default of heaps."""
        return cls.named("c16")

    @classmethod
    def default(cls) -> SizeClassTable:
        """Return the default table of the C library, which is c16 unless built with another."""
        c_table = lib.sw_table_default()
        name = _lib.text(lib.sw_table_name(c_table))
        return cls._make(c_table, _SOURCES.get(name, f"spanwise table {name}"))

    @classmethod
    def jemalloc(cls) -> SizeClassTable:
        """Return the table of jemalloc 5.3.0: 4 KiB pages, 53 classes up to 256 KiB."""
        return cls.named("jemalloc")

    @classmethod
    def tcmalloc(cls) -> SizeClassTable:
        """Return the table of gperftools 2.10: 8 KiB pages, 85 classes up to 256 KiB."""
        return cls.named("tcmalloc")

    @classmethod
    def mimalloc(cls) -> SizeClassTable:
        """Return the table of mimalloc 2.0.9: pages of 64 and 512 KiB, 49 classes up to 128 KiB."""
        return cls.named("mimalloc")

    @classmethod
    def pow2(cls, largest_bytes: int = 32768) -> SizeClassTable:
        """Return a table of the powers of two from 8 to `largest_bytes`."""
        _lib.as_index(largest_bytes, "largest_bytes")
        return cls._of_family(families.make("pow2", largest_bytes))

    @classmethod
    def fibonacci(cls, largest_bytes: int = 32768, *, align: int = 16) -> SizeClassTable:
        """Return a table of Fibonacci numbers times `align` (8 or 16), up to `largest_bytes`."""
        _lib.as_index(largest_bytes, "largest_bytes")
        return cls._of_family(families.make("fibonacci", largest_bytes, align))

    @classmethod
    def geometric(
        cls, ratio: float, *, smallest_bytes: int = 16, largest_bytes: int = 32768, align: int = 16
    ) -> SizeClassTable:
        """Return a table of classes that grow by `ratio`, rounded to multiples of `align` bytes.

        Args:
            ratio: above 1; 1.25 wastes about 1/5 at worst.
            smallest_bytes: size of the first class.
            largest_bytes: size of the last class.
            align: 8 or 16 bytes.

        Raises:
            InvalidError: an argument is out of range, or there are more than 255 classes.
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
        """Return a custom table.

        Args:
            classes: ascending sizes in bytes, or pairs (size, pages of a span), or triples (size,
                pages, first pages): the first span has `first pages`, and later spans double up to
                `pages` as the heap holds more of the class. Without pages, a span is the shortest
                one with a tail of at most 1/8.
            name: 1 to 63 characters.
            page_bytes: a power of two from 4096 to 65536.

        Raises:
            InvalidError: a class violates a rule; the message names both.
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
        """Read a table file: an object with name, page_bytes and classes [{size, pages}].

        A class may also have first_pages.

        Raises:
            InvalidError: the file is invalid; the message names the class and rule, or the line.
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
        """Return a table by its command-line name: a family's name, geometric-R or FILE.json.

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

    # --- properties ---

    @property
    def name(self) -> str:
        """The table's name."""
        return _lib.text(lib.sw_table_name(self._c))

    @property
    def page_bytes(self) -> int:
        """Size of a page, the unit of span lengths, in bytes."""
        return int(lib.sw_table_page_bytes(self._c))

    @property
    def largest_bytes(self) -> int:
        """Size of the largest slot in bytes; larger requests get whole pages."""
        return int(lib.sw_table_max_bytes(self._c))

    @property
    def hash(self) -> int:
        """64-bit hash of the page size and the classes, but not the name."""
        return int(lib.sw_table_hash(self._c))

    @property
    def classes(self) -> Rows:
        """The classes, read-only `Rows`.

        Columns: cls, size_bytes, span_bytes, slots, tail_bytes, max_waste_percent (round-up and
        tail of a span full of the class's smallest requests), min_align (bytes), first_span_bytes
        (of the first span, which is shorter than span_bytes if spans grow).
        """
        return self._classes

    @property
    def array(self) -> Rows:
        """The same as `classes`."""
        return self._classes

    @property
    def magic(self) -> NDArray[np.uint64]:
        """ceil(2**64 / size) of each class, shape (classes,), as the library divides offsets.

        For an offset within a span, the high word of the 128-bit product is the slot's index; the
        low word is below the magic at the start of a slot (Lemire, Kaser, Kurz 2019).

        >>> table = SizeClassTable.go()
        >>> 100 * 48 * int(table.magic[table.class_of(48) - 1]) >> 64
        100
        """
        sizes = self._sizes.astype(np.uint64)
        magic: NDArray[np.uint64] = np.uint64(2**64 - 1) // sizes + np.uint64(1)
        return magic

    @property
    def multiplier(self) -> NDArray[np.uint32]:
        """floor((2**32 - 1) / size) + 1 of each class, shape (classes,), as Go divides offsets.

        The index of a slot is the high word of the 64-bit product with an offset.

        >>> table = SizeClassTable.go()
        >>> 100 * 48 * int(table.multiplier[table.class_of(48) - 1]) >> 32
        100
        """
        multiplier: NDArray[np.uint32] = (0xFFFFFFFF // self._sizes + 1).astype(np.uint32)
        return multiplier

    def __len__(self) -> int:
        return len(self._classes)

    # --- lookups ---

    def class_of(self, size: SupportsIndex) -> int:
        """Return the class that serves a request of `size` bytes; 0 for whole pages."""
        return int(lib.sw_table_class_of(self._c, _lib.as_index(size, "size")))

    def round_up(self, size: ArrayLike) -> Any:
        """Round `size` up to the bytes of its slot or of whole pages; 0 stays 0.

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
        """Return round_up(size) - size, with the shape of `size`."""
        rounded = self.round_up(size)
        return rounded - (int(_scalar(size)) if np.ndim(size) == 0 else np.asarray(size))

    def explain(self, size: SupportsIndex) -> Explanation:
        """Explain how a request of `size` bytes is served."""
        return explain_request(self, _lib.as_index(size, "size"))

    def plot_waste(self, ax: Axes | None = None, *, largest_bytes: int | None = None) -> Axes:
        """Draw waste in percent of the slot against the size of the request.

        Args:
            ax: where to draw; None makes a new figure.
            largest_bytes: the last size; None: the largest class.

        Returns:
            The matplotlib Axes.
        """
        return draw("waste", [self], ax=ax, largest_bytes=largest_bytes)

    # --- conversions ---

    def generator_dict(self) -> dict[str, Any]:
        """Return all columns, with the keys of `spanwise classes --json`.

        The format is that of the generator's JSON, which table files of other tools share.
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
        """Return the content of a table file, which `from_json` and the generator read."""
        file: dict[str, Any] = {
            "name": self.name,
            "page_bytes": self.page_bytes,
            "classes": file_rows(self._classes, self.page_bytes),
        }
        if self._parameters is not None:
            file["parameters"] = self._parameters
        return {**file, "provenance": self._source}

    def to_markdown(self) -> str:
        """Return the columns as a Markdown table."""
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
    """Return a table with its source and its parameters, for unpickling."""
    table = SizeClassTable.custom(specs, name=name, page_bytes=page_bytes)
    table._source = source
    table._parameters = dict(parameters) if parameters is not None else None
    return table


def as_table(value: SizeClassTable | str) -> SizeClassTable:
    """Return a table, or look it up by name."""
    if isinstance(value, SizeClassTable):
        return value
    if isinstance(value, str):
        return SizeClassTable.named(value)
    raise TypeError(f"table must be a SizeClassTable or a name, not {type(value).__name__}")


CONDEMNED = "condemned"
"""The parameter of a table file that says why the evaluation rejected the table, if it did."""

STOCK = ("go", "c16")
"""The built-in tables that a comparison includes by default."""


def as_tables(value: SizeClassTable | str | Iterable[SizeClassTable | str]) -> list[SizeClassTable]:
    """Return one table or several as a list, looking up names."""
    given = [value] if isinstance(value, SizeClassTable | str) else value
    return [as_table(one) for one in given]


def _scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) else value
