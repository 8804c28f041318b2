# SPDX-License-Identifier: Apache-2.0
"""Recordings of programs that end abruptly, and messages of commands about gaps."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.recordings import programs, recorder

from tests.python.helpers import make_ops, needs_python_malloc, needs_recorder, spanwise

SHUT = """
import resource
kept = [bytes(600) for _ in range(9000)]
resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
"""


@needs_recorder()
@needs_python_malloc()
def test_a_disk_that_was_full_at_the_end_is_named(tmp_path: Path) -> None:
    """The last events and the end mark could not be written by the program."""
    place = tmp_path / "a.swt"
    words: list[str | Path] = ["--stacks", "0", "-o", place, "--"]
    words += [sys.executable, "-S", "-c", SHUT]
    done = spanwise("record", *words)
    assert done.returncode == 1
    assert "are missing: the disk was full, or the file at its size limit" in done.stderr
    assert "it has no end" not in done.stderr
    summary = sw.Recording.open(place).summary
    assert not summary.incomplete and summary.dropped_calls > 0 < summary.allocs
    assert "the disk was full" in spanwise("ledger", place).stderr


# --- programs that end abruptly -------------------------------------------------------------------


@needs_recorder()
@pytest.mark.parametrize("signal", [9, 11])
def test_a_program_that_a_signal_ended(tmp_path: Path, signal: int) -> None:
    """What is recorded of it: tests/recorder/test_sudden.py."""
    path = tmp_path / "a.swt"
    done = spanwise("record", "-o", path, "--", "sh", "-c", f"kill -{signal} $$")
    assert sw.Recording.open(path).summary.gaps() == []
    assert done.stderr.splitlines()[:-1] == [f"the program was ended by signal {signal}"]
    assert done.returncode == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.swt"]


@needs_recorder()
@pytest.mark.parametrize("there", [True, False])
def test_areas_go_where_memory_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Without such a place they are next to the output; no file remains in either."""
    if not there:
        monkeypatch.setattr(recorder, "_MEMORY", str(tmp_path / "nowhere"))
    elif not Path(recorder._MEMORY).is_dir():
        pytest.skip(f"no {recorder._MEMORY} on this machine")
    printed = tmp_path / "printed"
    script = f'echo "$SPANWISE_RECORD_AREAS" >{printed}; kill -9 $$'
    recording = sw.record(["sh", "-c", script], tmp_path / "a.swt")
    areas = Path(printed.read_text().rstrip("\n"))
    assert areas.parent == (Path(recorder._MEMORY) if there else tmp_path)
    assert not areas.exists()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.swt", "printed"]
    assert recording.summary.allocs > 0 and not recording.summary.incomplete


def test_runtimes(tmp_path: Path) -> None:
    assert programs.runtime_of("/usr/lib/jvm/lib/server/libjvm.so") == "the Java virtual machine"
    assert programs.runtime_of("/bin/ls") == ""
    assert programs.runtime_of(str(tmp_path)) == ""
    whole = Path("/bin/ls").read_bytes()
    for length in [*range(0, 200, 7), len(whole) // 2, len(whole) - 100]:
        (tmp_path / "cut").write_bytes(whole[:length])
        assert programs.runtime_of(str(tmp_path / "cut")) == ""
    for place in range(32, 64):
        (tmp_path / "bad").write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
        assert programs.runtime_of(str(tmp_path / "bad")) == ""


# --- what commands say of gaps --------------------------------------------------------------------

CUT = "it has no end: what the program did last is missing"


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A recording whose last bytes are missing."""
    rows = [(0, i, 100 + i % 50) for i in range(20_000)]
    path = tmp_path / "cut.swt"
    sw.Recording.from_ops(make_ops(*rows), path)
    path.write_bytes(path.read_bytes()[:-60])
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["ledger"],
        ["ledger", "--json"],
        ["compare"],
        ["compare", "--json"],
        ["replay", "--drain", "0.01"],
        ["replay", "--ledger"],
        ["sweep", "--table", "go", "--workers", "1"],
    ],
)
def test_a_result_of_a_cut_recording_is_a_finding(cut: Path, words: list[str]) -> None:
    done = spanwise(*words, cut, "--valid-prefix")
    assert done.returncode == 1, done.stderr
    assert f"spanwise: cut.swt: {CUT}" in done.stderr.splitlines()
    assert len(done.stdout.splitlines()) > 3
    if "--json" in words:
        json.loads(done.stdout)


@pytest.mark.parametrize(
    "words",
    [
        ["ledger"],
        ["compare"],
        ["sweep", "--table", "go", "--workers", "1"],
        ["replay"],
        ["replay", "--ledger"],
        ["optimize"],
    ],
)
def test_an_empty_recording_is_a_finding(tmp_path: Path, words: list[str]) -> None:
    sw.Recording.from_ops(make_ops(), tmp_path / "none.swt")
    done = spanwise(*words, tmp_path / "none.swt")
    assert done.returncode == 1, done.stderr
    assert "spanwise: none.swt: it holds no events" in done.stderr.splitlines()
    assert "Traceback" not in done.stderr
