# SPDX-License-Identifier: Apache-2.0
"""What keeps the memory of an arena: the `Arena`, its arrays, holds, and an object that owns it."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import numpy as np

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import CallLock, Count, Life, owner_of
from spanwise.errors import InvalidError

ending = CallLock()
"""Held while an arena ends or is pinned, inside the locks of arenas and heaps. So a pin finds an
arena either before its end, which it then prevents, or not at all."""

_kept: weakref.WeakValueDictionary[int, Kept] = weakref.WeakValueDictionary()
"""By address of the C arena, until its end begins."""


class Kept:
    """Keeps a C arena allocated, unless an object of a collected heap had it and was collected.

    Attributes:
        c: the sw_arena.
        holds: holds and pins, which prevent `Arena.reset` and `Arena.close`.
        ref: a checked reference to the arena once an object has it, zero before.
    """

    __slots__ = ("__weakref__", "_life", "c", "holds", "ref")

    def __init__(self, c_arena: Any, life: Life, ref: Any) -> None:
        self.c = c_arena
        self._life = life
        self.holds = Count()
        self.ref = ref
        _kept[_address(c_arena)] = self

    def watch(self) -> None:
        """Make `freed` notice that the arena is freed without Python; repeat it after a reset."""
        self.ref[0] = lib.sw_arena_make_ref(self.c, self.c)

    @property
    def freed(self) -> bool:
        """Whether the finalizer of an object has freed it."""
        return _is_freed(self.ref)

    def hold(self, counted: Life) -> Life:
        """Hold the arena until the returned life ends; `counted` ends after the hold."""
        check(lib.sw_arena_hold(self.c))
        return Life(_unhold, self, counted)

    def end(self) -> None:
        """Prevent pins from now on. The caller is inside `with ending`."""
        if _kept.get(_address(self.c)) is self:
            del _kept[_address(self.c)]


def _address(c_arena: Any) -> int:
    return int(ffi.cast("uintptr_t", c_arena))


def _is_freed(ref: Any) -> bool:
    return bool(ref.arena != ffi.NULL and lib.sw_arena_get(ref[0]) == ffi.NULL)


def free_soon(c_arena: Any, ref: Any) -> None:
    """Free an arena in the end of its `Life`, in the thread in which Python's collector runs."""
    ending.soon(functools.partial(_free, c_arena, ref))


def _free(c_arena: Any, ref: Any) -> None:
    if not _is_freed(ref):
        check(lib.sw_arena_free(c_arena))


def _unhold(kept: Kept, _: Life) -> None:
    lib.sw_arena_unhold(kept.c)


# --- pins -----------------------------------------------------------------------------------------


def pinned(target: Any) -> Life:
    """Hold the arena of an array, a memoryview or an address until the returned life ends.

    Raises:
        TypeError: the target is none of these.
        InvalidError: no live arena has it.
    """
    kept = owner_of(target)
    with ending:
        if isinstance(kept, Kept):
            return kept.hold(kept.holds.taken())
        return _pinned_at(_address_of(target))


def _address_of(target: Any) -> int:
    if isinstance(target, memoryview):
        target = np.asarray(target)
    if isinstance(target, np.ndarray):
        return int(target.__array_interface__["data"][0])
    if not hasattr(type(target), "__index__") or isinstance(target, bool):
        kind = type(target).__name__
        raise TypeError(f"target must be an array, a memoryview or an address, not {kind}")
    return _lib.as_index(target, "target", 2**64 - 1)


def _pinned_at(address: int) -> Life:
    c_arena = lib.sw_arena_pin(ffi.cast("void *", address))
    if c_arena != ffi.NULL:
        kept = _kept.get(_address(c_arena))
        counted = kept.holds.taken() if kept is not None else None
        # Code that interrupts this function may have ended the arena before it was counted.
        if counted is not None and kept is _kept.get(_address(c_arena)):
            return Life(_unhold, kept, counted)
        lib.sw_arena_unhold(c_arena)
        if counted is not None:
            counted.end()
    raise InvalidError(
        f"target {address:#x} is in no chunk of a live arena; give an array that the arena returned"
    )
