# SPDX-License-Identifier: Apache-2.0
"""Run `spanwise-replay` (src/replay/) on the operations of a recording.

The operations are in an anonymous file, so nothing is left on disk.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib, errors
from spanwise.measure.running import MALLOC_LIBRARY, built_table, find_preload
from spanwise.recordings.recording import Recording
from spanwise.results.jobs import Step
from spanwise.tables.classes import file_specs
from spanwise.tables.table import SizeClassTable

PROGRAM = "spanwise-replay"
TOUCHES = ("none", "ends", "pages", "all")
POLL_SECONDS = 0.005

# struct ops_head of src/replay/plan.h
_HEAD = struct.Struct("<8sQQQ32x")
_MAGIC = b"swops\0\0\1"
_PROGRESS_OFFSET = 24

TIMELINE_DTYPE = np.dtype([("wall_ns", "<i8"), ("rss_bytes", "<i8")])
"""Readings from outside: time since the first operation, resident bytes."""


@dataclass(frozen=True)
class Allocator:
    """The allocator of a replay.

    Attributes:
        label: its name in tables and pictures.
        preload: library for LD_PRELOAD, "" for none.
        expects: start of the file name of malloc's library.
        table: use a run-time heap of ours with this table instead of malloc.
        missing: advice if the library is missing.
    """

    label: str
    preload: str = ""
    expects: str = ""
    table: SizeClassTable | None = None
    missing: str = ""


PEERS = {
    "glibc": Allocator("glibc", "", "libc.so", missing="glibc is needed"),
    "jemalloc": Allocator(
        "jemalloc", "libjemalloc.so.2", "libjemalloc", missing="install libjemalloc2"
    ),
    "mimalloc": Allocator(
        "mimalloc", "libmimalloc.so.2", "libmimalloc", missing="install libmimalloc2.0"
    ),
    "tcmalloc": Allocator(
        "tcmalloc",
        "libtcmalloc_minimal.so.4",
        "libtcmalloc",
        missing="install libtcmalloc-minimal4",
    ),
}


def allocator_named(
    name: str, table: SizeClassTable | None = None, lib: str | os.PathLike[str] | None = None
) -> Allocator:
    """Return the allocator of a name, a table or a build."""
    if name != "spanwise" and (table is not None or lib is not None):
        option = "table" if table is not None else "lib"
        raise errors.InvalidError(f"{name}: has tables of its own; {option} is for spanwise only")
    if table is not None and lib is not None:
        raise errors.InvalidError("table and lib: give one of them; a build has its own table")
    if table is not None:
        return Allocator(f"spanwise {table.name} (run time)", table=table)
    if lib is not None:
        preload = find_preload(lib, None)
        label = f"spanwise {built_table(lib) or Path(lib).name} (built)"
        return Allocator(label, str(preload), preload.name)
    if name == "spanwise":
        preload = _lib.native_library(MALLOC_LIBRARY)
        return Allocator("spanwise", str(preload), preload.name)
    if name in PEERS:
        return PEERS[name]
    path = Path(name)
    if os.sep in name and path.is_file():
        return Allocator(path.name, str(path.absolute()), path.name, missing="check the file")
    known = ", ".join(("spanwise", *PEERS))
    raise errors.InvalidError(
        f"allocator {name!r}: unknown; use {known} or the path of a library that defines malloc"
    )


# --- operations for the program -------------------------------------------------------------------


@contextmanager
def operations_file(recording: Recording) -> Iterator[int]:
    """Yield the descriptor of an anonymous file with the header and all operations."""
    fd = _nameless()
    try:
        with os.fdopen(os.dup(fd), "wb", buffering=0) as file:
            peak = recording.summary.peak_op
            _write(file, _HEAD.pack(_MAGIC, len(recording), peak, 0))
            for block in recording.blocks():
                _write(file, np.ascontiguousarray(block).view(np.uint8).data)
        yield fd
    finally:
        os.close(fd)


def _nameless() -> int:
    try:
        return os.memfd_create("spanwise-operations")
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def _write(file: Any, content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        try:
            rest = rest[file.write(rest) :]
        except OSError as error:
            raise errors.RecordingIOError(
                f"operations for the replay cannot be written ({error.strerror});"
                " they take 32 bytes each",
                errno=error.errno,
            ) from None


def rewind(fd: int) -> None:
    """Reset the count of operations done."""
    os.pwrite(fd, bytes(8), _PROGRESS_OFFSET)


def table_words(table: SizeClassTable) -> str:
    """Return the argument for a table: PAGE_BYTES/SIZE:PAGES:FIRST_PAGES,..."""
    specs = file_specs(table.to_dict())
    classes = ",".join(f"{size}:{pages}:{first}" for size, pages, first in specs)
    return f"{table.page_bytes}/{classes}"


# --- running --------------------------------------------------------------------------------------


def run_program(
    fd: int, allocator: Allocator, words: Sequence[str], progress: Step | None = None
) -> tuple[dict[str, Any], NDArray[np.void]]:
    """Run the program on the operations of `fd`.

    Returns:
        Its output, and rows of (monotonic clock in ns, anonymous resident bytes).
    """
    program = _lib.native_library(PROGRAM)
    rewind(fd)
    options = [*words]
    if allocator.expects:
        options.append(f"malloc={allocator.expects}")
    if allocator.table is not None:
        options.append(f"table={table_words(allocator.table)}")
    command = [str(program), f"/proc/self/fd/{fd}", *options]
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as complaint,
        subprocess.Popen(
            command,
            env=_environment(allocator),
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=complaint,
        ) as child,
    ):
        try:
            seen = _poll(child, fd, progress)
        except BaseException:
            child.kill()
            child.wait()
            raise
        output.seek(0)
        complaint.seek(0)
        if child.returncode != 0:
            raise _failure(allocator, child.returncode, complaint.read())
        return json.loads(output.read()), seen


def _environment(allocator: Allocator) -> Mapping[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "SPANWISE_REPLAY_FIXED")}
    return {**kept, "LD_PRELOAD": allocator.preload} if allocator.preload else kept


def _failure(allocator: Allocator, status: int, complaint: bytes) -> errors.ProgramError:
    lines = complaint.decode("utf-8", "replace").strip().splitlines()
    said = lines[-1] if lines else ""
    if status < 0:
        said = f"the replay was killed by signal {-status}{': ' + said if said else ''}"
    if said.startswith("malloc comes from") and allocator.missing:
        said = f"{allocator.preload or allocator.label} does not serve malloc; {allocator.missing}"
    return errors.ProgramError(f"{allocator.label}: {said or f'exit status {status}'}")


def _poll(child: subprocess.Popen[bytes], fd: int, progress: Step | None) -> NDArray[np.void]:
    """Read the resident bytes and the progress of the process until it ends."""
    rows: list[tuple[int, int]] = []
    page = os.sysconf("SC_PAGE_SIZE")
    statm = os.open(f"/proc/{child.pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    done = 0
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                child.wait(POLL_SECONDS)
            if child.returncode is not None:
                break
            with suppress(OSError):
                _, resident, shared = os.pread(statm, 128, 0).split()[:3]
                rows.append((time.monotonic_ns(), (int(resident) - int(shared)) * page))
            now = int.from_bytes(os.pread(fd, 8, _PROGRESS_OFFSET), "little")
            if progress is not None:  # with 0, too: a bar shows while the program waits (drain)
                progress(max(now - done, 0))
            done = max(done, now)
    finally:
        os.close(statm)
    if progress is not None:
        now = int.from_bytes(os.pread(fd, 8, _PROGRESS_OFFSET), "little")
        progress(now - done)
    return np.array(rows, TIMELINE_DTYPE)
