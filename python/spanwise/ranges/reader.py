# SPDX-License-Identifier: Apache-2.0
"""A reader of multi-buffer memory, with the interface of a file and functions for protocols."""

from __future__ import annotations

import io
import operator
import os
from collections.abc import Iterator
from typing import Any, SupportsIndex

from spanwise import _lib
from spanwise._lib import check, ffi, lib
from spanwise._owner import Uncopied
from spanwise.errors import InvalidError, LimitError, StateError, TraceFormatError
from spanwise.ranges.memory import PIECES_MAX, HasFileno, Memory, as_bytes_view, descriptor_of

LINE_LOOK_BYTES = 128
"""Bytes that are first searched for the end of a line; doubled after each miss."""

LINE_LOOK_BYTES_MAX = 64 << 10


class Reader(Uncopied, io.RawIOBase):
    r"""Reads a memory, or one object with the buffer protocol, from the beginning.

    It is a file (`read`, `readinto`, `seek`, `tell`, iteration by lines; `io.BufferedReader` may
    wrap it), and has functions for protocols: `read_be`, `read_leb128`, `pieces`. The size is fixed
    when the reader is created. A call that fails consumes nothing. After the memory has changed,
    other than by appending, every call raises StateError.

    Several threads may share one reader; each call is atomic.

    >>> reader = Reader(bytes([0, 5]) + b"hello")
    >>> reader.read_bytes(reader.read_be(2))
    b'hello'

    Args:
        source: a Memory, or an object with the buffer protocol.

    Raises:
        TypeError: the source is neither.
        InvalidError: its bytes are not contiguous.
    """

    _made_with = "_memory"

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._memory = (
            source if isinstance(source, Memory) else Memory(as_bytes_view(source, "source"))
        )
        with self._memory._lock:
            self._c: Any = ffi.new("sw_reader *", lib.sw_reader_of(self._memory._c))

    def _open(self) -> Any:
        """Return the C reader; the caller holds the memory's lock."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if self._c.revision != self._memory._c.revision:
            raise StateError("the memory has changed since the reader was created; create another")
        return self._c

    # --- numbers ---

    def read_byte(self, mask: SupportsIndex = 0xFF) -> int:
        """Read one byte and mask it.

        Raises:
            ShortError: no byte is left.
        """
        _lib.check_type(mask, SupportsIndex, "mask")
        out, bits = ffi.new("uint8_t *"), operator.index(mask)
        with self._memory._lock:
            check(lib.sw_reader_read_byte(self._open(), out))
        return int(out[0]) & bits

    def read_be(self, size: SupportsIndex) -> int:
        """Read an unsigned big-endian number of 0 to 8 bytes.

        Raises:
            ShortError: fewer bytes are left.
            InvalidError: size is negative or above 8.
        """
        out, number = ffi.new("uint64_t *"), _lib.as_index(size, "size", 8)
        with self._memory._lock:
            check(lib.sw_reader_read_be(self._open(), number, out))
        return int(out[0])

    def read_leb128(self) -> int:
        r"""Read an unsigned LEB128 number: 7 bits per byte, lowest first, the last below 0x80.

        Padding with zero bits is accepted, up to 10 bytes, because AV1 and WebAssembly use it.

        Raises:
            ShortError: the data end within the number.
            InvalidError: the tenth byte is not the last (code FORMAT, "overlong"), or the number
                exceeds 64 bits (code LIMIT).

        >>> Reader(b"\xe5\x8e\x26").read_leb128(), Reader(b"\x81\x80\x00").read_leb128()
        (624485, 1)
        """
        out = ffi.new("uint64_t *")
        with self._memory._lock:
            try:
                check(lib.sw_reader_read_leb128(self._open(), out, ffi.NULL))
            except (TraceFormatError, LimitError) as error:
                raise InvalidError(str(error), error.code) from None
        return int(out[0])

    # --- bytes ---

    def read_bytes(self, size: SupportsIndex) -> bytes:
        """Read exactly `size` bytes, as a copy.

        Raises:
            ShortError: fewer are left.
            InvalidError: size is negative.
        """
        number = _lib.as_index(size, "size")
        with self._memory._lock:
            c_reader = self._open()
            out = bytearray(min(number, lib.sw_reader_length(c_reader)))
            check(lib.sw_reader_read_bytes(c_reader, ffi.from_buffer(out), number))
        return bytes(out)

    def read(self, size: int | None = -1) -> bytes:
        """Read up to `size` bytes, as a copy; all that are left if size is negative or None."""
        _lib.check_type(size, (int, type(None)), "size")
        with self._memory._lock:
            left = int(lib.sw_reader_length(self._open()))
            return self.read_bytes(left if size is None or size < 0 else min(size, left))

    def readall(self) -> bytes:
        """Read all bytes that are left."""
        return self.read()

    def readinto(self, buffer: Any) -> int:
        """Read into a writable buffer as many bytes as are left; return their number.

        Raises:
            InvalidError: the buffer is read-only, or is not contiguous.
        """
        view = as_bytes_view(buffer)
        if view.readonly and view.nbytes:
            raise InvalidError(f"{type(buffer).__name__}: it is read-only")
        with self._memory._lock:
            out = ffi.from_buffer(view)
            return int(lib.sw_reader_read(self._open(), out, view.nbytes))

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read through the next newline, as a copy; at most `size` bytes if size >= 0."""
        _lib.check_type(size, (int, type(None)), "size")
        left = _lib.SIZE_MAX if size is None or size < 0 else size
        parts: list[bytes] = []
        look = LINE_LOOK_BYTES
        with self._memory._lock:
            while left > 0:
                view = self._next(min(left, look))
                if view is None:
                    break
                part = bytes(view)
                end = part.find(b"\n") + 1
                if end:
                    self.unread(len(part) - end)
                    parts.append(part[:end])
                    break
                parts.append(part)
                left -= len(part)
                look = min(2 * look, LINE_LOOK_BYTES_MAX)
        return b"".join(parts)

    # --- position ---

    @property
    def left_bytes(self) -> int:
        """Bytes that are left."""
        with self._memory._lock:
            return int(lib.sw_reader_length(self._open()))

    @property
    def size_bytes(self) -> int:
        """Bytes when the reader was created, minus those that `clip_front` removed."""
        return int(self._c.size)

    def tell(self) -> int:
        """Return the number of consumed bytes."""
        with self._memory._lock:
            return int(lib.sw_reader_offset(self._open()))

    def skip(self, size: SupportsIndex) -> None:
        """Skip `size` bytes.

        Raises:
            ShortError: fewer are left.
            InvalidError: size is negative.
        """
        number = _lib.as_index(size, "size")
        with self._memory._lock:
            check(lib.sw_reader_skip(self._open(), number))

    def unread(self, size: SupportsIndex) -> None:
        """Go back by `size` bytes.

        Raises:
            InvalidError: the position would be before the beginning, or size is negative.
        """
        number = _lib.as_index(size, "size")
        with self._memory._lock:
            check(lib.sw_reader_unread(self._open(), number))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Seek to an offset from the beginning, the current position, or the end.

        Raises:
            InvalidError: the position is outside the memory, or whence is unknown.
        """
        _lib.check_type(offset, int, "offset")
        _lib.check_type(whence, int, "whence")
        with self._memory._lock:
            here, size = self.tell(), self.size_bytes
            origins = {os.SEEK_SET: 0, os.SEEK_CUR: here, os.SEEK_END: size}
            if whence not in origins:
                raise InvalidError(f"whence {whence}: use os.SEEK_SET, SEEK_CUR or SEEK_END")
            place = origins[whence] + offset
            if not 0 <= place <= size:
                raise InvalidError(f"offset {place}: must be 0 to {size}")
            if place >= here:
                self.skip(place - here)
            else:
                self.unread(here - place)
            return place

    def readable(self) -> bool:
        """Return True: the reader can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: the reader can seek."""
        return True

    # --- zero-copy reads ---

    def _next(self, limit: int) -> memoryview | None:
        """Consume and return bytes of one buffer; the caller holds the memory's lock."""
        piece = ffi.new("sw_buffer *")
        c_reader = self._open()
        if not lib.sw_reader_next(c_reader, limit, piece):
            return None
        view: memoryview = self._memory._views[c_reader.index]
        end = view.nbytes - int(lib.sw_reader_here(c_reader))
        return view[end - int(piece.size) : end]

    def current(self) -> memoryview:
        """Return what is left of the current buffer, without copying or consuming it."""
        with self._memory._lock:
            view = self._next(_lib.SIZE_MAX)
            if view is None:
                return memoryview(b"")
            self.unread(view.nbytes)
            return view

    def pieces(self, size: SupportsIndex | None = None) -> Iterator[memoryview]:
        """Consume bytes and yield them without a copy, buffer by buffer.

        Args:
            size: the maximum number of bytes; None: all that are left.

        Raises:
            InvalidError: size is negative.
        """
        limit = _lib.SIZE_MAX if size is None else _lib.as_index(size, "size")
        return self._each_piece(limit)

    def _each_piece(self, limit: int) -> Iterator[memoryview]:
        while limit > 0:
            with self._memory._lock:
                view = self._next(limit)
            if view is None:
                return
            limit -= view.nbytes
            yield view

    def clip_front(self) -> list[memoryview]:
        """Remove the consumed bytes from the memory; its other readers become invalid.

        Returns:
            The removed bytes, buffer by buffer, without a copy.
        """
        with self._memory._lock:
            consumed, memory = self.tell(), self._memory
            check(lib.sw_reader_clip_front(self._open(), memory._c, ffi.NULL, ffi.NULL))
            return memory._drop_front(consumed)

    def write_to(self, file: int | HasFileno, size: SupportsIndex | None = None) -> int:
        """Write bytes that are left to a file, by one writev of at most 64 buffers.

        Args:
            file: a descriptor, or an object with fileno().
            size: the maximum number of bytes; None: all that are left.

        Returns:
            The number of bytes written, which are consumed.

        Raises:
            InvalidError: size is negative.
            OSError: the system call failed.
        """
        limit = _lib.SIZE_MAX if size is None else _lib.as_index(size, "size")
        descriptor = descriptor_of(file)
        with self._memory._lock:
            pieces: list[memoryview] = []
            start = self.tell()
            for view in self._each_piece(limit):
                pieces.append(view)
                if len(pieces) == PIECES_MAX:
                    break
            self.unread(self.tell() - start)
            written = os.writev(descriptor, pieces) if pieces else 0
            self.skip(written)
            return written

    def __repr__(self) -> str:
        if self.closed:
            return "<Reader, closed>"
        try:
            return f"<Reader at {self.tell():,} of {self.size_bytes:,} B>"
        except StateError:
            return "<Reader of a memory that was changed>"
