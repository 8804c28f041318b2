# SPDX-License-Identifier: Apache-2.0
"""Base classes of results: rows of named columns, equality and hashes, JSON, data frames."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, errors
from spanwise.results.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_SHOWN = 20
_WIDEST = 60


class Row(np.void):  # type: ignore[misc]  # numpy does so itself, for np.record
    """One row: a numpy structured scalar that prints the names of its columns."""

    def __repr__(self) -> str:
        names = self.dtype.names or ()
        fields = ", ".join(f"{name}={self[name].tolist()!r}" for name in names)
        return _format.clipped(f"Row({fields})")

    __str__ = __repr__

    def __getattr__(self, name: str) -> Any:
        raise _no_attribute("Row", name, self.dtype)


def _no_attribute(kind: str, name: str, dtype: np.dtype[Any]) -> AttributeError:
    """Return the exception for a missing attribute, which may be meant as a column."""
    message = f"'{kind}' object has no attribute '{name}'"
    if name in (dtype.names or ()):
        message += f"; its columns are items: [{name!r}]"
    return AttributeError(message)


class Rows:
    """Rows of named columns, shape (rows,), that numpy and other tools read.

    Indexing is that of a structured array: a name gives that column, a plain numpy array that is a
    view; a slice, a mask or several names give `Rows`; a number gives one `Row`. numpy's functions
    take rows, `np.asarray(rows)` is the structured array itself, and rows have its attributes
    (`rows.dtype`, `rows.nbytes`, `rows.tolist()`, ...).

    Other tools read columns: `pandas.DataFrame(rows)`, and where pyarrow is installed
    `polars.DataFrame(rows)`, `polars.from_arrow(rows)` (from polars 2 on a series of structs, as of
    every other object; its `.struct.unnest()` has the columns) and `pyarrow.table(rows)`. duckdb,
    and pandas if a column has fixed arrays, take `to_pandas()`.

    Args:
        array: a structured array, with which the rows share their memory.
    """

    __slots__ = ("_array",)
    __hash__ = None  # type: ignore[assignment]  # rows are mutable, as an array is

    def __init__(self, array: NDArray[np.void]) -> None:
        self._array: NDArray[np.void] = np.asarray(array).view()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = self._array if dtype is None else self._array.astype(dtype, copy=False)
        if copy is False and found is not self._array:
            raise ValueError(f"rows become {found.dtype} by a copy only")
        return found.copy() if copy and found is self._array else found

    @property  # type: ignore[misc]
    def __class__(self) -> type[NDArray[np.void]]:  # type: ignore[override]
        """numpy's: by isinstance, pandas finds the structured array and converts it to columns."""
        return np.ndarray

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The columns, for tools that know Arrow's PyCapsule interface.

        Raises:
            UnsupportedError: pyarrow is not installed.
        """
        pyarrow = _imported("pyarrow", "rows.to_columns()")
        return pyarrow.table(self.to_columns()).__arrow_c_stream__(requested_schema)

    def __dir__(self) -> list[str]:
        """What tab completion offers: what is here, and some of the array's."""
        names = (*vars(Rows), "dtype", "nbytes", "shape", "size", "tolist")
        return [name for name in names if not name.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # numpy finds its protocols on np.asarray(rows)
            raise AttributeError(f"'Rows' object has no attribute '{name}'")
        try:
            return getattr(self._array, name)
        except AttributeError:
            raise _no_attribute("Rows", name, self._array.dtype) from None

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str) and index not in (self._array.dtype.names or ()):
            columns = ", ".join(self._array.dtype.names or ())
            raise ValueError(f"no column {index!r}; the columns are {columns}")
        found = self._array[index]
        if isinstance(found, np.void):
            return self._as_row_array()[index]
        structured = isinstance(found, np.ndarray) and found.dtype.names is not None
        return Rows(found) if structured else found

    def _as_row_array(self) -> NDArray[np.void]:
        """Return a view of the array with elements of the type `Row`."""
        if self._array.dtype.names is None:
            return self._array
        return self._array.view(np.dtype((Row, self._array.dtype)))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = value

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._as_row_array())

    def __eq__(self, other: object) -> Any:
        return self._array == (other._array if isinstance(other, Rows) else other)

    def __ne__(self, other: object) -> Any:
        return self._array != (other._array if isinstance(other, Rows) else other)

    def __reduce__(self) -> tuple[type[Rows], tuple[NDArray[np.void]]]:
        return Rows, (self._array,)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dictionary per row."""
        names = self.dtype.names or ()
        columns = [self[name].tolist() for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return `to_dicts` as text; also write it to `path` atomically, unless that is None.

        Raises:
            OSError: the system refused to write.
        """
        return _json_text(self.to_dicts(), path)

    def to_columns(self) -> dict[str, Any]:
        """Return columns by name: numpy arrays of shape (rows,) that are views of the rows.

        A column of fixed arrays becomes a list of lists.
        """
        names = self.dtype.names or ()
        return {n: self[n] if self[n].ndim == 1 else self[n].tolist() for n in names}

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame; a column of fixed arrays has a list per row.

        Raises:
            UnsupportedError: pandas is not installed.
        """
        return _imported("pandas", "the rows as a numpy array").DataFrame(self.to_columns())

    def _cells(self) -> list[tuple[str, ...]]:
        names = self.dtype.names or ()
        return [tuple(_cell(row[name]) for name in names) for row in self[:_SHOWN]]

    def __repr__(self) -> str:
        if self.dtype.names is None or self.ndim != 1:
            return repr(self._array)
        lines = [f"{_format.plural(len(self), 'row')}:"]
        lines.append(_format.table(self._cells(), self.dtype.names, left=0))
        if len(self) > _SHOWN:
            lines.append(f"... {_format.plural(len(self) - _SHOWN, 'row')} more")
        return _format.clipped("\n".join(lines))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        if self.dtype.names is None or self.ndim != 1:
            return f"<pre>{self!r}</pre>"
        more = f", the first {_SHOWN}" if len(self) > _SHOWN else ""
        title = f"{_format.plural(len(self), 'row')}{more}"
        return _format.html_table(self._cells(), self.dtype.names, title, left=0)


def _imported(module: str, instead: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise errors.UnsupportedError(
            f"{module} is not installed; pip install {module}, or use {instead}"
        ) from None


def _cell(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, np.floating) else str(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


AnyRows = Rows | NDArray[np.void]
"""The argument of functions of rows: `Rows` or a structured array."""


def as_rows(array: NDArray[np.void]) -> Rows:
    """Return `Rows` that share the memory of the array."""
    return Rows(array)


def rows_of(dicts: list[dict[str, Any]], empty: tuple[str, ...] = ()) -> Rows:
    """Make rows of dictionaries with the same keys and values of type str, bool, int or float."""
    names = tuple(dicts[0]) if dicts else empty
    columns = {name: _column([row[name] for row in dicts]) for name in names}
    rows = np.zeros(len(dicts), [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        rows[name] = column
    rows.flags.writeable = False
    return as_rows(rows)


def _column(values: list[Any]) -> NDArray[Any]:
    known = [value for value in values if value is not None]
    if any(isinstance(value, str) for value in known):
        return np.array(["" if value is None else str(value) for value in values])
    if known and all(isinstance(value, bool) for value in known) and len(known) == len(values):
        return np.array(values, bool)
    if len(known) == len(values) and all(not isinstance(value, float) for value in known):
        return np.array(values, np.int64)
    return np.array([np.nan if value is None else float(value) for value in values])


class Tabular:
    """A result with rows in `array`, which convert to a data frame or columns."""

    __slots__ = ()

    if TYPE_CHECKING:  # a dataclass may define `array` as a field

        @property
        def array(self) -> Rows:
            """The rows."""
            ...

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The columns of `array`, for polars, pyarrow and others; see `Rows`."""
        return self.array.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """Return `array` as a pandas.DataFrame.

        Raises:
            UnsupportedError: pandas is not installed.
        """
        return self.array.to_pandas()

    def to_columns(self) -> dict[str, Any]:
        """Return `array` as columns by name, for pyarrow, polars and other tools."""
        return self.array.to_columns()


# --- values ---------------------------------------------------------------------------------------


class Result:
    """A result that `to_dict` converts for JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON; the fields if this is a dataclass."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return `to_dict` as text; also write it to `path` atomically, unless that is None.

        Raises:
            OSError: the system refused to write.
        """
        return _json_text(self.to_dict(), path)


class Value:
    """A frozen dataclass that may hold arrays; it compares and hashes all fields with compare=True.

    Declare the dataclass with eq=False.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(_content_of(self) == _content_of(other))

    def __hash__(self) -> int:
        return hash(_content_of(self))


def _content_of(value: Any) -> Any:
    """Return the content of a value in a form that compares and hashes."""
    if isinstance(value, np.ndarray | Rows):
        return (value.dtype.str, str(value.dtype.descr), value.shape, value.tobytes())
    if isinstance(value, Value):
        fields = dataclasses.fields(value)  # type: ignore[arg-type]
        said = (_content_of(getattr(value, field.name)) for field in fields if field.compare)
        return (type(value), *said)
    if isinstance(value, Mapping):
        return tuple((key, _content_of(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_content_of(item) for item in value)
    return value


def _json_text(value: Any, path: str | os.PathLike[str] | None) -> str:
    content = json.dumps(value, indent=1, default=_json_value) + "\n"
    if path is not None:
        write_whole(path, content)
    return content


def _json_value(value: Any) -> Any:
    """Convert numbers and arrays of numpy for JSON."""
    if isinstance(value, np.generic | np.ndarray | Rows):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


# --- pictures -------------------------------------------------------------------------------------


def draw(picture: str, *args: Any, **options: Any) -> Axes:
    """Call the function of that name in `spanwise.plots`."""
    plots = importlib.import_module("spanwise.plots")
    made: Axes = plots.PICTURES[picture](*args, **options)
    return made
