# SPDX-License-Identifier: Apache-2.0
"""`spanwise sweep`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.__main__ import main

from tests.python.helpers import spanwise


def test_command(files: list[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        sw.SizeClassTable.custom([16, 64, ord(name) * 16, 8192], name=name).to_json(
            tmp_path / f"{name}.json"
        )
    path = tmp_path / "s.jsonl"
    words = ["sweep", *files, "--table", "go", "--table", str(tmp_path / "*.json")]
    words += ["-o", str(path)]
    done = spanwise(*words)
    assert done.returncode == 0, done.stderr
    assert "sweep of 2 recordings under 3 tables" in done.stdout
    assert "6 rows in" in done.stderr
    again = spanwise(*words, "--json", "--plot", tmp_path / "s.png", "--by", "roundup_bytes")
    assert again.returncode == 0, again.stderr
    assert len(json.loads(again.stdout)["rows"]) == 6
    assert "6 rows were there" in again.stderr
    assert (tmp_path / "s.png").stat().st_size > 1000


def test_command_with_failures_and_bad_input(files: list[str], tmp_path: Path) -> None:
    words: list[str]
    failed = spanwise("sweep", files[0], "--table", "go", "--table", tmp_path / "absent.json")
    assert failed.returncode == 1 and "failed:" in failed.stdout
    for words in (
        ["absent.swt"],
        [files[0], "--table", "nonsense"],
        [files[0], "--table", "absent*.json"],
        [files[0], "--executor", "abacus"],
        [files[0], "--by", "nonsense"],
        [files[0], "--workers", "0"],
        [files[0], "-o", files[1]],
    ):
        bad = spanwise("sweep", *words, cwd=tmp_path)
        assert bad.returncode == 2, words
        assert bad.stderr.startswith("spanwise: ") and bad.stderr.count("\n") == 1, words


def test_command_without_dask(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["sweep", files[0], "--executor", "dask"]) == 2
    assert "pip install 'spanwise[cluster]'" in capsys.readouterr().err
