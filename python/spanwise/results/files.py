# SPDX-License-Identifier: Apache-2.0
"""Files: written whole or not at all, checked before the work, and read with one-line errors."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from spanwise._lib import check_type
from spanwise.errors import InvalidError, OutOfMemoryError, SpanwiseError, TraceFormatError

# --- reading --------------------------------------------------------------------------------------
#
# A reader checks what it knows can be wrong and says so. What it does not foresee (a number that no
# array holds, a list where an object should be, a nesting without end) ends here.

READING_ERRORS = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, RuntimeError, TypeError, ValueError),
    *(struct.error, zlib.error),
)
"""What damaged input raises; OverflowError, RecursionError and UnicodeError are among them."""

_CLIPPED = 160


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
        message = _error_line(name, place(), "needs more memory than there is")
        raise OutOfMemoryError(message) from None
    except READING_ERRORS as found:
        raise error(_error_line(name, place(), what_is_wrong(found))) from None


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
    return said if len(said) <= _CLIPPED else f"{said[: _CLIPPED - 3]}..."


def _error_line(name: str, place: str, what: str) -> str:
    return ": ".join(part for part in (name, place, what) if part)


# --- writing --------------------------------------------------------------------------------------


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    r"""Writes a file that appears whole or not at all; a text in UTF-8.

    Bytes of names that are no UTF-8 become \udcXX, as they are shown.

    Raises:
        OSError: naming `path`; what was there before stays.
    """
    check_type(path, (str, bytes, os.PathLike), "path")
    with whole_file(path) as growing:
        if isinstance(content, str):
            content = content.encode("utf-8", "backslashreplace")
        growing.write_bytes(content)


def followed(path: Path) -> Path:
    """The path with links followed, so that a rename replaces the file and not a link to it."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file that appears at the end of the block, or not at all if that raises.

    A device or a pipe gets the bytes; a symbolic link stays, and its target is replaced.

    Yields:
        Where to write meanwhile: a name next to it with the same ending.

    Raises:
        OSError: naming `path`; what was there before stays.
    """
    place = Path(path)
    try:
        if place.exists() and not place.is_file() and not place.is_dir():
            with tempfile.TemporaryDirectory(prefix="spanwise-") as folder:
                growing = Path(folder) / place.name
                yield growing
                with growing.open("rb") as made, place.open("wb") as device:
                    shutil.copyfileobj(made, device)
            return
        target = followed(place)
        growing = target.with_name(f".{target.stem}.{os.getpid()}{place.suffix}")
        try:
            yield growing
            growing.replace(target)
        finally:
            with suppress(OSError):
                growing.unlink()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place)) from None


# --- checks before the work -----------------------------------------------------------------------

_MAGIC = b"\x89SWT\r\n\x1a\n"


def check_output(
    path: str | os.PathLike[str], *, replace: bool = False, json: bool = False
) -> None:
    """Refuses a file that could not be written, or that is a recording.

    Args:
        path: of the file; the system may have it already.
        replace: also a recording may be replaced.
        json: JSON will be written, so only JSON, or an empty file, may be replaced.

    Raises:
        OSError: its folder does not exist or takes no files, or it is a folder.
        InvalidError: it is a recording, which nothing brings back, or no JSON; or `-`.
    """
    place = Path(path)
    if str(path) == "-":
        raise InvalidError("-: standard output is not written to; give the name of a file")
    try:
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if place.exists() and not place.is_file():
            return  # a device can be written to as it is
        with tempfile.TemporaryFile(dir=place.absolute().parent):
            pass
    except OSError as error:
        raise OSError(error.errno, f"cannot be written: {error.strerror}", str(path)) from None
    if not replace and is_recording(place):
        raise InvalidError(f"{place}: is a recording, which would be lost; give another name")
    if json and place.is_file() and not _may_be_json(place):
        raise InvalidError(f"{place}: exists already and is no JSON; give another name")


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuses a place that a recording would replace but not be: a device, a pipe, a folder.

    Raises:
        InvalidError: there is such a thing.
    """
    place = Path(path)
    if place.exists() and not place.is_file():
        raise InvalidError(f"{place}: not a regular file; give another name")


def is_recording(path: Path) -> bool:
    """Whether the file begins as a recording does."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _may_be_json(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip()[:1] in (b"", b"{", b"[")
    except OSError:
        return False


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Makes a folder. If the work then fails, a folder that was made and is empty is removed.

    Raises:
        OSError: it cannot be made.
    """
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for one in made:
                one.rmdir()
        raise
