# SPDX-License-Identifier: Apache-2.0
"""The temporary folder in which a build grows, beside the folder that it will become.

A build that is killed leaves it; the next one in the same place clears it away:

    .spanwise-build-PID-RANDOM/    locked by the build as long as that lives
        place                      name of the folder that the build is for
        out/                       the build
        old/                       what was in its place, while out/ goes there
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = ".spanwise-build-"
_NAME = re.compile(re.escape(_PREFIX) + r"([1-9][0-9]*)-[a-z0-9_]{8}")
_PLACE = "place"


@contextmanager
def work_folder(place: Path) -> Iterator[Path]:
    """Makes a folder beside `place` and removes it at the end; folders of killed builds go first.

    Raises:
        OSError: the system refused to make it.
    """
    parent = place.absolute().parent
    remove_stale(parent)
    try:
        work = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    except OSError as error:
        raise OSError(error.errno, f"cannot be made: {error.strerror}", str(place)) from None
    lock = None
    try:
        lock = _lock(work)
        (work / _PLACE).write_bytes(os.fsencode(place.absolute().name))
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def put_in_place(made: Path, place: Path) -> None:
    """Renames work/out; what was there is kept until the new folder is in its place."""
    old = made.with_name("old")
    if place.is_dir():
        place.rename(old)
    try:
        made.rename(place)
    except OSError:
        if old.is_dir():
            with suppress(OSError):
                old.rename(place)
        raise


def remove_stale(parent: Path) -> None:
    """Removes the folders of builds of ours that ended without doing so.

    Such a folder has a name that `work_folder` gives and belongs to this user, its process is gone,
    and nobody holds its lock. The lock protects the folder of a build in another container, whose
    processes are not visible here. If the killed build had moved the old build away, it is put
    back.
    """
    for folder in parent.glob(f"{_PREFIX}*"):
        if _is_stale(folder):
            with suppress(OSError):
                _remove(folder)


def _is_stale(folder: Path) -> bool:
    name = _NAME.fullmatch(folder.name)
    if name is None or folder.is_symlink() or not folder.is_dir():
        return False
    with suppress(OSError):
        return folder.stat().st_uid == os.geteuid() and not _is_alive(int(name[1]))
    return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _remove(folder: Path) -> None:
    lock = _lock(folder)
    try:
        if (folder / "old").is_dir() and (folder / "out").is_dir():
            _put_back(folder)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _put_back(folder: Path) -> None:
    """Puts old/ back if a build was killed between its two renames, which left its place empty."""
    name = os.fsdecode((folder / _PLACE).read_bytes())
    place = folder.with_name(name)
    if not place.exists():
        (folder / "old").rename(place)


def _lock(folder: Path) -> int:
    """A descriptor that holds the folder's lock; the system drops it when the process ends.

    Raises:
        OSError: another process holds it, or the folder cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
