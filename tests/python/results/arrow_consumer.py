# SPDX-License-Identifier: Apache-2.0
"""A consumer of the Arrow C stream interface, written by hand from its specification.

https://arrow.apache.org/docs/format/CStreamInterface.html and CDataInterface.html. It reads what
spanwise's rows consist of: numbers, truth values, texts, lists of fixed length.
"""

from __future__ import annotations

import ctypes
from typing import Any

NUMBERS = {
    "c": ctypes.c_int8,
    "C": ctypes.c_uint8,
    "s": ctypes.c_int16,
    "S": ctypes.c_uint16,
    "i": ctypes.c_int32,
    "I": ctypes.c_uint32,
    "l": ctypes.c_int64,
    "L": ctypes.c_uint64,
    "f": ctypes.c_float,
    "g": ctypes.c_double,
}


class Schema(ctypes.Structure):
    """struct ArrowSchema."""


class Array(ctypes.Structure):
    """struct ArrowArray."""


class Stream(ctypes.Structure):
    """struct ArrowArrayStream."""


Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))),
    ("private_data", ctypes.c_void_p),
]
Stream._fields_ = [
    (
        "get_schema",
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema)),
    ),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))),
    ("private_data", ctypes.c_void_p),
]


def read(rows: Any, *, release: bool = True) -> dict[str, list[Any]]:
    """Every column of what `rows.__arrow_c_stream__()` gives, as Python values.

    Args:
        rows: the producer.
        release: end the stream; else the capsule does it when it is dropped.
    """
    capsule = rows.__arrow_c_stream__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    stream = ctypes.cast(get(capsule, b"arrow_array_stream"), ctypes.POINTER(Stream))
    schema, again, array, end = Schema(), Schema(), Array(), Array()
    assert stream.contents.get_schema(stream, schema) == 0
    assert stream.contents.get_schema(stream, again) == 0  # any number of times
    again.release(again)
    assert stream.contents.get_next(stream, array) == 0
    assert stream.contents.get_next(stream, end) == 0 and not end.release
    assert stream.contents.get_last_error(stream) is None
    if release:
        stream.contents.release(stream)
        assert not stream.contents.release
    assert (schema.format, array.offset, array.null_count) == (b"+s", 0, 0)
    assert schema.n_children == array.n_children
    found = {}
    for i in range(schema.n_children):
        child, values = schema.children[i].contents, array.children[i].contents
        assert values.length == array.length and values.null_count == 0
        found[child.name.decode()] = _values(child, values)
    schema.release(schema)
    array.release(array)
    assert not schema.release and not array.release
    return found


def _values(schema: Schema, array: Array) -> list[Any]:
    kind = schema.format.decode()
    if kind.startswith("+w:"):
        width = int(kind[3:])
        flat = _values(schema.children[0].contents, array.children[0].contents)
        assert len(flat) == array.length * width
        return [flat[i * width : (i + 1) * width] for i in range(array.length)]
    assert not array.buffers[0]  # nothing is missing
    if kind == "U":
        offsets = (ctypes.c_int64 * (array.length + 1)).from_address(array.buffers[1])
        raw = ctypes.string_at(array.buffers[2], offsets[array.length])
        return [raw[offsets[i] : offsets[i + 1]].decode() for i in range(array.length)]
    if kind == "b":
        bits = ctypes.string_at(array.buffers[1], -(-array.length // 8))
        return [bool(bits[i // 8] >> (i % 8) & 1) for i in range(array.length)]
    return list((NUMBERS[kind] * array.length).from_address(array.buffers[1]))
