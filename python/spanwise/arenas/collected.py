# SPDX-License-Identifier: Apache-2.0
"""Arenas and collected heaps: heaps that mark from an arena, and objects whose end frees one.

A heap must not begin a cycle while another thread is inside a call on an arena that it marks from,
and an object's finalizer in C may free an arena. So each call on an arena holds the locks of its
heaps. Lock order: the arena's, then those of the heaps by their numbers, then `kept.ending`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Count, Owner
from spanwise.arenas.kept import Kept, ending, free_soon
from spanwise.errors import HeapClosedError, StateError
from spanwise.gc.handle import GcHandle
from spanwise.gc.heap import CollectedHeap
from spanwise.gc.objects import CollectedObject


def _no_heap() -> None:
    """Return None, as a weak reference to a heap that is gone."""


class CollectedArena(Owner):
    """Base of `Arena`: its end, and what concerns collected heaps."""

    def __init__(self, c_arena: Any) -> None:
        ref = ffi.new("sw_arena_ref *")
        super().__init__(c_arena, free_soon, ref)
        self._kept = Kept(c_arena, self._life, ref)
        self._handlers = Count()  # of numpy, whose arrays have memory of the arena (arrays.py)
        self._seen_by: CollectedHeap | None = None
        # The heap of the object that the arena is freed with, and its address. The reference is
        # weak: without the heap, nothing collects the object.
        self._given_to: Callable[[], GcHandle | None] = _no_heap
        self._given_at = 0

    # --- the end ---

    @property
    def closed(self) -> bool:
        """Whether `close` was called, or the object of `free_with` was collected."""
        return self._c is None or self._kept.freed

    def close(self) -> None:
        """Free the arena and all its objects; a second call does nothing.

        Raises:
            BlockBusyError: an array of the arena is alive, or it is held; nothing changes.
        """
        with self._lock, self._standing(), ending:
            if self.closed:
                self._c = None
                return
            self._refuse_close()
            self._take_back()
            self._kept.end()
            self._c = None
            self._lock.at_exit(self._ending())

    def _open(self) -> Any:
        if self._c is not None and self._kept.freed:
            raise StateError("the Arena was freed with its object; make another")
        return super()._open()

    # --- heaps ---

    def attach(self, heap: CollectedHeap | None) -> None:
        """Let a collected heap mark from the arrays of `pointers`, which then keep objects alive.

        Attaching does not keep the arena alive: it is freed once neither it nor an array of it is
        referenced. Another heap may attach after `attach(None)`, or once the first one is closed.

        Args:
            heap: the heap that marks from the arena; None: no heap.

        Raises:
            StateError: the arena is closed, another heap is attached, or an `ArenaAllocator` or an
                array made with one is alive.
            HeapClosedError: the heap is closed.
        """
        _lib.check_type(heap, (CollectedHeap, type(None)), "heap")
        handle = None if heap is None else heap._handle
        with self._using(handle) as c_arena:
            seen_by = self._seen_by
            if heap is not None and seen_by is not None and seen_by is not heap:
                raise StateError("another heap is attached to the arena; call attach(None)")
            if handle is not None:
                if self._handlers.alive:
                    raise StateError("numpy allocates in the arena, or has arrays there")
                with handle as c_gc:
                    check(lib.sw_arena_attach(c_arena, c_gc))
            elif seen_by is not None:
                check(lib.sw_arena_attach(c_arena, ffi.NULL))
            self._seen_by = heap

    def free_with(self, target: CollectedObject | None) -> None:
        """Free the arena when an object of a collected heap is collected, as Go's arenas are.

        The object's finalizer is replaced by one that frees the arena. A cycle that finds the
        object unreachable makes it due, and `CollectedHeap.run_finalizers()` frees the arena. Then
        `closed` is True, and every other call raises StateError. While an array of the arena is
        alive, or it is held, it is not freed: a later cycle makes the finalizer due again.

        >>> heap, arena = CollectedHeap(), Arena()
        >>> request = heap.new(heap.add_type("request", 8))
        >>> arena.free_with(request)
        >>> del request
        >>> heap.collect().due_finalizers, heap.run_finalizers(), arena.closed
        (1, 1, True)

        The object keeps the arena, even if nothing else refers to it. It gives the arena back,
        which is then freed like any other, when the object is freed by `CollectedObject.free()`,
        gets another finalizer or arena, or its heap is closed. An array of `pointers` that reaches
        the object keeps it alive, so the arena is never freed.

        Args:
            target: the object, instead of an earlier one; None: take the arena back.

        Raises:
            StateError: the arena is closed.
            BlockFreedError: the object was freed or released.
            HeapClosedError: the heap of the object is closed.
            InvalidError: the object may share its block (`CollectedHeap(tiny=True)`).
            OutOfMemoryError: no memory; an earlier object keeps the arena.
        """
        _lib.check_type(target, (CollectedObject, type(None)), "target")
        with self._using(None if target is None else target._handle) as c_arena:
            if target is None:
                self._take_back()
                return
            handle, address = target._handle, target.address
            with handle as c_gc:
                target._check_kept()
                self._kept.watch()
                before = handle.arenas.get(address)
                handle.arenas[address] = self._kept
                try:
                    at = ffi.cast("void *", address)
                    check(lib.sw_arena_free_with(c_arena, c_gc, at))
                except BaseException:
                    handle.give_arena(address, before)
                    raise
                handle.finalizers.pop(address, None)
                if (handle, address) != (self._given_to(), self._given_at):
                    self._forget_object()
            self._given_to, self._given_at = weakref.ref(handle), address

    def _take_back(self) -> None:
        """Undo `free_with`. The caller is inside `_standing()`."""
        if self._given_to() is not None:
            check(lib.sw_arena_free_with(self._c, ffi.NULL, ffi.NULL))
            self._forget_object()

    def _forget_object(self) -> None:
        """Remove the finalizer of the object that had the arena, unless it has another."""
        handle, self._given_to = self._given_to(), _no_heap
        if handle is not None and not handle.closed:
            handle.take_arena(self._given_at, self._kept)

    @contextmanager
    def _using(self, heap: GcHandle | None = None) -> Iterator[Any]:
        """Yield the C arena for calls, inside `_standing`."""
        with self._lock, self._standing(heap):
            yield self._open()

    @contextmanager
    def _standing(self, heap: GcHandle | None = None) -> Iterator[None]:
        """Keep heaps from running a cycle or a finalizer inside the block.

        These are the attached heap and that of the object of `free_with`, unless they are closed,
        and `heap`. Their locks are taken in the order of the heaps' numbers.
        """
        attached = None if self._seen_by is None else self._seen_by._handle
        given_to = self._given_to()
        handles = {one.id: one for one in (attached, given_to, heap) if one is not None}
        with ExitStack() as stack:
            for _, one in sorted(handles.items()):
                try:
                    stack.enter_context(one)
                except HeapClosedError:
                    if one is heap:
                        raise
                    if one is attached:
                        self._seen_by = None
                    if one is given_to:
                        self._given_to = _no_heap
            yield
