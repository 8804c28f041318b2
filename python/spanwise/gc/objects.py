# SPDX-License-Identifier: Apache-2.0
"""Objects, weak references, ephemerons and graphs of a collected heap, and finalizers.

The C finalizer of an object only stores the object's address, so C never calls into Python.
`call_due` then calls the Python function stored for that address, with no lock held.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib
from spanwise._lib import check, ffi, lib, output_of
from spanwise._owner import Life, Made
from spanwise.errors import BlockFreedError, HeapClosedError, InvalidError, StateError
from spanwise.gc.handle import GcHandle
from spanwise.gc.layouts import WORD, ObjectType

TINY_BLOCK_BYTES = 16

NOTE = ffi.addressof(lib, "sw_note_finalized")


class _Row(Made):
    """Base of classes that refer to contiguous objects of one type."""

    __slots__ = ("__weakref__", "_count", "_handle", "_type")
    _count: int
    _type: ObjectType

    @property
    def type(self) -> ObjectType:
        """Type of each object."""
        return self._type

    @property
    def count(self) -> int:
        """Number of contiguous objects."""
        return self._count


Key: TypeAlias = SupportsIndex | str | tuple[SupportsIndex, str]
"""A word, a field, or the index of an object and a field."""


class CollectedObject(_Row):
    """One object, or contiguous objects of one type, kept alive by this Python object.

    `obj["field"]` reads and writes a field of a type with fields, `obj[i, "field"]` that of object
    i of several; `obj[word]` reads and writes a pointer by the index of its word. Pointers are
    read as objects, None for NULL. Array fields are read as copies: a tuple of objects, or a
    read-only numpy array; assign the whole field.

    >>> heap = CollectedHeap()
    >>> node = heap.add_type("node", [("next", object), ("value", "i8")])
    >>> first, second = heap.new(node), heap.new(node)
    >>> first["next"], second["value"] = second, 7
    >>> del second
    >>> first["next"]["value"]
    7
    >>> tree = heap.new(heap.add_type("tree", [("children", object, 2), ("at", "f8", 3)]))
    >>> tree["children"], tree["at"] = [first, None], [1, 2, 3]
    >>> tree["at"]
    array([1., 2., 3.])

    An object of `CollectedHeap.new_untyped()` holds words that may be pointers: `obj[word]` reads a
    number, and writes a number or an object.

    Raises:
        BlockFreedError: the object, or the one that is read, was freed, or the object released.
        InvalidError: there is no such field or pointer, numpy or an array field does not take the
            value, or an object belongs to another heap.
        TypeError, OverflowError: numpy does not take the value, or a pointer is no object.
    """

    __slots__ = ("_address", "_kept", "_life")
    __iter__ = None  # otherwise `list(obj)` and `x in obj` would read words
    _maker = "CollectedHeap.new"

    def _set(self, handle: GcHandle, kind: ObjectType, count: int, address: int) -> None:
        """Refer to the object at an address; called inside `with handle`."""
        self._handle = handle
        self._type = kind
        self._count = count
        self._address = address
        self._kept, life = handle.keep(address)
        self._life: Life | None = life

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return self._address

    @property
    def freed(self) -> bool:
        """Whether it was freed explicitly."""
        return self._kept.freed

    def __repr__(self) -> str:
        what = "released" if self.released else hex(self._address)
        what = "freed" if self.freed else "of a closed heap" if self._handle.closed else what
        row = f"{self._count} x " if self._count != 1 else ""
        return f"<CollectedObject {row}{_format.clipped(self._type.name)}, {what}>"

    def _check_kept(self) -> None:
        if self._kept.freed or self._life is None:
            raise BlockFreedError(f"{self!r}: it was freed or released")

    def _at(self, word: SupportsIndex) -> Any:
        number = _lib.as_index(word, "word")
        self._check_kept()
        words_each = self._type.size_bytes // WORD
        if number >= words_each * self._count or number % words_each not in self._type.pointers:
            raise InvalidError(f"word {number} of {self!r} is not a pointer of its type")
        return ffi.cast("void **", self._address) + number

    def __setitem__(self, key: Key, value: Any) -> None:
        if isinstance(key, tuple | str):
            self._write(*self._place(key), value)
            return
        with self._handle as c_gc:
            at = self._at(key)
            if self._type.id == 0 and not isinstance(value, CollectedObject | None):
                address = _lib.as_index(value, "value", 2**64 - 1)
            else:
                address = address_for(self._handle, value)
            self._check_kept()  # a __del__ that ran since may have freed it
            lib.sw_gc_write(c_gc, at, ffi.cast("void *", address))

    def __getitem__(self, key: Key) -> Any:
        if isinstance(key, tuple | str):
            return self._read(*self._place(key))
        with self._handle:
            at = ffi.cast("uintptr_t *", self._at(key))
            self._check_kept()  # a __del__ that ran since may have freed it
            held = int(at[0])
            return held if self._type.id == 0 else object_from(self._handle, held)

    def _place(self, key: tuple[SupportsIndex, str] | str) -> tuple[int, str]:
        index, name = (0, key) if isinstance(key, str) else key
        return _lib.as_index(index, "index", self._count - 1), name

    def _rows(self) -> NDArray[np.void]:
        """Return the bytes as structures, to be used at once, inside `with`."""
        self._check_kept()
        size = self._count * self._type.size_bytes
        memory = ffi.buffer(ffi.cast("char *", self._address), size)
        return np.frombuffer(memory, self._type._stored())

    def _read(self, index: int, name: str) -> Any:
        kind = self._type._field(name)
        with self._handle:
            copied = self._rows()[name][index : index + 1].copy()
            copied.flags.writeable = False
            value = copied[0]
            if not kind.base.hasobject:
                plain = isinstance(value, np.generic) and value.dtype.names is None
                return value.item() if plain else value
            if kind.shape == ():
                return object_from(self._handle, int(value))
            return tuple(object_from(self._handle, one) for one in value.ravel().tolist())

    def _write(self, index: int, name: str, value: Any) -> None:
        kind = self._type._field(name)
        if not kind.base.hasobject:
            converted = _converted(value, kind, f"field {name!r}")
            with self._handle:
                self._rows()[name][index] = converted
            return
        values = [value] if kind.shape == () else _values(value, kind, f"field {name!r}")
        with self._handle as c_gc:
            addresses = [
                ffi.cast("void *", address_for(self._handle, one, f"field {name!r}"))
                for one in values
            ]
            self._check_kept()
            at = self._address + index * self._type.size_bytes + self._type._offset(name)
            targets = ffi.new("void *[]", addresses)
            lib.sw_gc_write_all(c_gc, ffi.cast("void *", at), targets, len(values))

    @property
    def released(self) -> bool:
        """Whether this no longer keeps the object alive, because it was freed or released."""
        return self._life is None

    def release(self) -> None:
        """Stop keeping the object alive; a second call does nothing.

        >>> heap = CollectedHeap()
        >>> node = heap.new(heap.add_type("node", 16))
        >>> node.release()
        >>> heap.collect().freed_objects
        1
        """
        life, self._life = self._life, None
        if life is not None:
            life.end()

    def free(self) -> None:
        """Free the object now or, while a cycle runs, with the sweep of the cycle.

        The program must not follow pointers to it afterwards. Its finalizer is not called, and
        weak references to it are cleared.

        Raises:
            BlockFreedError: it has already been freed or released.
            StateError: it may share its block (`CollectedHeap(tiny=True)`).
            HeapClosedError: the heap is closed.

        >>> heap = CollectedHeap()
        >>> node = heap.new(heap.add_type("node", 16))
        >>> node.free()
        >>> heap.ledger().live_objects
        0
        """
        with self._handle:
            kept = self._kept
            bytes_all = self._count * self._type.size_bytes
            if self._handle.tiny and not self._type.pointers and bytes_all <= TINY_BLOCK_BYTES:
                raise StateError(f"{self!r} may share its block with others; release() it instead")
            if self._life is None or not kept.claim.take():
                raise BlockFreedError(f"{self!r}: it was already freed or released")
            kept.root[0][kept.root[1]] = 0
            self.release()
            self._handle.finalizers.pop(self._address, None)
            self._handle.arenas.pop(self._address, None)
            self._handle.layouts.pop(self._address, None)
            lib.sw_heap_free(self._handle.heap, ffi.cast("void *", self._address))


def _converted(value: Any, kind: np.dtype[Any], what: str) -> NDArray[Any]:
    """Convert a value for a field without pointers; an error names the field."""
    converted = np.empty(kind.shape, kind.base)
    try:
        converted[...] = value
    except (TypeError, ValueError, OverflowError) as error:
        kinds = (TypeError, OverflowError)
        wrong = next((one for one in kinds if isinstance(error, one)), InvalidError)
        raise wrong(f"{what}: {error}") from error
    return converted


def _values(value: Any, kind: np.dtype[Any], what: str) -> list[Any]:
    """Return the values for an array of pointers."""
    values, count = list(value) if isinstance(value, Iterable) else None, int(np.prod(kind.shape))
    if values is not None and len(values) == count:
        return values
    few = ", ".join(["a", "None", "None"][:count] + ["..."] * (count > 3))
    wrong = TypeError if values is None else InvalidError
    raise wrong(f"{what} takes {_format.plural(count, 'object')}, such as [{few}]")


class WeakObject(_Row):
    """A weak reference to a collected object: calling it returns the object, None once it is gone.

    Created by `CollectedHeap.weak()`. The returned object is a root, like every `CollectedObject`.
    """

    __slots__ = ("_life", "_long", "_ref")
    _maker = "CollectedHeap.weak"

    def _set(self, handle: GcHandle, target: CollectedObject, *, long: bool) -> None:
        self._handle = handle
        self._type, self._count = target.type, target.count
        self._long = long
        with handle as c_gc:
            target._check_kept()
            kind = lib.SW_GC_WEAK_LONG if long else lib.SW_GC_WEAK
            address = ffi.cast("void *", target.address)
            self._ref = int(output_of(lib.sw_gc_ref_new, c_gc, kind, address))
            handle.objects[target.address] = target
            self._life = handle.ref(self._ref)

    @property
    def long(self) -> bool:
        """Whether the reference lasts until the object is freed."""
        return self._long

    def __call__(self) -> CollectedObject | None:
        """Return the object; None if it is unreachable or was freed.

        Raises:
            HeapClosedError: the heap is closed.
        """
        with self._handle as c_gc:
            address = self._get(c_gc)
            return object_at(self._handle, address, self._type, self._count) if address else None

    def _get(self, c_gc: Any) -> int:
        """Return the address of the object; 0 if it is gone."""
        return int(ffi.cast("uintptr_t", output_of(lib.sw_gc_ref_get, c_gc, self._ref)))

    def __repr__(self) -> str:
        try:
            with self._handle as c_gc:
                state = "" if self._get(c_gc) else ", dead"
        except HeapClosedError:
            state = ", of a closed heap"
        return f"<WeakObject to {self._type!r}{', long' if self._long else ''}{state}>"


class Ephemeron(Made):
    """A key, and a value that lives while the key does: an entry of a weak map.

    Created by `CollectedHeap.ephemeron()`. The value does not keep the key alive, even if the key
    can be reached from it. When the key is unreachable or freed, both are None.
    """

    __slots__ = ("__weakref__", "_handle", "_life", "_ref", "_type")
    _maker = "CollectedHeap.ephemeron"

    def _set(self, handle: GcHandle, key: CollectedObject, value: CollectedObject | None) -> None:
        self._handle = handle
        self._type = key.type
        with handle as c_gc:
            both = [ffi.cast("void *", address_for(handle, one)) for one in (key, value)]
            self._ref = int(output_of(lib.sw_gc_ephemeron_new, c_gc, *both))
            self._life = handle.ref(self._ref)

    def _held(self, which: int) -> CollectedObject | None:
        with self._handle as c_gc:
            return object_from(self._handle, self._get(c_gc)[which])

    def _get(self, c_gc: Any) -> list[int]:
        both = [ffi.new("void **") for _ in range(2)]
        check(lib.sw_gc_ephemeron_get(c_gc, self._ref, *both))
        return [int(ffi.cast("uintptr_t", one[0])) for one in both]

    @property
    def key(self) -> CollectedObject | None:
        """The key; None if it is unreachable or was freed."""
        return self._held(0)

    @property
    def value(self) -> CollectedObject | None:
        """The value; None once the key is gone."""
        return self._held(1)

    def set_value(self, value: CollectedObject | None) -> None:
        """Replace the value; this does nothing once the key is gone.

        Raises:
            BlockFreedError: the object was freed or released.
            InvalidError: it belongs to another heap.

        >>> heap = CollectedHeap()
        >>> node = heap.add_type("node", 16, [0])
        >>> key, other = heap.new(node), heap.new(node)
        >>> pair = heap.ephemeron(key)
        >>> pair.set_value(other)
        >>> pair.value is other
        True
        """
        with self._handle as c_gc:
            address = ffi.cast("void *", address_for(self._handle, value))
            check(lib.sw_gc_ephemeron_set(c_gc, self._ref, address))

    def __repr__(self) -> str:
        try:
            with self._handle as c_gc:
                state = "" if self._get(c_gc)[0] else ", dead"
        except HeapClosedError:
            state = ", of a closed heap"
        return f"<Ephemeron of {self._type!r}{state}>"


class Graph(Made):
    """Objects that `CollectedHeap.build()` allocated; this Python object keeps the roots alive.

    There is no access to the objects: those that Python reads or links come from
    `CollectedHeap.new()`.
    """

    __slots__ = ("__weakref__", "_kept", "_lives", "_nodes", "_type")
    _maker = "CollectedHeap.build"

    def _set(
        self,
        handle: GcHandle,
        kind: ObjectType,
        addresses: NDArray[np.uint64],
        keep: NDArray[np.int64],
    ) -> None:
        """Refer to the objects at these addresses; called inside `with handle`."""
        self._type = kind
        self._nodes = len(addresses)
        self._kept = tuple(int(i) for i in keep)
        self._lives: list[Life] | None = [handle.keep(int(addresses[i]))[1] for i in self._kept]

    @property
    def nodes(self) -> int:
        """Number of objects."""
        return self._nodes

    @property
    def kept(self) -> tuple[int, ...]:
        """Numbers of the nodes that are roots."""
        return self._kept

    @property
    def type(self) -> ObjectType:
        """Type of all objects."""
        return self._type

    def __repr__(self) -> str:
        kept = "released" if self._lives is None else _format.plural(len(self.kept), "root")
        return f"<Graph of {_format.plural(self.nodes, 'object')}, {self.type.name}, {kept}>"

    def release(self) -> None:
        """Stop keeping the roots alive; a second call does nothing."""
        lives, self._lives = self._lives, None
        for life in lives or ():
            life.end()


Finalizer: TypeAlias = Callable[[CollectedObject], object]


class _Raises:
    """Raises an exception as the callback of a weak reference, in the name of a finalizer."""

    def __init__(self, finalizer: Finalizer, error: Exception) -> None:
        self.finalizer = finalizer
        self.error = error

    def __call__(self, _: object) -> None:
        try:
            raise self.error
        finally:
            del self.error  # the error's traceback refers to this frame

    def __repr__(self) -> str:
        return f"finalizer {self.finalizer!r}"


def _pass_on(finalizer: Finalizer, error: Exception) -> None:
    """Pass an exception to `sys.unraisablehook`, as Python does for callbacks of weak references.

    Python has no function for that.
    """
    dying: set[None] = set()
    reference = weakref.ref(dying, _Raises(finalizer, error))
    del error  # its traceback will refer to this frame
    del dying, reference


def set_finalizer(handle: GcHandle, target: CollectedObject, finalizer: Finalizer | None) -> None:
    """Set or replace the finalizer of a live object; None removes it."""
    with handle as c_gc:
        target._check_kept()
        address = ffi.cast("void *", target.address)
        if finalizer is None:
            check(lib.sw_gc_set_finalizer(c_gc, address, ffi.NULL, ffi.NULL))
            handle.finalizers.pop(target.address, None)
            handle.arenas.pop(target.address, None)
            return
        check(lib.sw_gc_set_finalizer(c_gc, address, NOTE, handle.note))
        handle.arenas.pop(target.address, None)
        handle.finalizers[target.address] = (finalizer, target.type, target.count)
        handle.objects[target.address] = target


def _nothing() -> None:
    """Do nothing: C has called the finalizer."""


def _take_due(handle: GcHandle) -> partial[Any] | None:
    """Return the call of a due finalizer, whose object becomes a root again; None if none is due.

    The finalizer of an object with an arena (`Arena.free_with`) is C's, and has been called.
    """
    with handle as c_gc:
        handle.note[0] = ffi.NULL
        if lib.sw_gc_finalize(c_gc, 1) == 0:
            return None
        address = int(ffi.cast("uintptr_t", handle.note[0]))
        if address == 0:
            return partial(_nothing)
        finalizer, kind, count = handle.finalizers.pop(address)
        return partial(finalizer, object_at(handle, address, kind, count))


def call_due(handle: GcHandle, most: int | None) -> int:
    """Call due finalizers in this thread; return the number of calls."""
    called = 0
    while most is None or called < most:
        call = None if handle.closed else _take_due(handle)
        if call is None:
            break
        called += 1
        try:
            call()
        except Exception as error:
            _pass_on(call.func, error)
    handle.drop_freed_arenas()
    return called


def object_at(handle: GcHandle, address: int, kind: ObjectType, count: int) -> CollectedObject:
    """Return a Python object, neither freed nor released, for an address; inside `with handle`."""
    found = handle.objects.get(address)
    if not isinstance(found, CollectedObject) or found.freed or found.released:
        found = CollectedObject._make(handle, kind, count, address)
        handle.objects[address] = found
    return found


def new_object(handle: GcHandle, kind: ObjectType, count: int, address: int) -> CollectedObject:
    """Return the Python object of a new object; inside `with handle`."""
    made = CollectedObject._make(handle, kind, count, address)
    handle.layouts[address] = (kind, count)
    handle.objects[address] = made
    return made


def object_from(handle: GcHandle, address: int) -> CollectedObject | None:
    """Return the object that a pointer which the collector follows leads to; inside `with`."""
    if address == 0:
        return None
    layout = handle.layouts.get(address)
    if layout is None:
        raise BlockFreedError(f"the pointer {address:#x} leads to an object that was freed")
    return object_at(handle, address, *layout)


def address_for(handle: GcHandle, value: CollectedObject | None, what: str = "value") -> int:
    """Return the address to write for a pointer; inside `with handle`."""
    _lib.check_type(value, (CollectedObject, type(None)), what)
    if value is None:
        return 0
    if value._handle is not handle:
        raise InvalidError(f"{value!r} belongs to another heap")
    value._check_kept()
    return value._address
