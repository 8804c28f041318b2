# SPDX-License-Identifier: Apache-2.0
"""The folder of a build, and the temporary folder in which it is made.

The temporary folder is next to the final one. If a build is killed, the next build in the same
place removes its temporary folder:

    .spanwise-build-PID-RANDOM/    locked by the build while it runs
        place                      name of the final folder
        out/                       the build
        old/                       the previous build, while out/ is renamed
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanwise import errors
from spanwise.results.files import READING_ERRORS, is_text
from spanwise.results.rows import Result
from spanwise.tables.table import SizeClassTable

STAMP = "build.json"
_PREFIX = ".spanwise-build-"
_NAME = re.compile(re.escape(_PREFIX) + r"([1-9][0-9]*)-[a-z0-9_]{8}")
_PLACE = "place"


@dataclass(frozen=True, eq=False)
class Build(Result):
    """A folder that `build` made.

    Attributes:
        folder: lib/ (libspanwise.a, libspanwise.so, libspanwise-malloc.so), include/, gen/ (the
            generated C), table.json and build.json.
        stamp: content of build.json: table, compiler, flags, versions, proofs.
    """

    folder: Path
    stamp: dict[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Build:
        """Open an existing build.

        Raises:
            InvalidError: the folder is not a build.
        """
        place = Path(folder)
        try:
            stamp = json.loads((place / STAMP).read_text(encoding="utf-8"))
            named = [stamp["table"][key] for key in ("name", "hash")]
        except (OSError, *READING_ERRORS):
            named = [None]
        if not all(map(is_text, named)):
            raise errors.InvalidError(f"{place}: was not created by `spanwise build`")
        return cls(place.absolute(), stamp)

    @property
    def table(self) -> SizeClassTable:
        """The default table of the build."""
        return SizeClassTable.from_json(self.folder / "table.json")

    @property
    def library(self) -> Path:
        """libspanwise.so."""
        return self.folder / "lib/libspanwise.so"

    @property
    def archive(self) -> Path:
        """libspanwise.a; link with stamp["link"]."""
        return self.folder / "lib/libspanwise.a"

    @property
    def include(self) -> Path:
        """The folder for -I."""
        return self.folder / "include"

    @property
    def malloc_library(self) -> Path:
        """libspanwise-malloc.so, for LD_PRELOAD.

        Raises:
            UnsupportedError: the build has no preloaded malloc.
        """
        path = self.folder / "lib/libspanwise-malloc.so"
        if not path.is_file():
            raise errors.UnsupportedError(f"{self.folder}: was built without the preloaded malloc")
        return path

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Run a program with the preloaded malloc.

        Args:
            argv: program and arguments.
            env: its environment; None: that of this process.
            options: as in `subprocess.run`.

        Raises:
            UnsupportedError, OSError: there is no preloaded malloc; the program does not start.
        """
        base = dict(os.environ if env is None else env)
        preload = ":".join(filter(None, (str(self.malloc_library), base.get("LD_PRELOAD"))))
        return subprocess.run(
            list(argv), env={**base, "LD_PRELOAD": preload}, check=False, **options
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the folder and the stamp, for JSON."""
        return {"folder": str(self.folder), **self.stamp}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Build) and (self.folder, self.stamp) == (other.folder, other.stamp)

    def __hash__(self) -> int:
        return hash(self.folder)

    def __repr__(self) -> str:
        table = self.stamp["table"]
        return f"<Build {self.folder}: table {table['name']}, hash {table['hash']}>"


# --- the temporary folder -------------------------------------------------------------------------


@contextmanager
def work_folder(place: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `place`, after removing those of killed builds.

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
    """Rename work/out; the previous folder is kept until that succeeds."""
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
    """Remove the temporary folders of killed builds.

    Such a folder has a name of `work_folder` and belongs to this user, its process has ended, and
    its lock is free. The lock protects builds in other containers, whose processes are invisible.
    If the killed build had moved the old build away, the old build is restored.
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
            _restore(folder)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _restore(folder: Path) -> None:
    """Restore old/ if the build was killed between its two renames."""
    name = os.fsdecode((folder / _PLACE).read_bytes())
    place = folder.with_name(name)
    if not place.exists():
        (folder / "old").rename(place)


def _lock(folder: Path) -> int:
    """Lock the folder; return the descriptor that holds the lock until it is closed.

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
