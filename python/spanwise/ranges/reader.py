# SPDX-License-Identifier: Apache-2.0
"""A reader of bytes in several buffers, as a file and as what protocols need."""

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
"""Bytes in which a line's end is looked for at first; doubled where there is none."""

LINE_LOOK_BYTES_MAX = 64 << 10


class Reader(Uncopied, io.RawIOBase):
    r"""Reads a memory, or one object with the buffer protocol, from its beginning.

    It is a file (`read`, `readinto`, `seek`, `tell`, iteration by lines; `io.BufferedReader` and
    `struct` users may wrap it), and it has what protocols need: `read_be`, `read_leb128`, `pieces`.
    How much there is to read is fixed when it is made. A call that fails consumes nothing. Once the
    memory was changed, other than by additions at its end, each call is a StateError.

    Several threads may call one reader; each call is done whole.

    Example:
        reader = Reader(b"\x00\x05hello")
        reader.read_bytes(reader.read_be(2))
    """

    def __init__(self, source: Any) -> None:
        """Makes a reader.

        Args:
            source: a Memory, or what has the buffer protocol.

        Raises:
            TypeError: it is neither.
            InvalidError: its bytes are not contiguous.
        """
        super().__init__()
        self._memory = (
            source if isinstance(source, Memory) else Memory(as_bytes_view(source, "source"))
        )
        with self._memory._lock:
            self._c: Any = ffi.new("sw_reader *", lib.sw_reader_of(self._memory._c))

    def _open(self) -> Any:
        """The C reader; the memory's lock is held.

        Raises:
            ValueError: the reader is closed, as of every file.
        """
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if self._c.revision != self._memory._c.revision:
            raise StateError("the memory was changed since the reader was made: make another")
        return self._c

    # --- numbers ---

    def read_byte(self, mask: SupportsIndex = 0xFF) -> int:
        """One byte, masked.

        Raises:
            ShortError: none is left.
        """
        _lib.check_type(mask, SupportsIndex, "mask")
        out, bits = ffi.new("uint8_t *"), operator.index(mask)
        with self._memory._lock:
            check(lib.sw_reader_read_byte(self._open(), out))
        return int(out[0]) & bits

    def read_be(self, size: SupportsIndex) -> int:
        """An unsigned number of 0 to 8 bytes, the most significant first.

        Raises:
            ShortError: fewer bytes are left.
            InvalidError: size is negative or above 8.
        """
        out, number = ffi.new("uint64_t *"), _lib.as_index(size, "size", 8)
        with self._memory._lock:
            check(lib.sw_reader_read_be(self._open(), number, out))
        return int(out[0])

    def read_leb128(self) -> int:
        """An unsigned LEB128 number of at most 64 bits, in at most 10 bytes.

        Raises:
            ShortError: the number is not all there.
            InvalidError: it is over-long (code FORMAT) or has more than 64 bits (code LIMIT).
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
        """Exactly `size` bytes, copied.

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
        """Up to `size` bytes, copied; all that are left if it is negative or None."""
        _lib.check_type(size, (int, type(None)), "size")
        with self._memory._lock:
            left = int(lib.sw_reader_length(self._open()))
            return self.read_bytes(left if size is None or size < 0 else min(size, left))

    def readall(self) -> bytes:
        """All bytes that are left."""
        return self.read()

    def readinto(self, buffer: Any) -> int:
        """Fills a writable buffer as far as bytes are left; returns how many.

        Raises:
            InvalidError: it is read-only, or its bytes are not contiguous.
        """
        view = as_bytes_view(buffer)
        if view.readonly and view.nbytes:
            raise InvalidError(f"{type(buffer).__name__}: it is read-only")
        with self._memory._lock:
            out = ffi.from_buffer(view)
            return int(lib.sw_reader_read(self._open(), out, view.nbytes))

    def readline(self, size: int | None = -1, /) -> bytes:
        """The bytes up to and with the next newline, copied; at most `size` if 0 or more."""
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

    # --- places ---

    @property
    def left_bytes(self) -> int:
        """Bytes that are left."""
        with self._memory._lock:
            return int(lib.sw_reader_length(self._open()))

    @property
    def size_bytes(self) -> int:
        """Bytes when the reader was made, less what `clip_front` took out."""
        return int(self._c.size)

    def tell(self) -> int:
        """Bytes that were consumed."""
        with self._memory._lock:
            return int(lib.sw_reader_offset(self._open()))

    def skip(self, size: SupportsIndex) -> None:
        """Goes on by `size` bytes.

        Raises:
            ShortError: fewer are left.
            InvalidError: size is negative.
        """
        number = _lib.as_index(size, "size")
        with self._memory._lock:
            check(lib.sw_reader_skip(self._open(), number))

    def unread(self, size: SupportsIndex) -> None:
        """Goes back by `size` bytes.

        Raises:
            InvalidError: that is before the beginning, or size is negative.
        """
        number = _lib.as_index(size, "size")
        with self._memory._lock:
            check(lib.sw_reader_unread(self._open(), number))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Goes to an offset from the beginning, from here, or from the end.

        Raises:
            InvalidError: that is outside of what there is to read, or whence is none of these.
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
                raise InvalidError(f"offset {place}: the reader goes from 0 to {size}")
            if place >= here:
                self.skip(place - here)
            else:
                self.unread(here - place)
            return place

    def readable(self) -> bool:
        """True: it can be read."""
        return True

    def seekable(self) -> bool:
        """True: it can be sought."""
        return True

    # --- without a copy ---

    def _next(self, limit: int) -> memoryview | None:
        """The next bytes of one buffer; the memory's lock is held."""
        piece = ffi.new("sw_buffer *")
        c_reader = self._open()
        if not lib.sw_reader_next(c_reader, limit, piece):
            return None
        view: memoryview = self._memory._views[c_reader.index]
        end = view.nbytes - int(lib.sw_reader_here(c_reader))
        return view[end - int(piece.size) : end]

    def current(self) -> memoryview:
        """What is left of the current buffer, without a copy; it is not consumed."""
        with self._memory._lock:
            view = self._next(_lib.SIZE_MAX)
            if view is None:
                return memoryview(b"")
            self.unread(view.nbytes)
            return view

    def pieces(self, size: SupportsIndex | None = None) -> Iterator[memoryview]:
        """Consumes bytes and gives them without a copy, buffer by buffer.

        Args:
            size: at most so many bytes; None: all that are left.

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
        """Takes what was consumed out of the memory; other readers of it are out of date.

        Returns:
            What went, buffer by buffer, without a copy.
        """
        with self._memory._lock:
            consumed, memory = self.tell(), self._memory
            check(lib.sw_reader_clip_front(self._open(), memory._c, ffi.NULL, ffi.NULL))
            return memory._drop_front(consumed)

    def write_to(self, file: int | HasFileno, size: SupportsIndex | None = None) -> int:
        """Writes bytes that are left to a file, by one writev of at most 64 buffers.

        Args:
            file: a descriptor, or what has one.
            size: at most so many bytes; None: all that are left.

        Returns:
            Bytes that the system took; they are consumed.

        Raises:
            InvalidError: size is negative.
            OSError: of the system.
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
