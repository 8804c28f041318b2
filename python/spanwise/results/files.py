# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spanwise._lib import check_type


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

    A device or a pipe gets the bytes; a symbolic link stays, and the file behind it is replaced.

    Yields:
        Where to write meanwhile: a name beside it with the same ending.

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
