# SPDX-License-Identifier: Apache-2.0
"""Types of collected objects, from a size, a numpy type or a format of the module struct."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from spanwise import _format, _lib
from spanwise.errors import InvalidError

WORD = 8
TYPE_BYTES_MAX = 1 << 31

Layout: TypeAlias = SupportsIndex | DTypeLike
"""A size in bytes, a numpy type, or a format of the module struct."""


@dataclass(frozen=True)
class ObjectType:
    """The layout of objects, from `CollectedHeap.add_type`.

    Attributes:
        name: for messages.
        size_bytes: of one object.
        pointers: indices of the 8-byte words that hold pointers.
        heap_id: the heap that the type belongs to.
        id: number of the type in that heap; 0: objects of `CollectedHeap.new_untyped`.
        fields: a structured numpy type, whose fields of type object are pointers; None: none.
    """

    name: str
    size_bytes: int
    pointers: Sequence[int]
    heap_id: int
    id: int
    fields: np.dtype[Any] | None = None

    def __repr__(self) -> str:
        words = _format.clipped(", ".join(map(str, self.pointers[:8])))
        more = ", ..." if len(self.pointers) > 8 else ""
        what = f"{_format.clipped(self.name)}, {self.size_bytes} B"
        return f"<ObjectType {what}, pointers at words ({words}{more})>"

    def _field(self, name: str) -> np.dtype[Any]:
        """Return the type of a field; raise InvalidError if there is none of this name."""
        fields = self.fields
        if fields is None or fields.fields is None or name not in fields.fields:
            known = ", ".join((fields and fields.names) or ())
            raise InvalidError(f"field {name!r} of {self!r}: its fields are ({known})")
        return fields.fields[name][0]

    def _stored(self) -> np.dtype[Any]:
        """Return the type of an object's bytes: the fields, with numbers for pointers."""
        assert self.fields is not None
        each = list(_each_field(self.fields))
        stored = {
            "names": [name for name, _, _ in each],
            "formats": [
                (np.uint64, kind.shape) if kind.base.hasobject else kind for _, kind, _ in each
            ],
            "offsets": [offset for _, _, offset in each],
            "itemsize": self.size_bytes,
        }
        return np.dtype(stored)  # type: ignore[call-overload, no-any-return]

    def _offset(self, name: str) -> int:
        """Return the first byte of a field."""
        assert self.fields is not None and self.fields.fields is not None
        return self.fields.fields[name][1]


def size_of(layout: Layout) -> tuple[int, tuple[int, ...], np.dtype[Any] | None]:
    """Return size, words with pointers, and fields of a layout that `add_type` was given."""
    if hasattr(type(layout), "__index__"):
        return _lib.as_index(layout, "layout", TYPE_BYTES_MAX), (), None  # type: ignore[arg-type]
    fields = from_format(layout) if isinstance(layout, str) else _as_dtype(layout)
    words = tuple(_pointer_words(fields))
    size = -(-fields.itemsize // WORD) * WORD if words else fields.itemsize
    return _lib.as_index(size, "layout", TYPE_BYTES_MAX), words, fields


def _as_dtype(layout: Any) -> np.dtype[Any]:
    try:
        kind: np.dtype[Any] = np.dtype(layout)
    except TypeError as error:
        raise TypeError(f"layout: {error}") from None
    return kind if kind.names is not None else np.dtype([("f0", kind)])


def _each_field(fields: np.dtype[Any]) -> Iterator[tuple[str, np.dtype[Any], int]]:
    """Yield name, type and first byte of each field."""
    for name in fields.names or ():
        yield name, fields.fields[name][0], fields.fields[name][1]  # type: ignore[index]


def _pointer_words(fields: np.dtype[Any]) -> Iterator[int]:
    """Yield the words of fields of type object."""
    for name, kind, offset in _each_field(fields):
        if kind.base.hasobject and kind.base.kind != "O":
            raise InvalidError(f"field {name!r}: pointers within a structure are not supported")
        if kind.base.hasobject:
            if offset % WORD:
                raise InvalidError(
                    f"field {name!r} is at byte {offset}; give align=True to dtype()"
                )
            yield from range(offset // WORD, offset // WORD + math.prod(kind.shape))


_TOKEN = re.compile(r"\s*(\d*)([?bBhHiIlLqQnNefdcsP])")
_CODES = {"P": "O", "c": "S1", "n": "i8", "N": "u8"}


def from_format(text: str) -> np.dtype[Any]:
    """Return the fields f0, f1, ... of a format of the module struct; P is a pointer.

    >>> from_format("P2id").names
    ('f0', 'f1', 'f2', 'f3')
    """
    rest, codes = text.strip().removeprefix("@"), []
    while rest:
        token = _TOKEN.match(rest)
        if token is None:
            raise InvalidError(f"format {text!r}: {rest!r} is not a native code other than x and p")
        rest = rest[token.end() :]
        count, code = int(token[1] or 1), token[2]
        codes += [f"S{count}"] if code == "s" else [_CODES.get(code, code)] * count
    return np.dtype([(f"f{i}", code) for i, code in enumerate(codes)], align=True)
