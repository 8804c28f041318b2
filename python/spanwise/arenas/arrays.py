# SPDX-License-Identifier: Apache-2.0
"""numpy's own memory in an arena, by the protocol of NEP 49."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from spanwise import _lib
from spanwise._lib import ffi, lib
from spanwise._owner import Uncopied
from spanwise.arenas.arena import Arena
from spanwise.errors import StateError, UnsupportedError

_SET_HANDLER = 304
"""Index of PyDataMem_SetHandler in the table of numpy's C interface, since numpy 1.22."""


class ArenaAllocator(Uncopied):
    """Puts the data of numpy arrays in an arena: of all that numpy makes in a `with` statement.

    >>> import numpy as np
    >>> arena = Arena()
    >>> with ArenaAllocator(arena):
    ...     squares = np.arange(1000, dtype="i8") ** 2
    >>> arena.stats().used_bytes + arena.stats().own_bytes >= 2 * squares.nbytes
    True
    >>> del squares
    >>> arena.close()

    The data lives as long as its arrays: until the last one is gone, `Arena.close`, `Arena.reset`
    and `Savepoint.rewind` raise BlockBusyError. Temporary arrays are in the arena, too, and their
    data is freed with it, not before; so is that of an array which `ndarray.resize` moves. The data
    is aligned to 16 bytes, as numpy's own. If the arena has no memory, numpy raises MemoryError.

    It concerns only the thread or the asyncio task that runs the `with` statement and the tasks
    that it starts, because numpy's allocator is a context variable. Not in the arena are: arrays
    over memory of others (`frombuffer`, `memmap`, `Arena.zeros`), the Python objects of an array of
    objects, the characters of a StringDType, numpy's scalars and work buffers, and what other
    libraries allocate without numpy.

    Args:
        arena: it must have no attached collector, which would need to know each allocation.

    Raises:
        StateError: on entry: the arena is closed, a heap is attached, or it is entered already.
        UnsupportedError: on entry: this Python has no C interface of numpy.
    """

    __slots__ = ("_arena", "_before")
    _made_with = "_arena"

    def __init__(self, arena: Arena) -> None:
        _lib.check_type(arena, Arena, "arena")
        self._arena = arena
        self._before: list[Any] = []  # numpy's allocator outside the `with` statement

    def __enter__(self) -> ArenaAllocator:
        if self._before:
            raise StateError("the ArenaAllocator is entered already; make another")
        set_handler = _set_handler()
        self._before.append(set_handler(_handler(self._arena)))
        return self

    def __exit__(self, *error: object) -> None:
        if not self._before:
            raise StateError("the ArenaAllocator is not entered")
        _set_handler()(self._before.pop())

    def __repr__(self) -> str:
        return f"<ArenaAllocator of {self._arena!r}{', entered' if self._before else ''}>"


def _handler(arena: Arena) -> Any:
    """Return a capsule that numpy allocates with; while it is alive, so is the arena."""
    with arena._using() as c_arena:
        if arena._seen_by is not None:
            raise StateError("a heap is attached to the arena; call attach(None)")
        handler = ffi.new("sw_numpy_handler *")
        lib.sw_numpy_handler_init(handler, c_arena, b"spanwise_arena")
        needs = (arena._kept.hold(arena._handlers.taken()), handler)
    python = ctypes.pythonapi
    python.PyCapsule_New.restype = ctypes.py_object
    python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    python.PyCapsule_SetContext.argtypes = [ctypes.py_object, ctypes.py_object]
    python.Py_IncRef.argtypes = [ctypes.py_object]
    drop = ffi.addressof(lib, "sw_numpy_drop")
    capsule = python.PyCapsule_New(_address(handler), b"mem_handler", _address(drop))
    python.Py_IncRef(needs)
    python.PyCapsule_SetContext(capsule, needs)
    return capsule


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def _set_handler() -> Any:
    """Return numpy's PyDataMem_SetHandler: it returns the previous handler."""
    module = sys.modules.get("numpy._core._multiarray_umath")
    module = module or sys.modules.get("numpy.core._multiarray_umath")
    table = getattr(module, "_ARRAY_API", None)
    if table is None or sys.implementation.name != "cpython":
        raise UnsupportedError("this Python has no C interface of numpy")
    python = ctypes.pythonapi
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    functions = ctypes.cast(
        python.PyCapsule_GetPointer(table, None), ctypes.POINTER(ctypes.c_void_p)
    )
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
    return kind(functions[_SET_HANDLER] or 0)
