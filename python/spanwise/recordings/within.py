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
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from spanwise._lib import lib
from spanwise.errors import InvalidError, SpanwiseError, StateError
from spanwise.recordings.finish import finish, salvage
from spanwise.recordings.outputs import check_regular
from spanwise.recordings.recording import Recording
from spanwise.recordings.slices import own_ops, slice_ops
from spanwise.recordings.temporary import temporary_recording
from spanwise.results.rows import AnyRows

_ALIGN_LOG2 = 12
_MARKS = 8
_CUT = "import sys; from spanwise.recordings.within import cut; sys.exit(cut(*sys.argv[1:]))"


class RecordedPart:
    """What a `with spanwise.recording()` block gives: after the block it has the recording."""

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._why_none = "the block has not ended, so there is no recording yet"

    @property
    def recording(self) -> Recording:
        """The operations of the block, of all threads, after an allocation of what was live then.

        Raises:
            StateError: the block has not ended, or it ended with an exception.
        """
        if self._recording is None:
            raise StateError(f"recording(): {self._why_none}")
        return self._recording

    def __repr__(self) -> str:
        return f"RecordedPart({self._recording!r})"


@contextmanager
def recording(
    output: str | os.PathLike[str] | None = None, *, own: bool = False
) -> Iterator[RecordedPart]:
    """Records a block of the program that runs, which the recorder must have started.

    The process is one of `spanwise record -- python3 SCRIPT` (or of `spanwise.record`), and its
    whole recording is made as ever, with the modules that `import spanwise` loads. The block's
    recording has no call sites. At the end of the block another process puts what was recorded so
    far in order and cuts the block out, so that this one does not allocate for it::

        with spanwise.recording("parse.swt") as part:
            tree = parse(text)
        print(part.recording.ledger())

    In a notebook use `%%record` instead.

    Args:
        output: the block's recording; None: a file in the system's folder for temporary files that
            goes when this Python ends.
        own: only objects that the block allocates or resizes; else what was live before is
            allocated first.

    Yields:
        A `RecordedPart`, whose `recording` is there after the block. A block that raises has none.

    Raises:
        StateError: this process is not recorded; the message has the command that records it.
        InvalidError: the output exists.
        RecordingIOError: no room for a copy in the system's folder for temporary files.
    """
    raw = _raw_recording()
    if output is not None:
        check_regular(output)
    if output is not None and Path(output).is_file():
        raise InvalidError(f"{output}: exists already; give another name")
    part = RecordedPart()
    first, last = _new_marks(), _new_marks()
    _make(first)
    try:
        yield part
    except BaseException:
        part._why_none = "the block ended with an exception, so it has no recording"
        raise
    _make(last)
    path = temporary_recording() if output is None else Path(output)
    with tempfile.TemporaryDirectory(prefix="spanwise-part-") as folder:
        _cut_elsewhere(_copy_so_far(raw, Path(folder)), path, (first, last), own)
    part._recording = Recording.open(path)


def _cut_elsewhere(
    copy: Path, path: Path, around: tuple[tuple[int, ...], tuple[int, ...]], own: bool
) -> None:
    """Has a process that is not recorded do the work of `cut`."""
    hidden = ("LD_PRELOAD", "PYTHONMALLOC", "SPANWISE_RECORD_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    words = [str(copy), str(path), *(",".join(map(str, marks)) for marks in around)]
    words += ["own"] * own
    done = subprocess.run(
        [sys.executable, "-c", _CUT, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise StateError(f"recording(): {why[0]}")


def cut(copy: str, output: str, first: str, last: str, whose: str = "") -> int:
    """Puts a copied raw recording in order and writes what lies between two rows of marks.

    Args:
        copy: the raw recording; its open blocks lie beside it.
        output: the part's recording.
        first: sizes of the marks before it, with commas.
        last: those after it.
        whose: "own": only objects that are allocated or resized there.

    Returns:
        The exit status: 0, or 1 with a line on stderr.
    """
    raw = Path(copy)
    try:
        salvage(raw, raw.parent)
        finish(raw, raw)
        whole = Recording.open(raw)
        begin = _place(whole.ops, tuple(map(int, first.split(","))))[1]
        end = _place(whole.ops, tuple(map(int, last.split(","))))[0]
        ops = np.asarray(whole.ops)
        make = own_ops if whose == "own" else slice_ops
        Recording.from_ops(make(ops, begin, end), output)
    except SpanwiseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _raw_recording() -> Path:
    """The file that the recorder of this process writes."""
    named, root = os.environ.get("SPANWISE_RECORD_FILE"), os.environ.get("SPANWISE_RECORD_PID")
    if named is None or root is None:
        raise StateError(
            "recording(): this process is not recorded: start it by"
            " `spanwise record -o FILE.swt -- python3 SCRIPT`, or use %%record in a notebook"
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


def _place(ops: AnyRows, marks: tuple[int, ...]) -> tuple[int, int]:
    """The index of the operation that makes the first mark, and that after the last mark's free."""
    rows = np.flatnonzero((ops["align_log2"] == _ALIGN_LOG2) & (ops["kind"] == lib.SW_OP_ALLOC))
    for thread in np.unique(ops["thread"][rows]):
        own = rows[ops["thread"][rows] == thread]
        sizes = ops["size"][own]
        for start in np.flatnonzero(sizes == marks[0]):
            if tuple(sizes[start : start + _MARKS]) == marks:
                last = int(own[start + _MARKS - 1])
                after = ops["object"][last + 1 :] == ops["object"][last]
                return int(own[start]), last + 2 + int(np.argmax(after))
    raise StateError("the recorder lost events of this block, on a full disk perhaps")


def _copy_so_far(raw: Path, folder: Path) -> Path:
    """Copies what is recorded so far, areas first: events that move to the file are in both."""
    areas = Path(os.environ.get("SPANWISE_RECORD_AREAS", raw.parent)) / f"{raw.name}.areas"
    shutil.copyfile(areas, folder / areas.name)
    shutil.copyfile(raw, folder / raw.name)
    return folder / raw.name
