# SPDX-License-Identifier: Apache-2.0
"""Read other tools' files: decompress them within a limit, and turn calls into operations."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise._lib import OPS_DTYPE, lib
from spanwise.errors import (
    InvalidError,
    LimitError,
    SpanwiseError,
    TraceFormatError,
    UnsupportedError,
)
from spanwise.results.files import READING_ERRORS, reading, what_is_wrong

# --- content --------------------------------------------------------------------------------------
#
# gzip compresses a thousand bytes to one, and zstd even better, so a file of 2 MB may decompress to
# gigabytes. The default limit is UNPACKED_MULTIPLE times the file's size, at least UNPACKED_FLOOR
# bytes. Lists of calls are read line by line, never held whole.

UNPACKED_FLOOR = 64 << 20
UNPACKED_MULTIPLE = 64

HEAD_BYTES = 1 << 16
"""Bytes of a file that are enough to detect its format."""

_CHUNK = 1 << 18
_LINE_BYTES_MAX = 1 << 20
_LINE = re.compile(rb"[^\n]+")


class Content:
    """A file's content, readable any number of times, one pass at a time. It must be closed.

    Attributes:
        name: of the file, without its directory.
        packed: "gzip", "zstd" or "zip"; "": not compressed.
        line: number of the last line from `lines`; 0 before the first.
        cut: whether that line has no end.
    """

    def __init__(self, path: str | os.PathLike[str], unpacked_max: int | None = None) -> None:
        self._path = Path(path)
        self.name = self._path.name
        self.line = 0
        self.cut = False
        self._file: BinaryIO = _seekable(self._path)
        begin = self._file.read(4)
        self.packed = next((kind for kind, magic in _MAGICS.items() if begin.startswith(magic)), "")
        size = self._file.seek(0, os.SEEK_END)
        usual = max(UNPACKED_FLOOR, UNPACKED_MULTIPLE * size)
        self._unpacked_max = usual if unpacked_max is None else unpacked_max

    def __enter__(self) -> Content:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def reading(self) -> AbstractContextManager[None]:
        """Return a context that adds file name and position to errors of a block."""
        return reading(self.name, self.place)

    def place(self) -> str:
        """Return the last line read; "" if the content is not read by lines."""
        return f"line {self.line}" if self.line else ""

    @cached_property
    def head(self) -> bytes:
        """The first HEAD_BYTES."""
        found = b""
        for chunk in self._chunks():
            found += chunk
            if len(found) >= HEAD_BYTES:
                break
        return found[:HEAD_BYTES]

    def whole(self) -> bytes:
        """Return the whole content."""
        self.line = 0
        return b"".join(self._chunks())

    def lines(self) -> Iterator[bytes]:
        """Yield the non-empty lines without their line ends."""
        count, rest, self.cut = 0, b"", False
        for chunk in self._chunks():
            part = rest + chunk
            whole, rest = part[: (end := part.rfind(b"\n") + 1)], part[end:]
            at, number = 0, count + 1
            for found in _LINE.finditer(whole):
                number, at = number + whole.count(b"\n", at, found.start()), found.start()
                self.line = number
                yield found[0]
            count += whole.count(b"\n")
            if len(rest) > _LINE_BYTES_MAX:
                raise TraceFormatError(
                    f"{self.name}: line {count + 1} is longer than {_format.size(_LINE_BYTES_MAX)},"
                    " which no call is"
                )
        if rest:
            self.line, self.cut = count + 1, True
            yield rest

    def _chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks."""
        self._file.seek(0)
        if not self.packed:
            yield from iter(partial(self._read, _CHUNK), b"")
            return
        done = 0
        parts = _UNPACK[self.packed](self._file, self.name)
        while chunk := self._next(parts):
            done += len(chunk)
            if done > self._unpacked_max:
                raise LimitError(
                    f"{self.name}: unpacks to more than {_format.size(self._unpacked_max)}; if you"
                    " trust it, raise the limit (--unpacked-max, unpacked_max=)"
                )
            yield chunk

    def _read(self, count: int) -> bytes:
        try:
            return self._file.read(count)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def _next(self, parts: Iterator[bytes]) -> bytes:
        try:
            return next(parts, b"")
        except SpanwiseError:
            raise
        except (OSError, zipfile.BadZipFile, *READING_ERRORS) as error:
            raise TraceFormatError(
                f"{self.name}: byte {self._file.tell()}: its {self.packed} stream is truncated or"
                f" damaged: {what_is_wrong(error)}"
            ) from None


def _seekable(path: Path) -> BinaryIO:
    """Open the file unbuffered, since a child may read from its descriptor."""
    file = path.open("rb", buffering=0)
    if file.seekable():
        return file
    with file:
        copy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  the caller closes it
        shutil.copyfileobj(file, copy)
    copy.seek(0)
    return copy


# --- decompression --------------------------------------------------------------------------------


def _gzip(file: BinaryIO, name: str) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as stream:
        yield from iter(partial(stream.read, _CHUNK), b"")


def _zstd(file: BinaryIO, name: str) -> Iterator[bytes]:
    program = shutil.which("zstd")
    if program is None:
        raise UnsupportedError(
            f"{name}: is compressed by zstd; install the program zstd, or decompress it"
        )
    with subprocess.Popen(
        [program, "-dcq"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            assert child.stdout is not None
            yield from iter(partial(child.stdout.read, _CHUNK), b"")
            if child.wait() != 0:
                raise EOFError(f"zstd ended with {child.returncode}")
        finally:
            child.kill()


def _zip(file: BinaryIO, name: str) -> Iterator[bytes]:
    with zipfile.ZipFile(file) as archive:
        files = [one for one in archive.infolist() if not one.is_dir()]
        if len(files) != 1:
            raise InvalidError(f"{name}: has {len(files)} files; give it one of them")
        if files[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UnsupportedError(f"{name}: is not compressed by deflate; decompress it first")
        with archive.open(files[0]) as stream:
            yield from iter(partial(stream.read, _CHUNK), b"")


_MAGICS = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd", "zip": b"PK\x03\x04"}
_UNPACK: dict[str, Callable[[BinaryIO, str], Iterator[bytes]]] = {
    "gzip": _gzip,
    "zstd": _zstd,
    "zip": _zip,
}


# --- addresses as objects -------------------------------------------------------------------------
#
# A free of an unknown address is skipped, a realloc of one is an allocation, and a live address is
# freed before it is allocated again, as in a recording (docs/design/trace.md).

STEP_NS = 1000
"""The time from one call to the next, in nanoseconds, if the file has no times."""

SIZE_MAX = (1 << 63) - 1
_BATCH = 1 << 16

Row = tuple[int, ...]
"""An operation: the fields of OPS_DTYPE in their order."""


class Addresses:
    """Live addresses and the ids of their objects; ids of freed objects are reused.

    Attributes:
        now_ns: the time of the next operations; it never decreases.
        thread: the thread of the next operations.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.thread = 0
        self._live: dict[int, int] = {}
        self._free_ids: list[int] = []
        self._next_id = 0

    def __contains__(self, address: int) -> bool:
        """Return whether an object lives there."""
        return address in self._live

    def advance(self, time_ns: int) -> None:
        """Advance the time to `time_ns`, unless it is later already."""
        self.now_ns = max(self.now_ns, checked_size(time_ns, "time"))

    def row(self, kind: int, number: int, size: int, align_log2: int = 0, flags: int = 0) -> Row:
        """Return an operation on an object, now and in this thread."""
        return self.now_ns, size, number, self.thread, 0, int(kind), align_log2, flags

    def alloc(self, address: int, size: int, align_log2: int = 0, flags: int = 0) -> list[Row]:
        """Return the operations of an allocation; none if it failed (address 0)."""
        if address == 0:
            return []
        before = self.free(address)
        if self._free_ids:
            number = self._free_ids.pop()
        else:
            number, self._next_id = self._next_id, self._next_id + 1
        self._live[address] = number
        return [*before, self.row(lib.SW_OP_ALLOC, number, size, align_log2, flags)]

    def free(self, address: int) -> list[Row]:
        """Return the operation of a free; none for an unknown address."""
        number = self._live.pop(address, None)
        if number is None:
            return []
        self._free_ids.append(number)
        return [self.row(lib.SW_OP_FREE, number, 0)]

    def realloc(self, address: int, old: int, size: int) -> list[Row]:
        """Return the operations of a realloc; to address 0 it failed, or freed if `size` is 0."""
        if address == 0:
            return self.free(old) if size == 0 else []
        number = self._live.pop(old, None)
        if number is None:
            return self.alloc(address, size)
        before = self.free(address)
        self._live[address] = number
        return [*before, self.row(lib.SW_OP_REALLOC, number, size)]


def checked_size(size: int, noun: str = "size") -> int:
    """Check and return the size or another number."""
    if size > SIZE_MAX:
        shown = size if size < 1 << 128 else "of more than 128 bits"
        raise ValueError(f"{noun} {shown} is too large")
    return size


class CallHistory:
    """Turns the calls of a file into operations, line by line.

    Attributes:
        done: number of calls so far.
        addresses: live addresses.
    """

    def __init__(self) -> None:
        self.done = 0
        self.addresses = Addresses()

    def call(self, found: re.Match[bytes]) -> list[Row]:
        """Return the operations of a line, or raise ValueError if it is not a valid call."""
        raise NotImplementedError


def read_calls(
    content: Content,
    pattern: re.Pattern[bytes],
    history: CallHistory,
    wanted: Callable[[bytes], bool] = bool,
) -> Iterator[list[Row]]:
    """Yield the operations of each line of a list of calls."""
    for line in content.lines():
        text = line.rstrip(b"\r")
        if not text.strip() or not wanted(text):
            continue
        found = pattern.fullmatch(text)
        if found is None or content.cut:
            what = "is cut short" if content.cut else "is not a call"
            shown = text[:60].decode("utf-8", "replace").strip()
            raise TraceFormatError(f"{content.name}: {content.place()} {what}: {shown!r}")
        yield history.call(found)
    if not history.done:
        raise InvalidError(f"{content.name}: has no call; nothing to make")


def batches(calls: Iterable[list[Row]]) -> Iterator[NDArray[np.void]]:
    """Yield the operations of calls as arrays of OPS_DTYPE, about 65,536 operations each."""
    rows: list[Row] = []
    for made in calls:
        rows += made
        if len(rows) >= _BATCH:
            yield np.array(rows, OPS_DTYPE)
            rows = []
    yield np.array(rows, OPS_DTYPE)
