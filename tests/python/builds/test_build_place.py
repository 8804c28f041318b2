# SPDX-License-Identifier: Apache-2.0
"""The last step of a build: into its place, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from spanwise.builds.work import put_in_place


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
