# SPDX-License-Identifier: Apache-2.0
"""Sweeps: streamed to a file, resumed, and never lost."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.sweeps import tasks

from tests.python.sweeps.sweep_tools import TABLES, expected, lines_of, settled

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


def test_a_sweep_goes_on(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], TABLES[:2], output=path)
    before = path.read_bytes()
    counts: list[int] = []
    found = sw.sweep(files, TABLES, output=path, progress=counts.append)
    assert sum(counts) == 8
    assert path.read_bytes().startswith(before)
    assert settled(found) == expected(files)
    assert "2 rows reused" in found.notes
    after = path.read_bytes()
    assert settled(sw.sweep(files, TABLES, output=path)) == settled(found)
    assert path.read_bytes() == after  # nothing to do: nothing written


def test_a_cut_line_is_dropped(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    wanted = settled(sw.sweep(files[0], TABLES[:3], output=path, workers=1))
    whole = path.read_bytes()
    for cut in [*range(1, 40), *range(40, len(whole), 97)]:
        path.write_bytes(whole[:cut])
        complete = whole[:cut].endswith(b"\n")
        assert bool(sw.Sweep.open(path).notes) == (not complete), cut
    for cut in (1, 30, len(whole) - 1, len(whole) - 400):
        path.write_bytes(whole[:cut])
        found = sw.sweep(files[0], TABLES[:3], output=path)
        assert settled(found) == wanted
        assert any("was truncated; it is dropped" in note for note in found.notes), cut
        assert not sw.Sweep.open(path).notes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("notes of mine\n", "not the file of a sweep"),
        ('{"kind": "spanwise sweep", "format": 2}\n', "line 1: format 2"),
        ("HEAD{}\nHEAD", "line 2, byte"),
        ('HEAD{"kind": "row"}\nHEAD', "without recording"),
    ],
)
def test_other_files_are_left_alone(
    files: list[str], tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], "go", output=path)
    head = path.read_text(encoding="utf-8").splitlines(keepends=True)[0]
    path.write_text(content.replace("HEAD", head), encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(sw.InvalidError, match=message) as caught:
        sw.sweep(files[0], "go", output=path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_a_file_has_one_moment_and_one_writer(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], "go", output=path)
    with pytest.raises(sw.InvalidError, match="holds a sweep with at peak, not end"):
        sw.sweep(files[0], "go", output=path, at="end")
    with pytest.raises(sw.InvalidError, match="options"):
        sw.sweep(files[0], "go", output=path, options=sw.HeapOptions(decay_ms=3))

    def second(_count: int) -> None:
        with pytest.raises(sw.StateError, match="another sweep writes to it"):
            sw.sweep(files[0], "c16", output=path)

    sw.sweep(files[0], "pow2", output=path, progress=second)
    with pytest.raises(sw.InvalidError, match="not a regular file"):
        sw.sweep(files[0], "go", output="/dev/null")


def changed(path: Path, **fields: object) -> bytes:
    """The file with other fields in its header, as another build or machine would write it."""
    head, *rows = lines_of(path)
    path.write_text("\n".join(map(json.dumps, ({**head, **fields}, *rows))) + "\n")
    return path.read_bytes()


@pytest.mark.parametrize("version", ["0.0.1", f"{sw.__version__}.1"])
def test_rows_of_another_version_are_not_continued(
    files: list[str], tmp_path: Path, version: str
) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], "go", output=path)
    before = changed(path, versions={"spanwise": version})
    said = f"{path}: made by spanwise {version}, this is {sw.__version__}; give another file"
    for tables in ("go", ["go", "c16"]):
        with pytest.raises(sw.InvalidError) as caught:
            sw.sweep(files[0], tables, output=path)
        assert str(caught.value) == said
    assert path.read_bytes() == before
    assert len(sw.Sweep.open(path)) == 1  # it may still be read


@pytest.mark.parametrize("field", ["build", "commit"])
def test_rows_of_another_build_are_continued_with_a_note(
    files: list[str], tmp_path: Path, field: str
) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], "go", output=path)
    commit = lines_of(path)[0]["commit"] or "unknown"
    changed(path, **{field: "0123"})
    found = sw.sweep(files[0], ["go", "c16"], output=path)
    made = "0123" if field == "commit" else commit
    note = f"{path}: its rows were made by another build of spanwise {sw.__version__}"
    assert f"{note} (commit {made})" in found.notes
    assert "1 row reused" in found.notes
    heads = [line for line in lines_of(path) if line["kind"] == "spanwise sweep"]
    assert [head[field] == "0123" for head in heads] == [True, False]


def test_failed_rows_are_done_again(files: list[str], tmp_path: Path) -> None:
    """Of two rows one is made a failed one: it is the only work, and it takes its place."""
    path = tmp_path / "s.jsonl"
    first = sw.sweep(files[0], ["go", "c16"], output=path)
    head, *rows = lines_of(path)
    failed = [row | {"error": "it broke"} if row["table"] == "go" else row for row in rows]
    path.write_text("\n".join(map(json.dumps, (head, *failed))) + "\n")
    assert [row["table"] for row in sw.Sweep.open(path).failures] == ["go"]
    counts: list[int] = []
    again = sw.sweep(files[0], ["go", "c16"], output=path, progress=counts.append)
    assert sum(counts) == 1 and settled(again) == settled(first)
    assert len(lines_of(path)) == 1 + 2 + 2  # a header and a row more


def test_a_full_disk_keeps_written_rows(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], "go", output=path)
    before = path.read_bytes()

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left") as caught:
            sw.sweep(files[0], TABLES, output=path)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert len(sw.sweep(files[0], TABLES, output=path)) == len(TABLES)


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
    assert settled(sw.sweep(files, TABLES, output=path)) == expected(files)


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
        sw.sweep(sys.argv[1], tables, executor=sys.argv[2], output=sys.argv[3], workers=2,
                 progress=progress)
    if __name__ == "__main__":
        main()
"""


def assert_ends(pid: int) -> None:
    """Check that a worker ends after its parent."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            return
        if text.rpartition(")")[2].split()[0] == "Z":  # in a container without an init
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} is still there")


@pytest.mark.parametrize("executor", ["threads", "processes"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_sweep_goes_on(tmp_path: Path, executor: str, number: signal.Signals) -> None:
    long = tmp_path / "long.swt"
    ops = np.zeros(100_000, sw.OPS_DTYPE)
    ops["kind"][1::2] = 1
    ops["size"][0::2] = 100
    sw.Recording.from_ops(ops, long)
    script, path = tmp_path / "long.py", tmp_path / "s.jsonl"
    script.write_text(textwrap.dedent(LONG_SWEEP), encoding="utf-8")
    words = [sys.executable, str(script), str(long), executor, str(path)]
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
    for pid in {int(row["worker"].rpartition(":")[2]) for row in before}:
        assert_ends(pid)
    tables = [f"geometric-{1.2 + i / 1000:.3f}" for i in range(200)]
    counts: list[int] = []
    found = sw.sweep(str(long), tables, output=path, progress=counts.append)
    # Tables that differ by a thousandth may be equal: those are done once.
    assert not found.failures
    assert len(found) - sum(counts) == kept
