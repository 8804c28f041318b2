# SPDX-License-Identifier: Apache-2.0
"""Convert raw recordings to ordered ones after the recorded program has ended."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from spanwise import _lib, errors
from spanwise._lib import check, ffi, lib
from spanwise.heap.handle import interruptible
from spanwise.recordings.sources import FileSource, read_info
from spanwise.results.jobs import progress_bar


def finish_all(
    folder: Path, areas: Path, raw: Path, output: Path, *, children: bool, force: bool
) -> tuple[tuple[Path, ...], str]:
    """Orders all raw recordings and moves them to their final paths.

    Without children, the recording is of the program that the process became by exec; those of
    earlier ones, such as the shell of a wrapper script, are dropped.
    """
    unordered = ""
    finished = {raw: output}
    stem = output.name.removesuffix(".swt")
    for child in sorted(folder.glob("*.swt")):
        if child == raw or not child.name.startswith(stem + "."):
            continue
        if children or _pid_of(child) != _pid_of(raw):
            finished[child] = output.with_name(child.name)
    for path in finished:
        try:
            # Only the recording of the first process has the list of children.
            salvage(path, areas, *(_children_of(raw) if path == raw else (0, 0)))
            finish(path, path)
        except errors.RecordingIOError as error:
            unordered = str(error)
    if force:
        for earlier in earlier_recordings(output):
            earlier.unlink(missing_ok=True)
    for path, place in finished.items():
        path.replace(place)
    return tuple(place for path, place in finished.items() if path != raw), unordered


def earlier_recordings(output: Path) -> list[Path]:
    """Return the recordings of other processes that an earlier run left next to its output."""
    stem = re.escape(output.name.removesuffix(".swt"))
    name = re.compile(rf"{stem}\.(?P<pid>[0-9]+)(\.[0-9]+)?\.swt")
    found = (
        (name.fullmatch(path.name), path) for path in sorted(output.absolute().parent.iterdir())
    )
    return [path for match, path in found if match and _pid_of(path) == int(match["pid"])]


def _pid_of(path: Path) -> int | None:
    """Return the process id of a recording, or None for another file."""
    if path.is_symlink() or not path.is_file():
        return None
    try:
        return _info_of(path)["pid"]
    except (errors.SpanwiseError, OSError):
        return None


def _info_of(path: Path) -> dict[str, int]:
    """Return the header of a recording that may be incomplete."""
    return read_info(FileSource(path, valid_prefix=True).open())


def salvage(path: Path, areas: Path, unrecorded: int = 0, recorded: int = 0) -> None:
    """Adds the unwritten blocks of its program to a raw recording."""
    blocks = areas / f"{path.name}.areas"
    check(lib.sw_trace_salvage(_lib.c_path(path), _lib.c_path(blocks), unrecorded, recorded))


def _children_of(raw: Path) -> tuple[int, int]:
    """Return the numbers of unrecorded and recorded children, from the recorder's list.

    Each entry is a process id; its highest bit means that the process was recorded. The first of
    several entries for a process counts.
    """
    try:
        entries = np.fromfile(raw.with_name(raw.name.removesuffix(".swt") + ".children"), "<u4")
    except OSError:
        return 0, 0
    own = _info_of(raw)["pid"]
    _, first = np.unique(entries & 0x7FFFFFFF, return_index=True)
    kept = entries[first]
    kept = kept[(kept & 0x7FFFFFFF) != own]
    recorded = int((kept >> 31).sum())
    return len(kept) - recorded, recorded


def finish(raw: Path, output: Path) -> None:
    """Orders a raw recording; if it is damaged, the part before the damage."""
    error: errors.SpanwiseError | None = None
    for flags in (0, int(lib.SW_TRACE_VALID_PREFIX)):
        error = _finish_once(raw, output, flags)
        if not isinstance(error, errors.TraceFormatError):
            break
    if error is not None:
        raise error


def _count_of(raw: Path) -> int:
    """Return the number of operations of a raw recording; 0 if it cannot be read."""
    try:
        return _info_of(raw)["ops"]
    except errors.SpanwiseError:
        return 0


def _finish_once(raw: Path, output: Path, flags: int) -> errors.SpanwiseError | None:
    cancel, done = ffi.new("int *"), ffi.new("uint64_t *")
    seen = 0

    def call() -> errors.SpanwiseError | None:
        status = lib.sw_trace_finish(
            _lib.c_path(raw), _lib.c_path(output), flags, cancel, done, ffi.NULL
        )
        return _lib.failure(status) if status != 0 else None

    with progress_bar(None, _count_of(raw), "put in order", "operations") as step:

        def look() -> None:
            nonlocal seen
            now = int(done[0])
            step(now - seen)
            seen = now

        return interruptible(call, cancel, look)
