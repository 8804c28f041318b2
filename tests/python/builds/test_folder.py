# SPDX-License-Identifier: Apache-2.0
"""The folders of a build: the last rename, and what killed builds leave."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest
from spanwise.builds.folder import put_in_place, remove_stale


def folder(path: Path, content: str) -> Path:
    path.mkdir(parents=True)
    (path / "file").write_text(content)
    return path


def test_a_build_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    made = folder(tmp_path / "work/out", "new")
    place = folder(tmp_path / "place", "earlier")
    put_in_place(made, place)
    assert (place / "file").read_text() == "new"
    assert not made.exists()


def test_an_earlier_build_stays_when_the_new_one_cannot_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folder(tmp_path / "work/out", "new")
    place = folder(tmp_path / "place", "earlier")
    rename = Path.rename

    def refuse_the_new_one(path: Path, target: Path) -> Path:
        if path == made:
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse_the_new_one)
    with pytest.raises(OSError, match="No space left on device"):
        put_in_place(made, place)
    assert (place / "file").read_text() == "earlier"
    assert (made / "file").read_text() == "new"
    assert not (tmp_path / "work/old").exists()


def test_where_nothing_was_nothing_is_left(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with pytest.raises(FileNotFoundError):
        put_in_place(tmp_path / "work/out", place)
    assert not place.exists()


# --- killed builds --------------------------------------------------------------------------------


def gone() -> int:
    """The id of a process that has ended."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def test_only_folders_of_dead_builds_are_stale(tmp_path: Path) -> None:
    pid, real = gone(), tmp_path / "real"
    kept = [
        f".spanwise-build-{os.getpid()}-abcdefgh",
        f".spanwise-build-{pid}-short",
        f".spanwise-build-{pid}-abcdefgh.txt",
        ".spanwise-build-abcdefgh",
        "real",
    ]
    for name in [*kept, f".spanwise-build-{pid}-abcdefgh"]:
        (tmp_path / name / "lib").mkdir(parents=True)
    (tmp_path / f".spanwise-build-{pid}-bcdefghi").symlink_to(real)
    (tmp_path / f".spanwise-build-{pid}-cdefghij").touch()
    if os.geteuid() == 0:
        foreign = tmp_path / f".spanwise-build-{pid}-defghijk"
        foreign.mkdir()
        os.chown(foreign, 12345, 12345)
    before = {path.name for path in tmp_path.iterdir()}
    remove_stale(tmp_path)
    assert before - {path.name for path in tmp_path.iterdir()} == {
        f".spanwise-build-{pid}-abcdefgh"
    }
    assert (real / "lib").is_dir()


def test_a_locked_folder_is_in_use(tmp_path: Path) -> None:
    """Of a process that is not seen here, as in another container."""
    folder = tmp_path / f".spanwise-build-{gone()}-abcdefgh"
    folder.mkdir()
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    remove_stale(tmp_path)
    assert folder.is_dir()
    os.close(lock)
    remove_stale(tmp_path)
    assert not folder.exists()


def test_killed_between_the_renames(tmp_path: Path) -> None:
    """What was there had left its place: it goes back, and is not removed."""
    folder = tmp_path / f".spanwise-build-{gone()}-abcdefgh"
    for name in ("old", "out"):
        (folder / name).mkdir(parents=True)
        (folder / name / "build.json").write_text(name)
    (folder / "place").write_text("mine")
    remove_stale(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine/build.json").read_text() == "old"
