# SPDX-License-Identifier: Apache-2.0
"""A part of a program's run, recorded by the program itself: `with spanwise.recording()`.

The recorder writes what the whole process does. Where a part begins and ends is told by eight
aligned allocations whose sizes are drawn at random, so no event of its own is needed for it.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import lib
from spanwise.errors import StateError
from spanwise.recordings.finish import finish, salvage
from spanwise.recordings.recording import Recording

_ALIGN_LOG2 = 12
_MARKS = 8


class RecordedPart:
    """What a `with spanwise.recording()` block gives: after the block it has the recording."""

    def __init__(self) -> None:
        self._recording: Recording | None = None

    @property
    def recording(self) -> Recording:
        """The operations of the block, of all threads, after an allocation of what was live then.

        Raises:
            StateError: the block has not ended.
        """
        if self._recording is None:
            raise StateError("recording(): the block has not ended, so there is no recording yet")
        return self._recording

    def __repr__(self) -> str:
        return f"RecordedPart({self._recording!r})"


@contextmanager
def recording() -> Iterator[RecordedPart]:
    """Records a block of the program that runs, which the recorder must have started.

    The process is one of `spanwise record -- python3 SCRIPT` (or of `spanwise.record`), and its
    whole recording is made as ever. At the block's end what was recorded so far is copied, put in
    order and cut to the block; what that allocates comes after the block.

    Yields:
        A `RecordedPart`, whose `recording` is there after the block. A block that raises has none.

    Raises:
        StateError: this process is not recorded; the message has the command that records it.
        RecordingIOError: no room for the copy in the system's folder for temporary files.
    """
    raw = _raw_recording()
    part = RecordedPart()
    first, last = _new_marks(), _new_marks()
    _make(first)
    yield part
    _make(last)
    with tempfile.TemporaryDirectory(prefix="spanwise-part-") as folder:
        whole = Recording.open(_copy_so_far(raw, Path(folder)))
        ops = whole.ops
        part._recording = whole[_place(ops, first)[1] : _place(ops, last)[0]]


def _raw_recording() -> Path:
    """The file that the recorder of this process writes."""
    named, root = os.environ.get("SPANWISE_RECORD_FILE"), os.environ.get("SPANWISE_RECORD_PID")
    if named is None or root is None:
        raise StateError(
            "recording(): this process is not recorded: start it by"
            " `spanwise record -o FILE.swt -- python3 SCRIPT`"
        )
    path = Path(named)
    if int(root) != os.getpid():
        path = path.with_name(f"{path.name.removesuffix('.swt')}.{os.getpid()}.swt")
    if not path.exists():
        raise StateError(
            f"recording(): process {os.getpid()} is a child that is not recorded: start the first"
            " one by `spanwise record --children -o FILE.swt -- python3 SCRIPT`"
        )
    return path


def _new_marks() -> tuple[int, ...]:
    return tuple(secrets.randbelow(4096) + 1 for _ in range(_MARKS))


def _make(marks: tuple[int, ...]) -> None:
    libc = ctypes.CDLL(None)
    libc.aligned_alloc.restype = ctypes.c_void_p
    for size in marks:
        address = libc.aligned_alloc(ctypes.c_size_t(1 << _ALIGN_LOG2), ctypes.c_size_t(size))
        libc.free(ctypes.c_void_p(address))


def _place(ops: NDArray[np.void], marks: tuple[int, ...]) -> tuple[int, int]:
    """The operation that makes the first mark, and the one after the last mark was freed."""
    rows = np.flatnonzero((ops["align_log2"] == _ALIGN_LOG2) & (ops["kind"] == lib.SW_OP_ALLOC))
    for thread in np.unique(ops["thread"][rows]):
        own = rows[ops["thread"][rows] == thread]
        sizes = ops["size"][own]
        for start in np.flatnonzero(sizes == marks[0]):
            if tuple(sizes[start : start + _MARKS]) == marks:
                last = int(own[start + _MARKS - 1])
                after = ops["object"][last + 1 :] == ops["object"][last]
                return int(own[start]), last + 2 + int(np.argmax(after))
    raise StateError("recording(): the recorder lost events of this block, on a full disk perhaps")


def _copy_so_far(raw: Path, folder: Path) -> Path:
    """What is recorded by now, in order. Areas first: what moves to the file then is in both."""
    areas = Path(os.environ.get("SPANWISE_RECORD_AREAS", raw.parent)) / f"{raw.name}.areas"
    copy = folder / raw.name
    shutil.copyfile(areas, folder / areas.name)
    shutil.copyfile(raw, copy)
    salvage(copy, folder)
    finish(copy, copy)
    return copy
