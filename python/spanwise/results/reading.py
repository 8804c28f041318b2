# SPDX-License-Identifier: Apache-2.0
"""The one place that turns whatever goes wrong while a file is read into a one-line error.

A reader checks what it knows can be wrong and says so. What it does not foresee (a number that no
array holds, a list where an object should be, a nesting without end) ends here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spanwise.errors import OutOfMemoryError, SpanwiseError, TraceFormatError

READING_ERRORS = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, RuntimeError, TypeError, ValueError),
    *(struct.error, zlib.error),
)
"""What damaged input raises; OverflowError, RecursionError and UnicodeError are among them."""

_SHOWN = 160


@contextmanager
def reading(
    name: str,
    place: Callable[[], str] = str,
    error: type[SpanwiseError] = TraceFormatError,
) -> Iterator[None]:
    """A block that reads a file. Errors of this package and of the system pass unchanged.

    Args:
        name: of the file.
        place: where the reader is, "line 7" for one; "": unknown.
        error: the exception to raise.

    Raises:
        OutOfMemoryError: the file needs more memory than there is.
        SpanwiseError: an `error`, for all other READING_ERRORS: "NAME: PLACE: what is wrong".
    """
    try:
        yield
    except SpanwiseError:
        raise
    except MemoryError:
        message = _line(name, place(), "needs more memory than there is")
        raise OutOfMemoryError(message) from None
    except READING_ERRORS as found:
        raise error(_line(name, place(), what_is_wrong(found))) from None


def is_text(value: Any) -> bool:
    """Whether a value from JSON is a text that can be written; half a surrogate pair cannot.

    Names that are no UTF-8 have their bytes as os.fsdecode keeps them, so these can.
    """
    if not isinstance(value, str):
        return False
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def what_is_wrong(found: Exception) -> str:
    """An error of Python's as the end of a sentence, on one line."""
    if isinstance(found, RecursionError):
        return "is nested too deeply"
    if isinstance(found, UnicodeDecodeError):
        return f"byte {found.start} is not {found.encoding}"
    if isinstance(found, KeyError):
        return f"lacks {found}"
    said = " ".join(str(found).split()) or type(found).__name__
    return said if len(said) <= _SHOWN else f"{said[: _SHOWN - 3]}..."


def _line(name: str, place: str, what: str) -> str:
    return ": ".join(part for part in (name, place, what) if part)
