# SPDX-License-Identifier: Apache-2.0
"""The real programs of ./dev bench --programs."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.bench.tools import BENCH


@pytest.fixture(scope="module")
def programs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_programs", BENCH / "programs/run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_program_is_complete(programs: ModuleType) -> None:
    rows = programs.load()
    assert len(rows) >= 8
    for row in rows:
        assert {"name", "needs", "command", "size", "quick"} <= row.keys(), row["name"]
        for word in (*row["command"], *row.get("prepare", ())):
            if word.startswith("{here}/"):
                assert (BENCH / "programs" / word.removeprefix("{here}/")).is_file(), word


def test_words_are_filled_in(programs: ModuleType, tmp_path: Path) -> None:
    words = programs.words_of(["sh", "{inputs}/a", "n={size}"], tmp_path, "7")
    assert words == [shutil.which("sh"), f"{tmp_path}/a", "n=7"]


def test_missing_packages_are_named(
    programs: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert programs.main(["--packages", "--only", "lua,redis"]) == 0
    assert capsys.readouterr().out == "lua5.4 redis-tools\n"


def test_a_wrong_name_is_refused(programs: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        programs.main(["--only", "nothing"])
    assert ended.value.code == 2
    assert "--only nothing: no such program" in capsys.readouterr().err


def test_a_program_runs_under_every_allocator(
    programs: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BENCH)  # main changes the folder; this restores it
    if shutil.which("sqlite3") is None:
        pytest.skip("no sqlite3")
    assert programs.main(["--only", "sqlite3", "--quick"]) == 0
    said = capsys.readouterr().out
    assert "sqlite3" in said and "glibc" in said and "spanwise" in said
