# SPDX-License-Identifier: Apache-2.0
"""Recordings of programs that end abruptly, and messages of commands about gaps."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.recordings import programs, recorder

from tests.python.helpers import make_ops, needs_python_malloc, needs_recorder, spanwise

CC = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler on this machine")

SUDDEN = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static void *kept[3000];
    for (int i = 0; i < 3000; i++) kept[i] = malloc(100);
    for (int i = 0; i < 1000; i++) free(kept[i]);
    for (int i = 0; argc > 2 && i < atoi(argv[2]); i++) if (fork() == 0) _exit(0);
    while (wait(NULL) > 0);
    if (argc > 3) {
        const char *areas = getenv("SPANWISE_RECORD_AREAS");
        if (write(open(argv[3], O_CREAT | O_WRONLY, 0600), areas, strlen(areas)) < 0) return 1;
    }
    if (argc > 1 && argv[1][0] == 'k') kill(getpid(), SIGKILL);
    if (argc > 1 && argv[1][0] == 's') *(volatile int *)8 = 0;
    syscall(SYS_exit_group, 0);
}
"""


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


@pytest.fixture(scope="module")
def sudden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that ends by a bare system call, or by a signal.

    Its arguments: how it ends, children that it forks, a file for the name of its areas' folder.
    """
    folder = tmp_path_factory.mktemp("sudden")
    (folder / "sudden.c").write_text(SUDDEN)
    assert CC is not None
    subprocess.run([CC, "-O0", "-o", folder / "sudden", folder / "sudden.c"], check=True)
    return folder / "sudden"


# --- programs that end without a word -------------------------------------------------------------


@needs_recorder()
@needs_compiler
@pytest.mark.parametrize(
    ("word", "status", "said"),
    [
        ("exit", 0, []),
        ("kill", 1, ["the program was ended by signal 9"]),
        ("segv", 1, ["the program was ended by signal 11"]),
    ],
)
def test_every_event_is_there(
    tmp_path: Path, sudden: Path, word: str, status: int, said: list[str]
) -> None:
    path = tmp_path / "a.swt"
    done = spanwise("record", "-o", path, "--", sudden, word)
    summary = sw.Recording.open(path).summary
    assert (summary.allocs, summary.frees, summary.calls) == (3000, 1000, 4000)
    assert summary.end_requested_bytes == 2000 * 100
    assert summary.gaps() == []
    assert done.stderr.splitlines()[:-1] == said
    assert done.returncode == status
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.swt"]


@needs_recorder()
@needs_compiler
def test_children_are_counted(tmp_path: Path, sudden: Path) -> None:
    recording = sw.record([sudden, "exit", "3"], tmp_path / "a.swt")
    assert recording.summary.children_unrecorded == 3


@needs_recorder()
@needs_compiler
@pytest.mark.parametrize("there", [True, False])
def test_areas_go_where_memory_is(
    tmp_path: Path, sudden: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Without such a place they are next to the output; no file remains in either."""
    if not there:
        monkeypatch.setattr(recorder, "_MEMORY", str(tmp_path / "nowhere"))
    elif not Path(recorder._MEMORY).is_dir():
        pytest.skip(f"no {recorder._MEMORY} on this machine")
    printed = tmp_path / "printed"
    recording = sw.record([sudden, "kill", "0", printed], tmp_path / "a.swt")
    areas = Path(printed.read_text())
    assert areas.parent == (Path(recorder._MEMORY) if there else tmp_path)
    assert not areas.exists()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.swt", "printed"]
    assert recording.summary.allocs == 3000


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
