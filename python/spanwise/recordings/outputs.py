# SPDX-License-Identifier: Apache-2.0
"""Output files are checked before the work, so that none is done in vain."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spanwise.errors import InvalidError

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
