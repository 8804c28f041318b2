# SPDX-License-Identifier: Apache-2.0
"""Exceptions for the status and misuse codes of the C library, each with the name of its code.

A test compares the lists of codes with include/spanwise/status.h.
"""

from __future__ import annotations

import os
from typing import ClassVar


class SpanwiseError(Exception):
    """Base of every exception of this package.

    Attributes:
        code: name of the sw_status or sw_misuse, e.g. "NOMEM" or "DOUBLE_FREE".
        errno: the error number of the system; None if the system did not fail.
        filename: the file that it concerns, or None.
    """

    code: str
    errno: int | None = None
    filename: str | None = None
    default_code: ClassVar[str] = "STATE"

    def __init__(
        self,
        message: str,
        code: str | None = None,
        *,
        errno: int | None = None,
        filename: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.errno = errno
        self.filename = None if filename is None else os.fspath(filename)

    def __str__(self) -> str:
        return str(self.args[0])


class OutOfMemoryError(SpanwiseError, MemoryError):
    """The system has no memory left, or the request is larger than any address space."""

    default_code = "NOMEM"


class LimitError(OutOfMemoryError):
    """A limit of a heap or of a count is reached."""

    default_code = "LIMIT"


class InvalidError(SpanwiseError, ValueError):
    """An argument is out of range."""

    default_code = "INVALID"


class StateError(SpanwiseError, RuntimeError):
    """The call is not possible in this state."""


class HeapClosedError(StateError):
    """The heap is closed."""


class BlockFreedError(StateError):
    """The block is already free; the code is DOUBLE_FREE if it was freed again."""


class OverlapError(StateError):
    """The memory to be freed is already free, wholly or in part."""

    default_code = "OVERLAP"


class OwnerError(StateError):
    """A thread used an object that belongs to another thread."""

    default_code = "OWNER"


class ShortError(SpanwiseError, EOFError):
    """Fewer bytes are left than a read needs. Nothing was consumed."""

    default_code = "SHORT"


class StackOverflowError(SpanwiseError, MemoryError):
    """A stack would exceed its limit. It is unchanged."""

    default_code = "OVERFLOW"


class EscapeError(StateError):
    """A pointer would outlive its target."""

    default_code = "ESCAPE"


class RecordingIOError(SpanwiseError, OSError):
    """The system refused to read or write a recording."""

    default_code = "IO"


class RecordingNotFoundError(RecordingIOError, FileNotFoundError):
    """The recording, or the directory for it, does not exist."""


class TraceFormatError(SpanwiseError, ValueError):
    """A recording is malformed; the message has the byte offset."""

    default_code = "FORMAT"


class UnsupportedError(SpanwiseError, RuntimeError):
    """The operation is not supported on this system."""

    default_code = "UNSUPPORTED"


class BlockBusyError(SpanwiseError, BufferError):
    """A view of the block's memory is alive, or a thread does not reach a safepoint."""

    default_code = "BUSY"


class MisuseError(SpanwiseError, RuntimeError):
    """A pointer was misused; raised before the C library would abort the process."""

    default_code = "FOREIGN"


class HandleError(MisuseError):
    """A heap, table or recording of the C library was used after its end, or ended too early."""

    default_code = "STALE_HANDLE"


class CorruptionError(MisuseError):
    """An invariant of the heap is broken."""

    default_code = "CORRUPT"


class ProgramError(SpanwiseError, ValueError):
    """A program cannot be recorded; the message says why."""

    default_code = "UNSUPPORTED"


class ProgramNotFoundError(ProgramError, FileNotFoundError):
    """The program was not found."""

    default_code = "INVALID"


STATUS_ERRORS: dict[str, type[SpanwiseError]] = {
    "NOMEM": OutOfMemoryError,
    "INVALID": InvalidError,
    "LIMIT": LimitError,
    "STATE": StateError,
    "IO": RecordingIOError,
    "FORMAT": TraceFormatError,
    "UNSUPPORTED": UnsupportedError,
    "BUSY": BlockBusyError,
    "OVERLAP": OverlapError,
    "OWNER": OwnerError,
    "SHORT": ShortError,
    "OVERFLOW": StackOverflowError,
    "ESCAPE": EscapeError,
}
"""sw_status (without SW_ and without OK) -> exception."""

MISUSE_ERRORS: dict[str, type[SpanwiseError]] = {
    "FOREIGN": MisuseError,
    "INTERIOR": MisuseError,
    "PAST_LAST_SLOT": MisuseError,
    "DOUBLE_FREE": BlockFreedError,
    "SIZE_MISMATCH": MisuseError,
    "WRONG_HEAP": MisuseError,
    "COLLECTED": MisuseError,
    "CORRUPT": CorruptionError,
    "NULL_HANDLE": HandleError,
    "STALE_HANDLE": HandleError,
    "FOREIGN_HANDLE": HandleError,
    "BUSY_HANDLE": HandleError,
    "ARENA": MisuseError,
    "FREED_ARENA": MisuseError,
    "DOUBLE_PUT": BlockFreedError,
    "NOT_JOINED": MisuseError,
    "OVERFLOW": CorruptionError,
    "WRITE_AFTER_FREE": CorruptionError,
    "USE_AFTER_FREE": CorruptionError,
    "OUT_OF_BOUNDS": CorruptionError,
    "MISMATCHED_FREE": MisuseError,
}
"""sw_misuse (without SW_MISUSE_ and without NONE) -> exception."""
