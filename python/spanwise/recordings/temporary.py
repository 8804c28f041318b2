# SPDX-License-Identifier: Apache-2.0
"""Recordings that nobody gave a name: files that go when this Python ends."""

from __future__ import annotations

import atexit
import os
import tempfile
from contextlib import suppress
from pathlib import Path

_made: list[tuple[int, Path]] = []


def temporary_recording() -> Path:
    """A new, empty file in the system's folder for temporary files.

    The process that asked for it removes it at its end; processes that it forked do not.
    """
    handle, name = tempfile.mkstemp(prefix="spanwise-", suffix=".swt")
    os.close(handle)
    if not _made:
        atexit.register(_remove)
    _made.append((os.getpid(), Path(name)))
    return Path(name)


def _remove() -> None:
    for process, path in _made:
        if process == os.getpid():
            with suppress(OSError):
                path.unlink()
