# SPDX-License-Identifier: Apache-2.0
"""Multi-buffer memory: a list of buffers that are not copied (docs/design/buffer.md)."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Iterator
from typing import Any, Protocol, SupportsIndex

from spanwise._lib import check, check_type, ffi, lib
from spanwise._owner import Life, Uncopied
from spanwise.errors import InvalidError, StateError

PIECES_MAX = 64  # buffers per system call, SW_OS_BUFFERS_MAX


class HasFileno(Protocol):
    """A file, socket or pipe."""

    def fileno(self) -> int:
        """Return its descriptor."""


def descriptor_of(file: int | HasFileno) -> int:
    """Return a descriptor, or the descriptor of a file."""
    if isinstance(file, int):
        return file
    if not hasattr(file, "fileno"):
        raise TypeError(f"file must be a descriptor or have fileno(), not {type(file).__name__}")
    return file.fileno()


def as_bytes_view(buffer: Any, what: str = "buffer") -> memoryview:
    """Return the bytes of an object with the buffer protocol, without a copy."""
    try:
        view = memoryview(buffer)
    except TypeError:
        kind = type(buffer).__name__
        raise TypeError(f"{what} must have the buffer protocol, not be {kind}") from None
    if not view.c_contiguous:
        raise InvalidError(f"{type(buffer).__name__}: its bytes are not contiguous; copy it first")
    return view.cast("B") if view.nbytes else memoryview(b"")


class Memory(Uncopied):
    """Bytes in several buffers. The buffers are shared with their owners, never copied.

    Any object with the buffer protocol can be pushed: bytes, bytearray, numpy arrays, mmap and so
    on. It stays alive, and a bytearray keeps its length, while the memory refers to it. `views`
    returns the buffers as memoryviews of the same bytes; a `Reader` reads them.

    >>> message = Memory(bytes([0, 0, 0, 4]), b"body")
    >>> Reader(message).read_be(4)
    4

    Args:
        buffers: objects with the buffer protocol.

    Raises:
        TypeError: one of them has no buffer protocol.
        InvalidError: the bytes of one are not contiguous.
    """

    def __init__(self, *buffers: Any) -> None:
        self._lock = threading.RLock()
        self._c = ffi.new("sw_memory *")
        lib.sw_memory_init(self._c, ffi.NULL)
        self._life = Life(lib.sw_memory_end, self._c)
        self._views: list[memoryview] = []
        self._kept: list[Any] = []  # pins the bytes of each view
        self.push(*buffers)

    # --- changes ---

    def push(self, *buffers: Any) -> None:
        """Append buffers, all or none.

        Raises:
            TypeError: one of them has no buffer protocol.
            InvalidError: the bytes of one are not contiguous.
        """
        self._add([as_bytes_view(buffer) for buffer in buffers])

    def append(self, other: Memory) -> None:
        """Append the buffers of another memory, or of this one again."""
        check_type(other, Memory, "other")
        self._add(other.views())

    def copy_from(self, other: Memory) -> None:
        """Append a copy of another memory's bytes as one buffer."""
        check_type(other, Memory, "other")
        self.push(other.to_bytes())

    def _add(self, views: list[memoryview]) -> None:
        kept = [ffi.from_buffer(view) for view in views]
        pieces = ffi.new("sw_buffer[]", len(views))
        for piece, view, address in zip(pieces, views, kept, strict=True):
            piece.bytes = ffi.cast("uint8_t *", address)
            piece.size = view.nbytes
        with self._lock:
            check(lib.sw_memory_push_buffers(self._c, pieces, len(views)))
            self._views += views
            self._kept += kept

    def update(self, index: SupportsIndex, buffer: Any) -> None:
        """Replace a buffer. Readers of this memory become invalid.

        Args:
            index: from 0; a negative index counts from the end.
            buffer: an object with the buffer protocol.

        Raises:
            InvalidError: there is no such index, or the bytes are not contiguous.
            TypeError: buffer has no buffer protocol.
        """
        check_type(index, SupportsIndex, "index")
        place, view = operator.index(index), as_bytes_view(buffer)
        with self._lock:
            if not -len(self._views) <= place < len(self._views):
                raise InvalidError(f"index {place} in a memory of {len(self._views)} buffers")
            kept = ffi.from_buffer(view)
            address = ffi.cast("uint8_t *", kept)
            check(lib.sw_memory_update(self._c, place, address, view.nbytes))
            self._views[place] = view
            self._kept[place] = kept

    def reset(self) -> None:
        """Remove all buffers. Readers of this memory become invalid."""
        with self._lock:
            lib.sw_memory_reset(self._c)
            self._views.clear()
            self._kept.clear()

    # --- contents ---

    @property
    def size_bytes(self) -> int:
        """Bytes of all buffers together."""
        return int(self._c.size)

    def __len__(self) -> int:
        """Return the number of buffers."""
        return int(self._c.count)

    def views(self) -> list[memoryview]:
        """Return the buffers, without a copy; they are as writable as the pushed objects.

        The caller owns each view, and releasing it does not affect the memory.
        """
        with self._lock:
            return [view[:] for view in self._views]

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self.views())

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same number of buffers, with the same sizes and bytes."""
        if not isinstance(other, Memory):
            return NotImplemented
        return self.views() == other.views()

    __hash__ = None  # type: ignore[assignment]

    def to_bytes(self) -> bytes:
        """Return a copy of all bytes."""
        return b"".join(self.views())

    __bytes__ = to_bytes

    def copy_to(self, buffer: Any) -> None:
        """Copy all bytes to the beginning of a writable buffer.

        Raises:
            LimitError: the buffer is too short, and nothing was copied.
            InvalidError: the buffer is not contiguous, or is read-only.
        """
        view = as_bytes_view(buffer)
        if view.readonly and view.nbytes:
            raise InvalidError(f"{type(buffer).__name__}: it is read-only")
        with self._lock:
            check(lib.sw_memory_copy_to(self._c, ffi.from_buffer(view), view.nbytes))

    # --- files ---

    def read_from(self, file: int | HasFileno) -> int:
        """Fill the buffers in order, by one readv into the first 64 that are not empty.

        Args:
            file: a descriptor, or an object with fileno().

        Returns:
            The number of bytes read; 0 at the end of the file.

        Raises:
            InvalidError: no buffer has bytes, or one is read-only.
            OSError: the system call failed.
        """
        descriptor = descriptor_of(file)
        views = [view for view in self.views() if view.nbytes][:PIECES_MAX]
        if not views:
            raise InvalidError("the memory has no bytes: push buffers to fill")
        if any(view.readonly for view in views):
            raise InvalidError("a buffer of the memory is read-only: push a bytearray instead")
        return os.readv(descriptor, views)

    def __repr__(self) -> str:
        count = len(self)
        buffers = "1 buffer" if count == 1 else f"{count:,} buffers"
        return f"<Memory: {self.size_bytes:,} B in {buffers}>"

    # --- for readers ---

    def _drop_front(self, consumed: int) -> list[memoryview]:
        """Remove the first bytes from this object's lists, as C has done with its list."""
        parts: list[memoryview] = []
        while self._views and self._views[0].nbytes <= consumed:
            view = self._views.pop(0)
            del self._kept[0]
            consumed -= view.nbytes
            if view.nbytes:
                parts.append(view)
        if consumed:
            view = self._views[0]
            parts.append(view[:consumed])
            self._views[0] = view[consumed:]
            self._kept[0] = ffi.from_buffer(self._views[0])
        if len(self._views) != self._c.count:
            raise StateError("the lists of a memory differ")
        return parts
