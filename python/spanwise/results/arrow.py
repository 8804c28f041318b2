# SPDX-License-Identifier: Apache-2.0
"""Structured arrays as capsules of the Arrow C stream interface (cmake/ffi_arrow.c)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import errors
from spanwise._lib import ffi, lib

_FORMATS = {
    "u1": "C",
    "u2": "S",
    "u4": "I",
    "u8": "L",
    "i1": "c",
    "i2": "s",
    "i4": "i",
    "i8": "l",
    "f4": "f",
    "f8": "g",
}
"""Arrow's names of numpy's types of numbers."""


def stream_capsule(rows: NDArray[np.void]) -> object:
    """A structured array of shape (rows,), copied into a stream of one batch.

    Columns may be numbers, truth values, texts, and fixed arrays of numbers.

    Raises:
        UnsupportedError: a column of another type, or an array of another shape.
        OutOfMemoryError: there is no memory for the copy.
    """
    names = rows.dtype.names
    if names is None or rows.ndim != 1:
        raise errors.UnsupportedError("only rows of columns become an Arrow stream")
    columns = ffi.new("sw_arrow_column[]", max(len(names), 1))
    kept: list[Any] = []  # what the columns point at
    for column, name in zip(columns, names, strict=False):
        _describe(column, name, rows[name], kept)
    made: list[object] = []
    if lib.sw_arrow_capsule(id(made), len(rows), columns, len(names)) != 0:
        raise errors.OutOfMemoryError(f"{len(rows)} rows: out of memory")
    return made[0]


def _describe(column: Any, name: str, values: NDArray[Any], kept: list[Any]) -> None:
    column.name = _text(name, kept)
    if values.ndim == 2:
        column.width = values.shape[1]
        column.format = _text(f"+w:{values.shape[1]}", kept)
        column.child_format = _text(_format(name, values), kept)
        buffers = [np.ascontiguousarray(values)]
    elif values.dtype.kind == "U":
        column.format = _text("U", kept)  # texts with offsets of 64 bits
        encoded = [text.encode("utf-8", "backslashreplace") for text in values.tolist()]
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        buffers = [offsets, np.frombuffer(b"".join(encoded) or b"\0", np.uint8)]
    elif values.dtype.kind == "b":
        column.format = _text("b", kept)
        buffers = [np.packbits(np.ascontiguousarray(values), bitorder="little")]
    else:
        column.format = _text(_format(name, values), kept)
        buffers = [np.ascontiguousarray(values)]
    for i, buffer in enumerate(buffers):
        kept.append(buffer)
        column.buffers[i] = ffi.cast("void *", buffer.ctypes.data)
        column.buffer_bytes[i] = buffer.nbytes


def _format(name: str, values: NDArray[Any]) -> str:
    known = values.dtype.isnative and values.ndim <= 2
    found = _FORMATS.get(values.dtype.str[1:]) if known else None
    if found is None:
        raise errors.UnsupportedError(f"column {name}: Arrow has no type for this: {values.dtype}")
    return found


def _text(text: str, kept: list[Any]) -> Any:
    made = ffi.new("char[]", text.encode())
    kept.append(made)
    return made
