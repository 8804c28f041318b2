# SPDX-License-Identifier: Apache-2.0
"""The recordings of a sweep: told apart by hash, opened only when they are the ones meant.

A worker that shares no disk with the sweep does not have their files. It says so, is sent a file
once, and keeps it in a folder of its own for as long as it lives.
"""

from __future__ import annotations

import functools
import hashlib
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import errors
from spanwise.recordings.recording import Recording

SENT_BYTES_MAX = 256 << 20
"""The largest file that is sent to a worker."""


class AbsentRecordingError(Exception):
    """A worker does not have the file of a recording."""

    def __init__(self, path: str, worker: str) -> None:
        super().__init__(path, worker)
        self.path, self.worker = path, worker

    def __str__(self) -> str:
        host = self.worker.rpartition(":")[0]
        return f"{self.path}: is not on {host}; put the same file there, under the same name"


def worker_name() -> str:
    """This process, as rows tell it."""
    return f"{socket.gethostname()}:{os.getpid()}"


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
    """A recording by its path, if it is the one that the sweep means; or as it was sent.

    Raises:
        InvalidError: the file there has another hash.
        AbsentRecordingError: there is no such file here.
        OSError: it cannot be read. Else as `Recording.open`.
    """
    path = recording["path"]
    wanted = wanted_sha256(recording)
    try:
        found = file_sha256(path)
    except FileNotFoundError:
        path = _kept(wanted)
        if not path.is_file():
            raise AbsentRecordingError(recording["path"], worker_name()) from None
        return _open(str(path), wanted, recording["valid_prefix"])
    if found != wanted:
        raise errors.InvalidError(
            f"{path}: sha256 {found[:16]}... on {socket.gethostname()}, {wanted[:16]}... in the"
            " sweep; put the same file there"
        )
    return _open(path, wanted, recording["valid_prefix"])


def wanted_sha256(recording: dict[str, Any]) -> str:
    """The hash of the file of a recording."""
    found: str = recording.get("file_sha256", recording["sha256"])  # of one that was in memory
    return found


# --- sending --------------------------------------------------------------------------------------


def content_of(recording: dict[str, Any]) -> bytes:
    """The file of a recording, for a worker that does not have it.

    Raises:
        InvalidError: it is too large, or another file by now.
        OSError: it cannot be read.
    """
    path = Path(recording["path"])
    size = path.stat().st_size
    if size > SENT_BYTES_MAX:
        raise errors.InvalidError(
            f"{size >> 20} MiB are not sent to workers ({SENT_BYTES_MAX >> 20} MiB are)"
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != wanted_sha256(recording):
        raise errors.InvalidError(f"{path} changed since the sweep began")
    return content


def keep_content(recording: dict[str, Any], content: bytes) -> None:
    """On a worker: the file that was sent, whole or not at all."""
    place = _kept(wanted_sha256(recording))
    part = place.with_suffix(".part")
    part.write_bytes(content)
    part.replace(place)


def _kept(sha256: str) -> Path:
    return Path(_folder(os.getpid()).name) / f"{sha256}.swt"


@functools.lru_cache(maxsize=1)
def _folder(_process: int) -> tempfile.TemporaryDirectory[str]:
    """The folder of files that were sent; it is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="spanwise-sweep-")


@functools.lru_cache(maxsize=16)
def _open(path: str, _sha256: str, valid_prefix: bool) -> Recording:
    """Opens a recording and keeps it, because the summary of a raw one costs a pass."""
    return Recording.open(path, valid_prefix)
