# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all."""

from __future__ import annotations

import os
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


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file that appears at the end of the block, or not at all if that raises.

    Yields:
        Where to write meanwhile: a name beside it.

    Raises:
        OSError: naming `path`; what was there before stays.
    """
    place = Path(path)
    growing = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        yield growing
        growing.replace(place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place)) from None
    finally:
        with suppress(OSError):
            growing.unlink()
