# SPDX-License-Identifier: Apache-2.0
"""The recordings of a sweep: told apart by hash, opened only when they are the ones meant."""

from __future__ import annotations

import functools
import hashlib
import socket
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import errors
from spanwise.recordings.recording import Recording


def ops_sha256(ops: NDArray[np.void]) -> str:
    """Hash of operations in memory."""
    return hashlib.sha256(np.ascontiguousarray(ops).view(np.uint8).data).hexdigest()


def file_sha256(path: str) -> str:
    """Hash of a file; remembered as long as the file's identity, size and time stay.

    Raises:
        OSError: it cannot be read.
    """
    status = Path(path).stat()
    return _file_sha256(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))


@functools.lru_cache(maxsize=1024)
def _file_sha256(path: str, _identity: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def open_checked(recording: dict[str, Any]) -> Recording:
    """A recording by its path, if it is the one that the sweep means.

    Raises:
        InvalidError: the file there has another hash.
        OSError: there is no such file here, or it cannot be read. Else as `Recording.open`.
    """
    path = recording["path"]
    wanted = recording.get("file_sha256", recording["sha256"])  # of a recording that was in memory
    found = file_sha256(path)
    if found != wanted:
        raise errors.InvalidError(
            f"{path}: sha256 {found[:16]}... on {socket.gethostname()}, {wanted[:16]}... in the"
            " sweep; put the same file there"
        )
    return _open(path, wanted, recording["valid_prefix"])


@functools.lru_cache(maxsize=16)
def _open(path: str, _sha256: str, valid_prefix: bool) -> Recording:
    """Opens a recording and keeps it, because the summary of a raw one costs a pass."""
    return Recording.open(path, valid_prefix)
