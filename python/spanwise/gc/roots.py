# SPDX-License-Identifier: Apache-2.0
"""Root words of a collected heap that hold objects: ranges, and frames of shadow stacks."""

from __future__ import annotations

import functools
import threading
from typing import Any, SupportsIndex

import numpy as np

from spanwise import _format, _lib
from spanwise._lib import check, ffi, lib, output_of
from spanwise._owner import CallLock, Life, Made
from spanwise.errors import StateError
from spanwise.gc.handle import GcHandle
from spanwise.gc.objects import CollectedObject, address_for, object_from

WORDS_MAX = 1 << 40


class _Words(Made):
    """Base of classes with root words: `words[i] = object`, `words[i]`, `len(words)`."""

    __slots__ = ("__weakref__", "_handle", "_words")
    _handle: GcHandle

    def _set_words(self, handle: GcHandle, count: int) -> None:
        self._handle = handle
        self._words = np.zeros(count, np.uint64)

    def _check_root(self) -> None:
        """Raise StateError if the words are not roots now."""
        raise NotImplementedError

    def _index(self, index: SupportsIndex) -> int:
        return _lib.as_index(index, "index", len(self._words) - 1)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {_format.plural(len(self._words), 'word')}>"

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, index: SupportsIndex) -> CollectedObject | None:
        where = self._index(index)
        with self._handle:
            self._check_root()
            return object_from(self._handle, int(self._words[where]))

    def __setitem__(self, index: SupportsIndex, value: CollectedObject | None) -> None:
        where = self._index(index)
        with self._handle:
            self._check_root()
            self._words[where] = address_for(self._handle, value)


class RootRange(_Words):
    """Words that are roots until `close()`, or until the last reference to the range goes."""

    __slots__ = ("_life",)
    _maker = "CollectedHeap.roots"

    def _set(self, handle: GcHandle, count: int) -> None:
        self._set_words(handle, count)
        with handle as c_gc:
            start = ffi.from_buffer(self._words)
            number = output_of(lib.sw_gc_add_roots, c_gc, start, self._words.nbytes)
            needs = (handle._life, handle._lock, handle._open, c_gc, int(number), self._words)
            self._life: Life | None = Life(_remove_soon, *needs)

    def _check_root(self) -> None:
        if self._life is None:
            raise StateError("the range of roots is closed; make another")

    def close(self) -> None:
        """Stop treating the words as roots; a second call does nothing."""
        life, self._life = self._life, None
        if life is not None:
            life.end()

    def __enter__(self) -> RootRange:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ShadowFrame(_Words):
    """Words that are roots inside a `with` statement: a frame of the thread's shadow stack."""

    __slots__ = ("_frame", "_owner", "_pushed")
    _maker = "CollectedHeap.frame"

    def _set(self, handle: GcHandle, count: int) -> None:
        self._set_words(handle, count)
        self._frame: Any = ffi.new("sw_gc_frame *")
        self._pushed = [False]  # a list, because the stack changes it, which outlives the frame
        self._owner = 0

    def _check_root(self) -> None:
        if not self._pushed[0] or self._owner != threading.get_ident():
            raise StateError("the frame is on no shadow stack of this thread; enter it by `with`")

    def __enter__(self) -> ShadowFrame:
        with self._handle as c_gc:
            shadow, frames = self._stack(c_gc)
            start = ffi.from_buffer(self._words)
            check(lib.sw_gc_shadow_push(shadow, self._frame, start, self._words.nbytes))
            frames.append((self._pushed, self._frame, self._words))
            self._pushed[0] = True
            self._owner = threading.get_ident()
        return self

    def _stack(self, c_gc: Any) -> tuple[Any, list[Any]]:
        """Return this thread's shadow stack, created at first use, and its frames."""
        handle, thread = self._handle, self._handle.thread
        if not hasattr(thread, "shadow"):
            shadow, frames = output_of(lib.sw_gc_shadow_create, c_gc), list[Any]()
            needs = (handle._life, handle._lock, handle._open, shadow, frames)
            thread.shadow = (shadow, frames, Life(_destroy_soon, *needs))
        return thread.shadow[0], thread.shadow[1]

    def __exit__(self, *error: object) -> None:
        """Pop the frame, and those above it, which were left without an exit."""
        if self._handle.closed:
            return
        with self._handle as c_gc:
            self._check_root()
            shadow, frames = self._stack(c_gc)
            check(lib.sw_gc_shadow_cut(shadow, self._frame))
            check(lib.sw_gc_shadow_pop(shadow, self._frame))
            while self._pushed[0]:
                _leave(frames.pop())
            self._words[:] = 0


def _leave(frame: tuple[list[bool], Any, Any]) -> None:
    """Note that a frame is on no stack."""
    frame[0][0] = False
    ffi.memmove(frame[1], bytes(ffi.sizeof("sw_gc_frame")), ffi.sizeof("sw_gc_frame"))


# The first argument of these callbacks keeps the collector alive; the last, what it reads.


def _remove_soon(_: Life, lock: CallLock, *roots: Any) -> None:
    lock.soon(functools.partial(_remove, *roots))


def _remove(is_open: list[bool], c_gc: Any, number: int, _: Any) -> None:
    if is_open[0]:
        lib.sw_gc_remove_roots(c_gc, number)


def _destroy_soon(_: Life, lock: CallLock, *stack: Any) -> None:
    lock.soon(functools.partial(_destroy, *stack))


def _destroy(is_open: list[bool], shadow: Any, frames: list[Any]) -> None:
    if is_open[0]:
        lib.sw_gc_shadow_destroy(shadow)
    while frames:
        _leave(frames.pop())
