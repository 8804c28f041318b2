# SPDX-License-Identifier: Apache-2.0
"""Finalizers of collected objects, and weak references to them.

The C finalizer of each such object only stores the object's address, so C never calls into Python.
`call_due` then calls the Python function that is kept for that address, with no lock held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from spanwise._lib import check, ffi, lib
from spanwise._owner import Made
from spanwise.gc.handle import GcHandle
from spanwise.gc.objects import CollectedObject, ObjectType

Finalizer: TypeAlias = Callable[[CollectedObject], object]

NOTE = ffi.addressof(lib, "sw_note_finalized")


class _Unraisable:
    """Hands an error to `sys.unraisablehook`, as Python does with those of destructors."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __del__(self) -> None:
        try:
            raise self.error
        finally:
            del self.error  # the error's traceback refers to this frame


def set_finalizer(handle: GcHandle, target: CollectedObject, finalizer: Finalizer | None) -> None:
    """Gives a live object of the heap a finalizer, in place of the one that it has."""
    with handle as c_gc:
        target._check_kept()
        address = ffi.cast("void *", target.address)
        if finalizer is None:
            check(lib.sw_gc_set_finalizer(c_gc, address, ffi.NULL, ffi.NULL))
            handle.finalizers.pop(target.address, None)
            return
        check(lib.sw_gc_set_finalizer(c_gc, address, NOTE, handle.note))
        handle.finalizers[target.address] = (finalizer, target.type, target.count)
        handle.objects[target.address] = target


def _take_due(handle: GcHandle) -> tuple[Finalizer, CollectedObject] | None:
    """One due finalizer with its object, which becomes a root again; None if none is due."""
    with handle as c_gc:
        if lib.sw_gc_finalize(c_gc, 1) == 0:
            return None
        address = int(ffi.cast("uintptr_t", handle.note[0]))
        finalizer, kind, count = handle.finalizers.pop(address)
        return finalizer, object_at(handle, address, kind, count)


def call_due(handle: GcHandle, most: int | None) -> int:
    """Calls finalizers that are due, in this thread; returns how many."""
    called = 0
    while most is None or called < most:
        taken = None if handle.closed else _take_due(handle)
        if taken is None:
            break
        finalizer, target = taken
        called += 1
        try:
            finalizer(target)
        except Exception as error:
            _Unraisable(error)
    return called


def object_at(handle: GcHandle, address: int, kind: ObjectType, count: int) -> CollectedObject:
    """The Python object for an address, one that was neither freed nor released.

    Inside `with handle`.
    """
    found = handle.objects.get(address)
    if not isinstance(found, CollectedObject) or found.freed or found.released:
        found = CollectedObject._make(handle, kind, count, address)
        handle.objects[address] = found
    return found


class WeakObject(Made):
    """A weak reference to a collected object: calling it gives the object, None once it is gone.

    Made by `CollectedHeap.weak`. What it gives is a root again, like every `CollectedObject`.
    """

    __slots__ = ("__weakref__", "_count", "_handle", "_life", "_long", "_ref", "_type")
    _maker = "CollectedHeap.weak"

    def _set(self, handle: GcHandle, target: CollectedObject, *, long: bool) -> None:
        self._handle = handle
        self._type = target.type
        self._count = target.count
        self._long = long
        out = ffi.new("sw_gc_ref *")
        with handle as c_gc:
            target._check_kept()
            kind = lib.SW_GC_WEAK_LONG if long else lib.SW_GC_WEAK
            check(lib.sw_gc_ref_new(c_gc, kind, ffi.cast("void *", target.address), out))
            handle.objects[target.address] = target
            self._ref = int(out[0])
            self._life = handle.ref(self._ref)

    @property
    def type(self) -> ObjectType:
        """The object's type."""
        return self._type

    @property
    def count(self) -> int:
        """How many objects of the type are in the row."""
        return self._count

    @property
    def long(self) -> bool:
        """Whether it holds until the object is freed."""
        return self._long

    def __call__(self) -> CollectedObject | None:
        """The object; None: nothing reaches it any more, or it was freed.

        Raises:
            HeapClosedError: the heap is closed.
        """
        out = ffi.new("void **")
        with self._handle as c_gc:
            check(lib.sw_gc_ref_get(c_gc, self._ref, out))
            address = int(ffi.cast("uintptr_t", out[0]))
            return object_at(self._handle, address, self._type, self._count) if address else None

    def __repr__(self) -> str:
        return f"<WeakObject to {self._type!r}{', long' if self._long else ''}>"
