# SPDX-License-Identifier: Apache-2.0
"""Builds that fail or are interrupted leave no process and no folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.builds import steps
from spanwise.builds.build import put_in_place
from spanwise.builds.steps import BuildError, run_step
from spanwise.results.jobs import Signals

from tests.python.helpers import lives, script, wait_for

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no cc; install gcc")

SLEEPS = "exec sleep 600"
IGNORES_SIGTERM = "trap '' TERM; sleep 600 & echo >$0.pids/$!; wait; exec sleep 600"

StartBuild = Callable[[str], "subprocess.Popen[str]"]


def compilers(folder: Path) -> list[int]:
    """Return the live processes of folder/cc-slow."""
    return [int(path.name) for path in (folder / "cc-slow.pids").iterdir() if lives(path.name)]


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartBuild]:
    """Starts a build in tmp_path/out and waits for its first compiler, which takes ten minutes."""
    pids = tmp_path / "cc-slow.pids"
    pids.mkdir()
    started: list[subprocess.Popen[str]] = []

    def started_build(how: str) -> subprocess.Popen[str]:
        body = f'case "$*" in *" -c "*) echo >$0.pids/$$; {how};; esac\nexec cc "$@"'
        words = ["build", "--table", "c16", "-o", str(tmp_path / "out"), "--jobs", "2"]
        child = subprocess.Popen(
            [sys.executable, "-m", "spanwise", *words, "--cc", script(tmp_path / "cc-slow", body)],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(child)
        wait_for(lambda: any(pids.iterdir()))
        return child

    yield started_build
    for child in started:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate(timeout=300)
    for pid in compilers(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def assert_nothing_is_left(child: subprocess.Popen[str], folder: Path, status: int) -> str:
    """Check that a build ends before its compilers would, and leaves nothing; return its output."""
    _, said = child.communicate(timeout=300)
    assert child.returncode == status
    assert compilers(folder) == []
    assert left_in(folder) == ["cc-slow", "cc-slow.pids"]
    return said


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [SLEEPS, IGNORES_SIGTERM], ids=["sleeps", "ignores-sigterm"])
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["alone", "group"])  # as a terminal does
def test_ctrl_c_leaves_nothing(
    start: StartBuild, tmp_path: Path, how: str, send: Callable[[int, int], None]
) -> None:
    child = start(how)
    send(child.pid, signal.SIGINT)
    said = assert_nothing_is_left(child, tmp_path, 130)
    assert said.endswith("spanwise: interrupted\n") and "Traceback" not in said


def test_a_signal_that_another_thread_takes(tmp_path: Path) -> None:
    """The main thread is not woken by it; it was heard when the compilers had ended."""
    began, mark = time.monotonic(), tmp_path / "mark"

    def take() -> None:
        wait_for(mark.exists)
        time.sleep(0.3)  # the main thread is in its wait by now
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    taker = threading.Thread(target=take)
    taker.start()
    with pytest.raises(KeyboardInterrupt), Signals() as signals, signals.heard():
        run_step(["sh", "-c", f"echo > {mark}; exec sleep 600"], "sleeping")
    taker.join()
    assert time.monotonic() - began < 300


# --- failures -------------------------------------------------------------------------------------


def test_the_first_failure_ends_the_other_compilers(tmp_path: Path) -> None:
    """The first of two takes ten minutes; the other, which fails, is not kept waiting for it."""
    (tmp_path / "cc-slow.pids").mkdir()
    body = (
        'case "$*" in *" -c "*) ;; *) exec cc "$@";; esac\n'
        f"if mkdir $0.first; then echo >$0.pids/$$; {SLEEPS}; fi\n"
        'echo "x.c:7: error: bad day" >&2; exit 1'
    )
    begin = time.monotonic()
    with pytest.raises(BuildError, match=r"compiling .*: x\.c:7: error: bad day"):
        sw.build("c16", tmp_path / "out", cc=script(tmp_path / "cc-slow", body), jobs=2)
    assert time.monotonic() - begin < 300 and compilers(tmp_path) == []
    assert left_in(tmp_path) == ["cc-slow", "cc-slow.first", "cc-slow.pids"]


def test_a_step_that_does_not_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its own children end with it."""
    note = tmp_path / "pid"
    for seconds in (0.5, 5.5, 50.5):  # until it has started a child
        monkeypatch.setattr(steps, "_STEP_SECONDS", seconds)
        with pytest.raises(BuildError, match=rf"^waiting: did not end within {seconds} s$"):
            run_step(["sh", "-c", f"sleep 600 & echo $! >{note}; wait"], "waiting")
        if note.exists() and note.read_text().strip():
            break
    pid = note.read_text().strip()
    wait_for(lambda: not lives(pid))


def test_a_program_that_does_not_start() -> None:
    with pytest.raises(BuildError, match=r"^looking: /no/such: there is no such program$"):
        run_step(["/no/such"], "looking")


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
