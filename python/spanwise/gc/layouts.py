# SPDX-License-Identifier: Apache-2.0
"""Types of collected objects (from a size, a numpy type, a struct format), and edges of graphs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spanwise import _format, _lib, errors
from spanwise.errors import InvalidError

WORD = 8
TYPE_BYTES_MAX = 1 << 31

Layout: TypeAlias = SupportsIndex | DTypeLike
"""A size in bytes, a numpy type, or a format of the module struct."""


@dataclass(frozen=True)
class ObjectType:
    """The layout of objects, from `CollectedHeap.add_type()`.

    Attributes:
        name: for messages.
        size_bytes: of one object.
        pointers: indices of the 8-byte words that hold pointers.
        heap_id: the heap that the type belongs to.
        id: number of the type in that heap; 0: objects of `CollectedHeap.new_untyped()`.
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
    """Return size, words with pointers, and fields of a layout that `add_type()` was given."""
    if hasattr(type(layout), "__index__"):
        size = _lib.as_index(layout, "layout", TYPE_BYTES_MAX, least=1)  # type: ignore[arg-type]
        return size, (), None
    fields = from_format(layout) if isinstance(layout, str) else _as_dtype(layout)
    words = tuple(_pointer_words(fields))
    size = -(-fields.itemsize // WORD) * WORD if words else fields.itemsize
    return _lib.as_index(size, "layout", TYPE_BYTES_MAX, least=1), words, fields


def _as_dtype(layout: Any) -> np.dtype[Any]:
    found = type(layout).__name__
    wrong = f'layout: give bytes, fields such as [("next", object)], or a format, not {found}'
    if layout is None:  # numpy's name for float64
        raise TypeError(wrong)
    try:
        kind: np.dtype[Any] = np.dtype(layout)
    except (TypeError, ValueError) as error:
        raise TypeError(f"layout: {error}" if isinstance(layout, list) else wrong) from error
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
            raise InvalidError(
                f"format {text!r}: {rest[0]!r}; give native codes of struct, without x and p"
            )
        rest = rest[token.end() :]
        count, code = int(token[1] or 1), token[2]
        codes += [f"S{count}"] if code == "s" else [_CODES.get(code, code)] * count
    return np.dtype([(f"f{i}", code) for i, code in enumerate(codes)], align=True)


# --- edges of graphs ------------------------------------------------------------------------------

NO_EDGE = 2**32 - 1
NODES_MAX = NO_EDGE - 1


def random_graph(
    nodes: SupportsIndex, degree: SupportsIndex, *, seed: int = 0
) -> NDArray[np.uint32]:
    """Return a graph whose edges go to uniformly distributed random nodes.

    Args:
        nodes: number of nodes.
        degree: edges per node.
        seed: of the random numbers; the same seed gives the same graph.
    """
    count = _lib.as_index(nodes, "nodes", NODES_MAX)
    out = _lib.as_index(degree, "degree")
    if count == 0:
        return np.empty((0, out), np.uint32)
    return np.random.default_rng(seed).integers(0, count, (count, out), dtype=np.uint32)


def binary_tree(depth: SupportsIndex) -> NDArray[np.uint32]:
    """Return a complete binary tree: node i has the children 2 i + 1 and 2 i + 2.

    Args:
        depth: levels below the root (node 0), 0 to 30: 2**(depth + 1) - 1 nodes.
    """
    levels = _lib.as_index(depth, "depth", 30)
    nodes = 2 ** (levels + 1) - 1
    children = 2 * np.arange(nodes, dtype=np.int64)[:, None] + np.array([1, 2])
    return np.where(children < nodes, children, NO_EDGE).astype(np.uint32)


def linked_list(
    nodes: SupportsIndex, *, order: str = "allocation", seed: int = 0
) -> NDArray[np.uint32]:
    """Return a linked list that begins at node 0 and visits every node.

    Args:
        nodes: number of nodes.
        order: "allocation": node i points to node i + 1; "random": the nodes after the first are
            in random order, so each step jumps to another place in memory.
        seed: of the random order.

    Raises:
        InvalidError: there is no such order.
    """
    count = _lib.as_index(nodes, "nodes", NODES_MAX)
    _lib.as_choice(order, "order", ("allocation", "random"))
    path = np.arange(count, dtype=np.uint32)
    if order == "random" and count > 1:
        path[1:] = 1 + np.random.default_rng(seed).permutation(count - 1).astype(np.uint32)
    edges = np.full((count, 1), NO_EDGE, np.uint32)
    edges[path[:-1], 0] = path[1:]
    return edges


def as_edges(edges: object) -> NDArray[np.uint32]:
    """Return a contiguous copy of edges, of shape (nodes, degree)."""
    given = np.asarray(edges)
    if given.dtype.kind not in "iu" and given.size != 0:
        raise TypeError(f"edges must be integers, not {given.dtype}")
    if given.ndim != 2:
        raise errors.InvalidError(
            f"edges have shape {given.shape}; give (nodes, degree), as spanwise.random_graph makes"
        )
    if given.size != 0 and given.dtype != np.uint32:
        low, high = int(given.min()), int(given.max())
        if low < 0 or high > NO_EDGE:
            raise errors.InvalidError(f"edge {low if low < 0 else high} is not a node's number")
    return np.array(given, np.uint32, order="C")  # a copy: no thread changes it during the call
