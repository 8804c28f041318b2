# SPDX-License-Identifier: Apache-2.0
"""Where the symbols of a module are: in its own file, or in others with its build id."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from spanwise.errors import InvalidError

FOLDERS = "SPANWISE_SYMBOLS"
"""Folders to search, separated by colons: root file systems, or files by name or build id."""
FETCH = "SPANWISE_DEBUGINFOD"
"""1: what is in none of them is fetched from the servers in DEBUGINFOD_URLS."""
DEBUG_ROOT = Path("/usr/lib/debug")
_FINDER = "debuginfod-find"
_SECONDS = 300


def look_in(folders: Sequence[str], fetch: bool) -> None:
    """Search these folders, too, from now on, and if asked for the servers.

    Raises:
        InvalidError: a folder does not exist, or nothing can be fetched.
    """
    for folder in folders:
        if not Path(folder).is_dir():
            raise InvalidError(f"--symbols {folder}: there is no such folder")
    if folders:
        before = os.environ.get(FOLDERS)
        absolute = [str(Path(folder).absolute()) for folder in folders]
        os.environ[FOLDERS] = ":".join([*absolute, *([before] if before else [])])
    if not fetch:
        return
    if shutil.which(_FINDER) is None:
        raise InvalidError(f"--debuginfod: {_FINDER} is not installed; apt-get install debuginfod")
    if not os.environ.get("DEBUGINFOD_URLS"):
        raise InvalidError("--debuginfod: DEBUGINFOD_URLS is not set; give it the servers to ask")
    os.environ[FETCH] = "1"


def symbol_files(path: str, build_id: str) -> list[Path]:
    """Return where a module's symbols may be; the files may not exist, or be different ones."""
    found = [Path(path)]
    for folder in map(Path, filter(None, os.environ.get(FOLDERS, "").split(":"))):
        found += _in_folder(folder, Path(path), build_id)
    return found + _of_this_system(build_id)


def _in_folder(folder: Path, path: Path, build_id: str) -> list[Path]:
    named = [folder / path.relative_to(path.anchor), folder / path.name]
    if len(build_id) < 4:
        return named
    by_id = Path(".build-id", build_id[:2], f"{build_id[2:]}.debug")
    separate = [folder / f"{path.name}.debug", folder / by_id]
    return [*named, *separate, folder / DEBUG_ROOT.relative_to("/") / by_id]


def _of_this_system(build_id: str) -> list[Path]:
    """Return separate debug information, and what debuginfod's clients have fetched before."""
    if len(build_id) < 4:
        return []
    cache = os.environ.get("DEBUGINFOD_CACHE_PATH")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    stored = Path(cache) if cache else home / "debuginfod_client"
    return [
        DEBUG_ROOT / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug",
        stored / build_id / "debuginfo",
    ]


def fetched(build_id: str, name: str) -> Path | None:
    """Fetch a module's debug information, if that is asked for; None: no server has it."""
    if os.environ.get(FETCH) != "1" or len(build_id) < 4 or shutil.which(_FINDER) is None:
        return None
    return _fetch(build_id, name)


@lru_cache(maxsize=4096)
def _fetch(build_id: str, name: str) -> Path | None:
    print(f"spanwise: fetching the symbols of {name}", file=sys.stderr)
    try:
        done = subprocess.run(
            [_FINDER, "debuginfo", build_id],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return Path(done.stdout.strip()) if done.returncode == 0 else None
