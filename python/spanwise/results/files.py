# SPDX-License-Identifier: Apache-2.0
"""File helpers: atomic writes, early checks of output paths, and one-line errors from readers."""

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
# A reader checks for the errors that it knows. READING_ERRORS catches the others: a number that no
# array holds, a list where an object should be, endless nesting.

READING_ERRORS = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, RuntimeError, TypeError, ValueError),
    *(struct.error, zlib.error),
)
"""What damaged input raises; OverflowError, RecursionError and UnicodeError are among them."""

_CLIPPED = 160


@contextmanager
def reading(
    name: str, place: Callable[[], str] = str, error: type[SpanwiseError] = TraceFormatError
) -> Iterator[None]:
    """Turn the errors of a block that reads a file into one line with the file's name."""
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
    """Return whether a value from JSON is a text that can be written, not half a surrogate pair."""
    if not isinstance(value, str):
        return False
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def what_is_wrong(found: Exception) -> str:
    """Describe a Python exception on one line, as the end of a sentence."""
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
    r"""Write a file atomically; a str as UTF-8."""
    check_type(path, (str, bytes, os.PathLike), "path")
    with whole_file(path) as growing:
        if isinstance(content, str):
            content = content.encode("utf-8", "backslashreplace")
        growing.write_bytes(content)


def followed(path: Path) -> Path:
    """Return the path with links resolved, so that a rename replaces the file and not a link."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file atomically: it appears at the end of the block, unless the block raises."""
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
    """Check that a file can be written and is not a recording."""
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
        raise InvalidError(f"{place}: exists already and is not JSON; give another name")


def check_regular(path: str | os.PathLike[str]) -> None:
    """Check that a path is not a device, pipe or directory, which a recording would replace."""
    place = Path(path)
    if place.exists() and not place.is_file():
        raise InvalidError(f"{place}: not a regular file; give another name")


def is_recording(path: Path) -> bool:
    """Return whether the file begins with the magic of a recording."""
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
    """Make a directory. If the block raises, remove the new directories that are empty."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for one in made:
                one.rmdir()
        raise
