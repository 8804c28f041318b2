# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes a file that appears whole or not at all; a text in UTF-8.

    Raises:
        OSError: naming `path`; what was there before stays.
    """
    place = Path(path)
    growing = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        growing.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        growing.replace(place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place)) from None
    finally:
        with suppress(OSError):
            growing.unlink()
