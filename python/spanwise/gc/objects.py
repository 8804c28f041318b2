# SPDX-License-Identifier: Apache-2.0
"""Types, objects and graphs of a collected heap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib
from spanwise._lib import check, ffi, lib
from spanwise.errors import BlockFreedError, InvalidError, StateError
from spanwise.gc.handle import GcHandle

WORD = 8
TINY_BLOCK_BYTES = 16


@dataclass(frozen=True)
class ObjectType:
    """What objects look like: made by `CollectedHeap.add_type`.

    Attributes:
        name: for people.
        size_bytes: of one object.
        pointers: numbers of the 8-byte words that hold pointers.
        heap_id: the heap that it belongs to.
        id: its number there.
    """

    name: str
    size_bytes: int
    pointers: tuple[int, ...]
    heap_id: int
    id: int

    def __repr__(self) -> str:
        words = _format.clipped(", ".join(map(str, self.pointers[:8])))
        more = ", ..." if len(self.pointers) > 8 else ""
        what = f"{_format.clipped(self.name)}, {self.size_bytes} B"
        return f"<ObjectType {what}, pointers at words ({words}{more})>"


class CollectedObject:
    """An object, or a row of objects of one type, that a collected heap keeps while this lives.

    `obj[word] = other` writes a pointer, `obj[word]` is the address that one holds, None for NULL.
    """

    __slots__ = ("__weakref__", "_handle", "_root", "address", "count", "freed", "type")

    def __init__(self, handle: GcHandle, kind: ObjectType, count: int, address: int) -> None:
        self._handle = handle
        self.type = kind
        self.count = count
        self.address = address
        self.freed = False
        root = handle.take_root()
        root[0][root[1]] = address
        self._root: tuple[NDArray[np.uint64], int] | None = root

    def __del__(self) -> None:
        root = getattr(self, "_root", None)
        if root is not None:
            self._root = None
            self._handle.drop_root(root)

    def __repr__(self) -> str:
        what = "freed" if self.freed else "released" if self._root is None else hex(self.address)
        row = f"{self.count} x " if self.count != 1 else ""
        return f"<CollectedObject {row}{_format.clipped(self.type.name)}, {what}>"

    def _at(self, word: SupportsIndex) -> Any:
        number = _lib.as_index(word, "word")
        if self.freed or self._root is None:
            raise BlockFreedError(f"{self!r}: the heap may have taken it back")
        words_each = self.type.size_bytes // WORD
        if number >= words_each * self.count or number % words_each not in self.type.pointers:
            raise InvalidError(f"word {number} of {self!r} is no pointer of its type")
        return ffi.cast("void **", self.address) + number

    def __setitem__(self, word: SupportsIndex, value: CollectedObject | None) -> None:
        with self._handle as c_gc:
            at = self._at(word)
            if value is not None and not isinstance(value, CollectedObject):
                raise TypeError(f"a word gets an object or None, not {type(value).__name__}")
            if value is not None:
                if value._handle is not self._handle:
                    raise InvalidError(f"{value!r} belongs to another heap")
                if value.freed or value._root is None:
                    raise BlockFreedError(f"{value!r}: the heap may have taken it back")
            address = ffi.NULL if value is None else ffi.cast("void *", value.address)
            lib.sw_gc_write(c_gc, at, address)

    def __getitem__(self, word: SupportsIndex) -> int | None:
        with self._handle:
            held = int(ffi.cast("uintptr_t", self._at(word)[0]))
        return held or None

    @property
    def released(self) -> bool:
        """Whether the object was freed or released, so that this keeps it no longer."""
        return self._root is None

    def release(self) -> None:
        """The heap need not keep it any longer for this; a second call does nothing."""
        root, self._root = self._root, None
        if root is not None:
            self._handle.drop_root(root)

    def free(self) -> None:
        """Frees it at once, or, while a cycle runs, with its sweep.

        What points to it must not be followed any more. Its finalizer is not called, and weak
        references to it hold nothing from now on.

        Raises:
            BlockFreedError: it was freed or released before.
            StateError: it may share its block (`CollectedHeap(tiny=True)`).
            HeapClosedError: the heap is closed.
        """
        with self._handle:
            if self.freed or self._root is None:
                raise BlockFreedError(f"{self!r}: it cannot be freed twice")
            bytes_all = self.count * self.type.size_bytes
            if self._handle.tiny and not self.type.pointers and bytes_all <= TINY_BLOCK_BYTES:
                raise StateError(f"{self!r} may share its block with others; release() it instead")
            self.freed = True
            self.release()
            self._handle.finalizers.pop(self.address, None)
            lib.sw_heap_free(self._handle.heap, ffi.cast("void *", self.address))


class Graph:
    """Objects that `CollectedHeap.build` made, some of which the heap keeps while this lives.

    Attributes:
        nodes: objects made.
        kept: numbers of those that are roots.
        type: of all of them.
    """

    __slots__ = ("__weakref__", "_handle", "_roots", "kept", "nodes", "type")

    def __init__(
        self,
        handle: GcHandle,
        kind: ObjectType,
        addresses: NDArray[np.uint64],
        keep: NDArray[np.int64],
    ) -> None:
        self._handle = handle
        self.type = kind
        self.nodes = len(addresses)
        self.kept = tuple(int(i) for i in keep)
        self._roots: list[Any] | None = []
        for i in self.kept:
            root = handle.take_root()
            root[0][root[1]] = addresses[i]
            self._roots.append(root)

    def __del__(self) -> None:
        if getattr(self, "_roots", None):
            self.release()

    def __repr__(self) -> str:
        kept = "released" if self._roots is None else _format.plural(len(self.kept), "root")
        return f"<Graph of {_format.plural(self.nodes, 'object')}, {self.type.name}, {kept}>"

    def release(self) -> None:
        """The heap need not keep it any longer for this; a second call does nothing."""
        roots, self._roots = self._roots, None
        for root in roots or ():
            self._handle.drop_root(root)


def build(
    handle: GcHandle, c_gc: Any, kind: ObjectType, edges: NDArray[np.uint32]
) -> NDArray[np.uint64]:
    """Makes the objects; inside `with handle as c_gc`. Their addresses: nothing keeps them yet."""
    nodes, degree = edges.shape
    addresses = np.zeros(nodes, np.uint64)
    check(
        lib.sw_gc_build(
            c_gc,
            kind.id,
            degree,
            nodes,
            ffi.from_buffer("uint32_t[]", edges),
            ffi.cast("void **", ffi.from_buffer(addresses)),
        )
    )
    return addresses
