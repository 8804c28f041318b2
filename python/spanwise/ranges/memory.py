# SPDX-License-Identifier: Apache-2.0
"""Multi-buffer memory: a list of buffers that stay where they are (docs/design/buffer.md)."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Iterator
from typing import Any, Protocol, SupportsIndex

from spanwise._lib import check, check_type, ffi, lib
from spanwise._owner import Life, Uncopied
from spanwise.errors import InvalidError, StateError

PIECES_MAX = 64  # buffers of one system call, SW_OS_BUFFERS_MAX


class HasFileno(Protocol):
    """A file, socket or pipe."""

    def fileno(self) -> int:
        """Its descriptor."""


def descriptor_of(file: int | HasFileno) -> int:
    """A descriptor, or that of a file."""
    if isinstance(file, int):
        return file
    if not hasattr(file, "fileno"):
        raise TypeError(f"file must be a descriptor or have fileno(), not {type(file).__name__}")
    return file.fileno()


def as_bytes_view(buffer: Any, what: str = "buffer") -> memoryview:
    """The bytes of an object with the buffer protocol, where they are.

    Raises:
        TypeError: it has no buffer protocol.
        InvalidError: its bytes are not contiguous.
    """
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

    Whatever has the buffer protocol can be pushed: bytes, bytearray, numpy arrays, mmap and so on.
    It stays alive, and a bytearray keeps its length, while the memory refers to it. `views`
    gives the buffers out again, as memoryviews of the very same bytes; a `Reader` reads them.

    Example:
        message = Memory(header, body)
        length = Reader(message).read_be(4)
    """

    def __init__(self, *buffers: Any) -> None:
        """Lists buffers.

        Raises:
            TypeError: one of them has no buffer protocol.
            InvalidError: the bytes of one are not contiguous.
        """
        if hasattr(self, "_life"):
            raise TypeError(f"this {type(self).__name__} is made already; make another")
        self._lock = threading.RLock()
        self._c = ffi.new("sw_memory *")
        lib.sw_memory_init(self._c, ffi.NULL)
        self._life = Life(lib.sw_memory_end, self._c)
        self._views: list[memoryview] = []
        self._kept: list[Any] = []  # keeps the bytes of each view from moving
        self.push(*buffers)

    # --- changes ---

    def push(self, *buffers: Any) -> None:
        """Adds buffers at the end, all or none.

        Raises:
            TypeError: one of them has no buffer protocol.
            InvalidError: the bytes of one are not contiguous.
        """
        self._add([as_bytes_view(buffer) for buffer in buffers])

    def append(self, other: Memory) -> None:
        """Adds the buffers of another memory, or of this one once more."""
        check_type(other, Memory, "other")
        self._add(other.views())

    def copy_from(self, other: Memory) -> None:
        """Adds a copy of another memory's bytes as one buffer."""
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
        """Puts another buffer in place of one. Readers of this memory are out of date.

        Args:
            index: from 0; negative: from the end.
            buffer: what has the buffer protocol.

        Raises:
            InvalidError: there is no such index, or the bytes are not contiguous.
            TypeError: it has no buffer protocol.
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
        """Forgets all buffers. Readers of this memory are out of date."""
        with self._lock:
            lib.sw_memory_reset(self._c)
            self._views.clear()
            self._kept.clear()

    # --- what is in it ---

    @property
    def size_bytes(self) -> int:
        """Bytes of all buffers together."""
        return int(self._c.size)

    def __len__(self) -> int:
        """How many buffers there are."""
        return int(self._c.count)

    def views(self) -> list[memoryview]:
        """The buffers, without a copy; as writable as the objects that were pushed.

        Each view is the caller's own: to release it does nothing to the memory.
        """
        with self._lock:
            return [view[:] for view in self._views]

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self.views())

    def __eq__(self, other: object) -> bool:
        """Whether both have as many buffers, of the same sizes with the same bytes."""
        if not isinstance(other, Memory):
            return NotImplemented
        return self.views() == other.views()

    __hash__ = None  # type: ignore[assignment]

    def to_bytes(self) -> bytes:
        """All bytes, copied."""
        return b"".join(self.views())

    __bytes__ = to_bytes

    def copy_to(self, buffer: Any) -> None:
        """Copies all bytes to the beginning of a writable buffer.

        Raises:
            LimitError: it is too short; nothing is copied then.
            InvalidError: its bytes are not contiguous, or it is read-only.
        """
        view = as_bytes_view(buffer)
        if view.readonly and view.nbytes:
            raise InvalidError(f"{type(buffer).__name__}: it is read-only")
        with self._lock:
            check(lib.sw_memory_copy_to(self._c, ffi.from_buffer(view), view.nbytes))

    # --- files ---

    def read_from(self, file: int | HasFileno) -> int:
        """Fills the buffers, in their order, by one readv of the first 64 that are not empty.

        Args:
            file: a descriptor, or what has one.

        Returns:
            Bytes that were read; 0: the end of the file.

        Raises:
            InvalidError: no buffer has bytes, or one is read-only.
            OSError: of the system.
        """
        descriptor = descriptor_of(file)
        views = [view for view in self.views() if view.nbytes][:PIECES_MAX]
        if not views:
            raise InvalidError("a memory without bytes: push the buffers that are to be filled")
        if any(view.readonly for view in views):
            raise InvalidError("a buffer of the memory is read-only: push a bytearray instead")
        return os.readv(descriptor, views)

    def __repr__(self) -> str:
        count = len(self)
        buffers = "1 buffer" if count == 1 else f"{count:,} buffers"
        return f"<Memory: {self.size_bytes:,} B in {buffers}>"

    # --- for readers ---

    def _drop_front(self, consumed: int) -> list[memoryview]:
        """Removes the first bytes from this object's lists, as C has done with its list.

        Returns:
            What went, buffer by buffer.
        """
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
