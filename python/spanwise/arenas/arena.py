# SPDX-License-Identifier: Apache-2.0
"""Arenas and their savepoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from spanwise import _format, _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Count, Life, Made, array_at, end_body, refuse_views
from spanwise.arenas.chunks import SharedChunks
from spanwise.arenas.collected import CollectedArena
from spanwise.arenas.kept import ending, pinned
from spanwise.errors import BlockBusyError, InvalidError, StateError
from spanwise.results.rows import Result

MODES = ("default", "off", "auto", "force")
"""The source of objects, in the order of sw_arena_mode; "default" means as in SPANWISE_ARENA."""


@dataclass(frozen=True)
class ArenaStats(Result):
    """The counters of an arena.

    Attributes:
        chunks: number of chunks.
        chunk_bytes: bytes of all chunks, committed but not necessarily resident. Without own
            objects, the arena's metadata, and idle chunks, which all arenas share
            (`Arena.pool_stats().idle_chunk_bytes`).
        used_bytes: bytes of the chunks that objects and alignment padding use; objects above a
            quarter of a chunk are usually in own_bytes instead. What an arena holds and does not
            use is chunk_bytes - used_bytes.
        slack_bytes: unused bytes in chunks other than the newest, which the arena does
            not use again. What is free in the newest chunk is not slack.
        own_objects: objects outside chunks: from the heap or, in mode "off", from malloc.
        own_bytes: requested bytes of these objects.
        fallbacks: objects from the heap because no chunk could be allocated.
        resets: calls of `reset`.
    """

    chunks: int
    chunk_bytes: int
    used_bytes: int
    slack_bytes: int
    own_objects: int
    own_bytes: int
    fallbacks: int
    resets: int


_tags: dict[str, Any] = {}


def _kept_tag(tag: str | None) -> Any:
    """Return a tag as a C string that is never freed."""
    if tag is None:
        return ffi.NULL
    _lib.check_type(tag, (str, type(None)), "tag")
    if "\0" in tag:
        raise InvalidError(f"tag {tag!r} holds a NUL character")
    return _tags.setdefault(tag, ffi.new("char[]", tag.encode()))


def _free_clone(clone: Any) -> None:
    lib.sw_free(clone)


class Arena(SharedChunks, CollectedArena):
    """Memory for arrays that are freed together, in one step.

    An array keeps its arena alive. While an array, or one derived from it, is alive, `reset` and
    `close` raise BlockBusyError (a BufferError), so no array reads freed memory: `del` arrays
    before the end of a `with` statement. If its body raises, the arena is freed with the last array
    instead. After `close`, every call raises StateError. `free_with` frees an arena with an object
    of a collected heap.

    Code that keeps an array's address (`array.ctypes.data`), such as a C library, can use the
    memory after its end. In an arena with `safe=True` that access prints a FREED_ARENA report, with
    the arena's tag and the stacks of its creation and end, and aborts the process (SIGABRT):

        spanwise: fatal: FREED_ARENA op=read ptr=0x7f2c9fa6fff7 size=40 heap=0 thread=4711
        spanwise: object belonged to an arena that was freed

    A call from Python costs more than the allocation. To compare times without that cost, serve
    messages in C: `from spanwise.lessons import service`, then `service.serve("arena")` and
    `service.serve("heap")`.

    >>> with Arena() as arena:
    ...     totals = arena.zeros(1000)
    ...     totals[:] = 1
    ...     del totals

    Args:
        mode: if a chunk is refused, "auto" takes objects from the heap and "force" raises;
            "off" uses malloc for each, for memory checkers; "default": see SPANWISE_ARENA.
        chunk_bytes: size of a chunk, a power of two from 4096 to 2^30.
        limit_bytes: limit of the bytes of all chunks; None: no limit. Objects above a
            quarter of a chunk may be objects of the heap, which do not count.
        safe: an access to the arena's memory after reset or close, by its address, prints a
            report and aborts the process (docs/design/arena.md).
        tag: name of the arena in reports and in an ArenaTracker; tags are never freed.

    Raises:
        InvalidError: an argument is not within these limits.
        UnsupportedError: the arena is safe, but has mode "off" or the system reports no faults.
    """

    def __init__(
        self,
        *,
        mode: str = "default",
        chunk_bytes: int = 65536,
        limit_bytes: int | None = None,
        safe: bool = False,
        tag: str | None = None,
    ) -> None:
        options = _lib.options_of(
            "sw_arena_options",
            mode=_lib.as_choice(mode, "mode", MODES),
            chunk_bytes=_lib.as_index(chunk_bytes, "chunk_bytes"),
            safe=int(safe),
            locked=1,
            tag=_kept_tag(tag),
        )
        if limit_bytes is not None:
            options.limit_bytes = max(_lib.as_index(limit_bytes, "limit_bytes"), 1)
        super().__init__(_lib.output_of(lib.sw_arena_create, options))
        self._arrays = Count()
        self._levels: list[Count] = []  # of each savepoint: the arrays made since

    # --- the end ---

    def _refuse_close(self) -> None:
        if self._kept.holds.alive:
            raise BlockBusyError("the arena is held; leave the `with` of hold() or pin()")
        self._refuse_handlers("its memory goes")
        refuse_views(self._arrays.alive, "arrays of the arena", "its memory goes")

    def _refuse_handlers(self, before: str) -> None:
        if self._handlers.alive:
            raise BlockBusyError(
                f"numpy allocates in the arena; before {before} leave the `with` of ArenaAllocator,"
                " and delete the arrays made there"
            )

    def reset(self) -> None:
        """Free all objects; the arena keeps one chunk for new ones.

        >>> arena = Arena()
        >>> size = len(arena.alloc(1000))
        >>> arena.reset()
        >>> arena.stats().used_bytes, arena.stats().chunks
        (0, 1)

        Raises:
            BlockBusyError: an array of the arena is alive; the arena does not change.
        """
        with self._using() as c_arena, ending:
            self._refuse_close()
            check(lib.sw_arena_reset(c_arena))
            self._levels.clear()
            if self._kept.ref.arena != ffi.NULL:
                self._kept.watch()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Return a context manager in which `reset` and `close` raise BlockBusyError.

        >>> arena = Arena()
        >>> with arena.hold():
        ...     arena.close()
        Traceback (most recent call last):
        spanwise.errors.BlockBusyError: the arena is held; leave the `with` of hold() or pin()
        """
        with self._using():
            life = self._kept.hold(self._kept.holds.taken())
        try:
            yield
        finally:
            life.end()

    @staticmethod
    @contextmanager
    def pin(target: NDArray[Any] | memoryview | SupportsIndex) -> Iterator[None]:
        """Return a context manager that holds the arena which has an object, as `hold` does.

        It is for code that was given an array or an address, and not the arena:

        >>> arena = Arena()
        >>> view = arena.alloc(100)
        >>> address = view.ctypes.data  # what a C library would keep
        >>> with Arena.pin(address + 50):
        ...     del view
        ...     arena.close()
        Traceback (most recent call last):
        spanwise.errors.BlockBusyError: the arena is held; leave the `with` of hold() or pin()
        >>> arena.close()
        >>> with Arena.pin(address):
        ...     pass  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        spanwise.errors.InvalidError: target 0x... is in no chunk of a live arena; give an array ...

        Args:
            target: an array or memoryview that the arena returned, or one derived from it; or an
                address in a chunk. An address, or an array that numpy made (`ArenaAllocator`), is
                not found outside chunks, where objects above a quarter of a chunk and all objects
                of mode "off" are.

        Raises:
            InvalidError: no live arena has the memory; it is a ValueError.
            TypeError: the target is neither an array nor a memoryview nor an integer.
        """
        life = pinned(target)
        try:
            yield
        finally:
            life.end()

    def savepoint(self) -> Savepoint:
        """Return a savepoint, whose `rewind` frees all objects allocated after it.

        >>> with Arena() as arena:
        ...     kept = arena.make_slice(10)
        ...     with arena.savepoint():  # rewinds at the end
        ...         scratch = arena.make_slice(1000)
        ...         del scratch
        ...     print(arena.stats().used_bytes >= kept.nbytes)
        ...     del kept
        True

        Raises:
            OutOfMemoryError: there is no memory.
        """
        with self._using() as c_arena:
            made = Savepoint._make(self, _lib.output_of(lib.sw_arena_mark, c_arena))
            self._levels.append(made._arrays)
            return made

    # --- objects ---

    def alloc(
        self,
        size: SupportsIndex,
        *,
        align: SupportsIndex = 16,
        zero: bool = False,
        scan: bool = False,
    ) -> NDArray[np.uint8]:
        """Allocate `size` bytes and return them as an array of shape (size,), not a copy.

        Args:
            size: bytes.
            align: alignment in bytes, a power of two.
            zero: the memory reads as zero.
            scan: the object may hold pointers, which an attached heap marks from; zeroed.

        Raises:
            InvalidError: size is negative, or align is not a power of two.
            OutOfMemoryError, LimitError: as `zeros`.

        >>> with Arena() as arena:
        ...     arena.alloc(3, zero=True).tolist()
        [0, 0, 0]
        """
        flags = (lib.SW_ZERO if zero else 0) | (lib.SW_SCAN if scan else 0)
        wanted, alignment = _lib.as_index(size, "size"), _lib.as_index(align, "align")
        return self._export(wanted, lambda c: lib.sw_arena_alloc(c, wanted, alignment, flags))

    def make_slice(self, count: SupportsIndex, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return an array of `count` elements, not zeroed.

        Raises:
            As `zeros`.

        >>> with Arena() as arena:
        ...     arena.make_slice(4, "i4").shape
        (4,)
        """
        kind, number = _plain(dtype), _lib.as_index(count, "count")
        size = _lib.as_index(number * kind.itemsize, "size")
        memory = self._export(
            size, lambda c: lib.sw_arena_make_slice(c, number, kind.itemsize, 64, 0)
        )
        array: NDArray[Any] = np.ndarray((number,), kind, buffer=memory)
        return array

    def clone(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of an array in the process's heap, which outlives the arena.

        Raises:
            InvalidError: the type holds Python objects.
            OutOfMemoryError: there is no memory.

        >>> with Arena() as arena:
        ...     copy = arena.clone(arena.zeros(3))
        >>> copy
        array([0., 0., 0.])
        """
        _lib.check_type(array, np.ndarray, "array")
        kind, source = _plain(array.dtype), np.ascontiguousarray(array)
        with self._using() as c_arena:
            from_ = _lib.pointer(source, "void *")
            memory = lib.sw_arena_clone(c_arena, from_, source.nbytes, 0)
            if memory == ffi.NULL:
                check(lib.sw_last_error().status)
            address = int(ffi.cast("uintptr_t", memory))
            raw = array_at(address, source.nbytes, Life(_free_clone, memory))
        copy: NDArray[Any] = np.ndarray(array.shape, kind, buffer=raw)
        return copy

    def zeros(self, shape: int | Sequence[int], dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return an array of zeros in the arena, aligned to 64 bytes.

        Args:
            shape: the length, or the length of each axis.
            dtype: type of the elements; no Python objects.

        Raises:
            InvalidError: a length is negative, or the type holds Python objects.
            OutOfMemoryError: there is no memory.
            LimitError: the limit is reached, in mode "force" or in a safe arena.

        >>> arena = Arena()
        >>> arena.zeros((2, 3), "i4").tolist()
        [[0, 0, 0], [0, 0, 0]]
        """
        return self._array(shape, _plain(dtype), lib.SW_ZERO)

    def pointers(self, shape: int | Sequence[int]) -> NDArray[np.uint64]:
        """Return an array of addresses, initially 0, that an attached collected heap marks from.

        An element keeps an object alive if it is the object's address
        (`CollectedObject.address`) or an interior address. The collector reads the elements when a
        cycle begins. They may be written at any time, with one exception: an element that is the
        only pointer to an object must not change while another thread calls `collect` or `start`.

        Args:
            shape: the length, or the length of each axis.

        Raises:
            As `zeros`.

        >>> heap, arena = CollectedHeap(), Arena()
        >>> arena.attach(heap)
        >>> words = arena.pointers(10)
        >>> words[3] = heap.new(heap.add_type("leaf", 8)).address
        >>> heap.collect().freed_objects
        0
        >>> words[3] = 0
        >>> heap.collect().freed_objects
        1
        """
        return self._array(shape, np.dtype(np.uint64), lib.SW_SCAN)

    def _array(self, shape: int | Sequence[int], kind: np.dtype[Any], flags: int) -> NDArray[Any]:
        axes = shape if isinstance(shape, Sequence) else (shape,)
        lengths = tuple(_lib.as_index(length, "shape") for length in axes)
        size = _lib.as_index(math.prod(lengths) * kind.itemsize, "size")
        memory = self._export(size, lambda c: lib.sw_arena_alloc(c, size, 64, flags))
        array: NDArray[Any] = np.ndarray(lengths, kind, buffer=memory)
        return array

    def _export(self, size: int, alloc: Callable[[Any], Any]) -> NDArray[np.uint8]:
        """Return bytes that keep the arena allocated until the last array over them is gone."""
        with self._using() as c_arena:
            counted = self._arrays.taken()
            if self._levels:
                counted = self._levels[-1].taken(counted)
            life = self._kept.hold(counted)
            del counted  # the traceback of an error refers to this frame
            memory = alloc(c_arena)
            if memory == ffi.NULL:
                life.end()
                check(lib.sw_last_error().status)
            return array_at(int(ffi.cast("uintptr_t", memory)), size, life, self._kept)

    # --- figures ---

    def stats(self) -> ArenaStats:
        """Return a snapshot of the counters."""
        with self._using() as c_arena:
            return ArenaStats(**_lib.struct_dict(_lib.output_of(lib.sw_arena_get_stats, c_arena)))

    def __repr__(self) -> str:
        try:
            stats = self.stats()
        except StateError:
            return "<Arena, closed>"
        used = f"{stats.used_bytes:,} of {stats.chunk_bytes:,} B used"
        if stats.own_objects:
            outside = _format.plural(stats.own_objects, "object")
            used += f", {outside} outside: {stats.own_bytes:,} B"
        return f"<Arena of {_format.plural(stats.chunks, 'chunk')}, {used}>"


def _plain(dtype: DTypeLike) -> np.dtype[Any]:
    """Return a numpy type without Python objects."""
    try:
        kind: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"dtype: {error}") from None
    if kind.hasobject:
        raise InvalidError(f"type {kind} holds Python objects, which an arena cannot contain")
    return kind


# --- savepoints -----------------------------------------------------------------------------------


class Savepoint(Made):
    """A position in the allocations of an arena; a `with` statement rewinds to it at its end."""

    __slots__ = ("_arena", "_arrays", "_c")
    _maker = "Arena.savepoint"

    def _set(self, arena: Arena, c_savepoint: Any) -> None:
        self._arena = arena
        self._arrays = Count()
        self._c = c_savepoint

    def rewind(self) -> None:
        """Free all objects and savepoints created after this one, and the savepoint.

        >>> arena = Arena()
        >>> begin = arena.savepoint()
        >>> size = len(arena.alloc(1000))
        >>> begin.rewind()
        >>> arena.stats().used_bytes
        0

        Raises:
            BlockBusyError: an array created after it is alive; nothing changes.
            StateError: it was freed before: by itself, with an earlier one, or by a reset.
        """
        arena = self._arena
        with arena._using() as c_arena:
            levels = arena._levels
            at = next((i for i, one in enumerate(levels) if one is self._arrays), None)
            if at is None:
                raise StateError("the savepoint was freed before; make another")
            arena._refuse_handlers("rewinding")
            alive = sum(one.alive for one in levels[at:])
            refuse_views(alive, "arrays created after the savepoint", "rewinding to it")
            check(lib.sw_arena_release(c_arena, self._c))
            del levels[at:]

    def __repr__(self) -> str:
        level = next((i for i, one in enumerate(self._arena._levels) if one is self._arrays), None)
        return "<Savepoint: freed>" if level is None else f"<Savepoint {level}>"

    def __enter__(self) -> Savepoint:
        return self

    def __exit__(self, *error: object) -> None:
        end_body(self.rewind, error[0] is not None)
