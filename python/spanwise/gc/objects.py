# SPDX-License-Identifier: Apache-2.0
"""Types, objects and graphs of a collected heap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Life, Made
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


class CollectedObject(Made):
    """An object, or a row of objects of one type, that a collected heap keeps while this lives.

    `obj[word] = other` writes a pointer, `obj[word]` is the address that one holds, None for NULL.
    """

    __slots__ = ("__weakref__", "_address", "_count", "_handle", "_kept", "_life", "_type")
    _maker = "CollectedHeap.new"

    def _set(self, handle: GcHandle, kind: ObjectType, count: int, address: int) -> None:
        """The object at an address; called inside `with handle`."""
        self._handle = handle
        self._type = kind
        self._count = count
        self._address = address
        self._kept, life = handle.keep(address)
        self._life: Life | None = life

    @property
    def type(self) -> ObjectType:
        """Its type."""
        return self._type

    @property
    def count(self) -> int:
        """How many objects of the type are in the row."""
        return self._count

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return self._address

    @property
    def freed(self) -> bool:
        """Whether it was freed explicitly."""
        return self._kept.freed

    def __repr__(self) -> str:
        what = "freed" if self.freed else "released" if self.released else hex(self._address)
        row = f"{self._count} x " if self._count != 1 else ""
        return f"<CollectedObject {row}{_format.clipped(self._type.name)}, {what}>"

    def _check_kept(self) -> None:
        if self._kept.freed or self._life is None:
            raise BlockFreedError(f"{self!r}: the heap may have taken it back")

    def _at(self, word: SupportsIndex) -> Any:
        number = _lib.as_index(word, "word")
        self._check_kept()
        words_each = self._type.size_bytes // WORD
        if number >= words_each * self._count or number % words_each not in self._type.pointers:
            raise InvalidError(f"word {number} of {self!r} is no pointer of its type")
        return ffi.cast("void **", self._address) + number

    def __setitem__(self, word: SupportsIndex, value: CollectedObject | None) -> None:
        with self._handle as c_gc:
            at = self._at(word)
            if value is not None and not isinstance(value, CollectedObject):
                raise TypeError(f"a word gets an object or None, not {type(value).__name__}")
            if value is not None:
                if value._handle is not self._handle:
                    raise InvalidError(f"{value!r} belongs to another heap")
                value._check_kept()
            address = ffi.NULL if value is None else ffi.cast("void *", value._address)
            self._check_kept()  # a __del__ that ran since may have freed it
            lib.sw_gc_write(c_gc, at, address)

    def __getitem__(self, word: SupportsIndex) -> int | None:
        with self._handle:
            at = ffi.cast("uintptr_t *", self._at(word))
            self._check_kept()  # a __del__ that ran since may have freed it
            held = int(at[0])
        return held or None

    @property
    def released(self) -> bool:
        """Whether the object was freed or released, so that this keeps it no longer."""
        return self._life is None

    def release(self) -> None:
        """The heap need not keep it any longer for this; a second call does nothing."""
        life, self._life = self._life, None
        if life is not None:
            life.end()

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
            kept = self._kept
            bytes_all = self._count * self._type.size_bytes
            if self._handle.tiny and not self._type.pointers and bytes_all <= TINY_BLOCK_BYTES:
                raise StateError(f"{self!r} may share its block with others; release() it instead")
            if self._life is None or not kept.claim.take():
                raise BlockFreedError(f"{self!r}: it cannot be freed twice")
            kept.root[0][kept.root[1]] = 0
            self.release()
            self._handle.finalizers.pop(self._address, None)
            lib.sw_heap_free(self._handle.heap, ffi.cast("void *", self._address))


class Graph(Made):
    """Objects that `CollectedHeap.build` made, some of which the heap keeps while this lives."""

    __slots__ = ("__weakref__", "_kept", "_lives", "_nodes", "_type")
    _maker = "CollectedHeap.build"

    def _set(
        self,
        handle: GcHandle,
        kind: ObjectType,
        addresses: NDArray[np.uint64],
        keep: NDArray[np.int64],
    ) -> None:
        """The graph of these addresses; called inside `with handle`."""
        self._type = kind
        self._nodes = len(addresses)
        self._kept = tuple(int(i) for i in keep)
        self._lives: list[Life] | None = [handle.keep(int(addresses[i]))[1] for i in self._kept]

    @property
    def nodes(self) -> int:
        """Objects made."""
        return self._nodes

    @property
    def kept(self) -> tuple[int, ...]:
        """Numbers of those that are roots."""
        return self._kept

    @property
    def type(self) -> ObjectType:
        """Type of all of them."""
        return self._type

    def __repr__(self) -> str:
        kept = "released" if self._lives is None else _format.plural(len(self.kept), "root")
        return f"<Graph of {_format.plural(self.nodes, 'object')}, {self.type.name}, {kept}>"

    def release(self) -> None:
        """The heap need not keep it any longer for this; a second call does nothing."""
        lives, self._lives = self._lives, None
        for life in lives or ():
            life.end()


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
