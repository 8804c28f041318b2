# SPDX-License-Identifier: Apache-2.0
"""Sweeps: rows go to a file as they finish, and stay there."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.sweeps import tasks

from tests.python.sweeps.sweep_tools import TABLES, lines_of, settled

# --- the file -------------------------------------------------------------------------------------


def test_rows_go_to_a_file(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    counts: list[int] = []
    found = sw.sweep(files, TABLES, output=path, progress=counts.append)
    head, *rows = lines_of(path)
    assert sum(counts) == len(rows) == len(found) == 10
    assert head["versions"]["spanwise"] == sw.__version__ and "commit" in head and head["build"]
    assert [one["path"] for one in head["recordings"]] == files
    assert [one["sha256"] for one in head["recordings"]] == [
        tasks.file_sha256(path) for path in files
    ]
    assert head["tables"][0]["hash"] == f"{sw.SizeClassTable.go().hash:016x}"
    assert {row.pop("kind") for row in rows} == {"row"}
    assert sorted(rows, key=str) == sorted(found, key=str)
    opened = sw.Sweep.open(path)
    assert sorted(opened, key=str) == sorted(found, key=str)
    assert opened.best() == found.best()


def test_a_cut_line_is_dropped(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], TABLES[:3], output=path, workers=1)
    whole = path.read_bytes()
    for cut in [*range(1, 40), *range(40, len(whole), 97)]:
        path.write_bytes(whole[:cut])
        complete = whole[:cut].endswith(b"\n")
        opened = sw.Sweep.open(path)
        assert bool(opened.notes) == (not complete), cut
        assert len(opened) == max(whole[:cut].count(b"\n") - 1, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("notes of mine\n", "not the file of a sweep"),
        ('{"kind": "spanwise sweep", "format": 2}\n', "line 1: format 2"),
        ("HEAD{}\nHEAD", "line 2: not a line of a sweep .neither header nor row.; remove it"),
        ('HEAD{"kind": "row"}\nHEAD', "without recording"),
    ],
)
def test_other_files_are_no_sweeps(
    files: list[str], tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], "go", output=path)
    head = path.read_text(encoding="utf-8").splitlines(keepends=True)[0]
    path.write_text(content.replace("HEAD", head), encoding="utf-8")
    with pytest.raises(sw.InvalidError, match=message) as caught:
        sw.Sweep.open(path)
    assert str(path) in str(caught.value)


def test_an_earlier_file_is_replaced_unless_it_is_of_another_kind(
    files: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], TABLES, output=path)
    found = sw.sweep(files[0], "go", output=path, at="end")
    assert settled(sw.Sweep.open(path)) == settled(found) and len(found) == 1
    path.write_text("notes of mine")
    for place in (path, files[1]):
        before = Path(place).read_bytes()
        with pytest.raises(sw.InvalidError, match="give another name"):
            sw.sweep(files[0], "go", output=place)
        assert Path(place).read_bytes() == before


def test_a_full_disk_keeps_written_rows(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write, calls = tmp_path / "s.jsonl", os.write, []

    def few_bytes_then_full(fd: int, raw: bytes) -> int:
        calls.append(fd)
        if len(calls) > 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, raw[:100])

    monkeypatch.setattr(os, "write", few_bytes_then_full)
    with pytest.raises(OSError, match="No space left") as caught:
        sw.sweep(files[0], TABLES, output=path, workers=1)
    monkeypatch.undo()
    assert caught.value.filename == str(path)
    assert 1 <= len(sw.Sweep.open(path)) < len(TABLES)


# --- stops ----------------------------------------------------------------------------------------


def test_an_interrupted_sweep_has_its_rows(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    rows = 0

    def interrupt(count: int) -> None:
        nonlocal rows
        rows += count
        if rows >= 4:
            raise KeyboardInterrupt

    with pytest.raises(sw.SweepInterrupted) as caught:
        sw.sweep(files, TABLES, output=path, workers=1, progress=interrupt)
    kept = len(caught.value.result)
    assert 4 <= kept < 10
    assert kept == len(sw.Sweep.open(path))


LONG_SWEEP = """
    import sys
    import time
    import numpy as np
    import spanwise as sw
    def main():
        tables = [f"geometric-{1.2 + i / 1000:.3f}" for i in range(200)]
        def progress(count):
            print(count, flush=True)
            if count >= 150:  # however late the signal is, there is something left to do
                time.sleep(600)
        sw.sweep(sys.argv[1], tables, output=sys.argv[2], workers=2, progress=progress)
    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_sweep_leaves_its_rows(tmp_path: Path, number: signal.Signals) -> None:
    long = tmp_path / "long.swt"
    ops = np.zeros(100_000, sw.OPS_DTYPE)
    ops["kind"][1::2] = 1
    ops["size"][0::2] = 100
    sw.Recording.from_ops(ops, long)
    script, path = tmp_path / "long.py", tmp_path / "s.jsonl"
    script.write_text(textwrap.dedent(LONG_SWEEP), encoding="utf-8")
    words = [sys.executable, str(script), str(long), str(path)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.kill()
        process.wait(300)
        assert process.returncode != 0
    before = sw.Sweep.open(path)
    kept = len(before)
    assert 0 < kept < 200
