# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a recording while its program runs: SIGUSR1 takes one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from types import FrameType

from spanwise import _format, errors


@contextmanager
def taking_snapshots(
    running: Sequence[Popen[bytes]], raw: Path, areas: Path, output: Path
) -> Iterator[Callable[[], None]]:
    """While the block runs, SIGUSR1 writes a snapshot next to the output, and says so on stderr.

    It yields a function to call once all modules are loaded; a signal before that waits for it.
    Outside of the main thread, which alone has signal handlers, nothing changes.

    Args:
        running: the program, once it runs.
        raw: its recording so far.
        areas: the directory of its open blocks.
        output: where the recording will be; snapshots are STEM.snapshot-N.swt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    is_busy, is_wanted = True, False

    def take(number: int, frame: FrameType | None) -> None:
        nonlocal is_busy, is_wanted
        is_wanted = True
        while is_wanted and not is_busy:
            is_busy, is_wanted = True, False
            try:
                said = take_snapshot(running[0].pid, raw, areas, output)
            except (OSError, errors.SpanwiseError) as error:
                said = f"no snapshot: {error}"
            print(said, file=sys.stderr, flush=True)
            is_busy = False

    def ready() -> None:
        nonlocal is_busy
        is_busy = False
        if is_wanted:
            take(signal.SIGUSR1, None)

    before = signal.signal(signal.SIGUSR1, take)
    try:
        yield ready
    finally:
        signal.signal(signal.SIGUSR1, before)


def take_snapshot(pid: int, raw: Path, areas: Path, output: Path) -> str:
    """Write the recording so far to a file of its own, and say which.

    The program is stopped only while its open blocks are copied, less than 1 MiB per thread: the
    raw recording grows at its end only, so what it has then is copied while the program goes on.
    """
    from spanwise.recordings.finish import finish, salvage  # noqa: PLC0415  loaded by now
    from spanwise.recordings.history import History  # noqa: PLC0415
    from spanwise.recordings.sources import FileSource  # noqa: PLC0415

    folder = raw.parent / "snapshot"
    folder.mkdir(exist_ok=True)
    copy = folder / raw.name
    try:
        start = time.perf_counter()
        with _stopped(pid) as is_stopped:
            if not is_stopped or not raw.exists():
                return "no snapshot: the program has ended, or does not record yet"
            size, rss = raw.stat().st_size, _resident_bytes(pid)
            blocks = f"{raw.name}.areas"
            shutil.copyfile(areas / blocks, folder / blocks)
        stopped_ns = round(1e9 * (time.perf_counter() - start))
        _copy_prefix(raw, copy, size)
        salvage(copy, folder)
        finish(copy, copy)
        place = _free_place(output)
        copy.replace(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    summary = History(FileSource(place, valid_prefix=False)).summary
    return (
        f"{place.name}: snapshot, {_format.plural(summary.events, 'event')} in"
        f" {_format.seconds(summary.duration_ns)}, RSS now {_format.size(rss)}; the program was"
        f" stopped for {_format.seconds(stopped_ns)}"
    )


def _resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


@contextmanager
def _stopped(pid: int) -> Iterator[bool]:
    """Stop a child while the block runs; False: it has ended, and its status is left for others."""
    os.kill(pid, signal.SIGSTOP)
    try:
        state = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        yield state is not None and state.si_code == os.CLD_STOPPED
    finally:
        os.kill(pid, signal.SIGCONT)


def _copy_prefix(source: Path, target: Path, size: int) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        done = 0
        while done < size:
            count = os.sendfile(writer.fileno(), reader.fileno(), done, size - done)
            if count == 0:
                raise errors.RecordingIOError(f"{source}: is shorter than it was")
            done += count


def _free_place(output: Path) -> Path:
    """The first STEM.snapshot-N.swt that does not exist."""
    stem, number = output.name.removesuffix(".swt"), 1
    while (place := output.with_name(f"{stem}.snapshot-{number}.swt")).exists():
        number += 1
    return place
