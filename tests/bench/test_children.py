# SPDX-License-Identifier: Apache-2.0
"""Child processes of bench/: none outlives a SIGINT that reaches bench/'s process alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from runner import children
from runner.errors import BenchError

from tests.bench.tools import BENCH

# What stands for valgrind: it tells that it runs, and does so much longer than the test waits.
SLOW = "#!/bin/sh\n{trap}echo $$ >> {marks}\nwhile :; do sleep 1; done\n"
PROGRAM = (
    '#!/bin/sh\ncase $1 in --list) printf "a 1\\nb 1\\n" ;; --classes) echo 8 ;; '
    '*) echo "$0: $1" >&2; exit 2 ;; esac\n'
)
COUNTS = """
from runner import counts
program = counts.Program(Path(sys.argv[1]))
counts.count_all([(program, "a"), (program, "b")])
"""
ANATOMY = """
from studies.anatomy import cli as anatomy_cli
anatomy_cli.measure(Path(sys.argv[1]), 8, 1, 0)
"""
START = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(BENCH)!r})
os.cpu_count = lambda: 2
"""


# Beyond what a busy machine takes: whoever waits for ever is ended then.
DEADLINE_S = 300


def _script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _numbers(marks: Path) -> list[int]:
    return [int(line) for line in marks.read_text().split()] if marks.exists() else []


@pytest.mark.parametrize("work", [COUNTS, ANATOMY], ids=["counts", "anatomy"])
@pytest.mark.parametrize("trap", ["", "trap '' TERM\n"], ids=["ends", "ignores SIGTERM"])
def test_sigint_to_the_process_alone_ends_every_valgrind(
    tmp_path: Path, work: str, trap: str
) -> None:
    marks = tmp_path / "marks"
    _script(tmp_path / "valgrind", SLOW.format(trap=trap, marks=marks))
    program = _script(tmp_path / "program", PROGRAM)
    child = subprocess.Popen(
        [sys.executable, "-c", START + work, str(program)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while len(_numbers(marks)) < 2 and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        started = _numbers(marks)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=DEADLINE_S)
    finally:
        child.kill()
        left = list(filter(_is_alive, _numbers(marks)))
        for number in left:
            os.kill(number, signal.SIGKILL)
    assert (len(started), left) == (2, []), said
    assert said.splitlines()[-1] == "KeyboardInterrupt"


def _sigint_to_this_thread(after: Path) -> None:
    """What the system does now and then: another thread than the main one takes the signal."""
    while not after.exists():
        time.sleep(0.01)
    time.sleep(0.3)  # the main thread is in its wait by now
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


@pytest.mark.parametrize("how", ["each", "run"])
def test_a_sigint_that_another_thread_takes_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The main thread is not woken by it: it waited until the children ended by themselves."""
    monkeypatch.setattr(children, "_stopping", threading.Event())
    mark = tmp_path / "mark"
    slow = ["/bin/sh", "-c", f"echo > {mark}; exec sleep {DEADLINE_S}"]
    taker = threading.Thread(target=_sigint_to_this_thread, args=(mark,))
    taker.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        if how == "run":
            children.run(slow)
        else:
            children.each(children.run, [slow], 2)
    taker.join()
    assert time.monotonic() - begun < DEADLINE_S
    assert not children._running


def test_a_failure_ends_the_others() -> None:
    begun = time.monotonic()

    def work(words: list[str]) -> str:
        done = children.run(words)
        if done.returncode != 0:
            raise BenchError(f"{words[0]} ended with {done.returncode}")
        return done.stdout

    with pytest.raises(BenchError, match="false ended with 1"):
        children.each(work, [["false"], ["sleep", "300"], ["sleep", "300"]], 2)
    assert time.monotonic() - begun < DEADLINE_S
    assert children.each(work, [["echo", "a"], ["echo", "b"]], 2) == ["a\n", "b\n"]


def test_what_a_program_is_given() -> None:
    assert children.run(["cat"], told="text\n").stdout == "text\n"
    done = children.run(["/bin/sh", "-c", 'echo "$A $LC_ALL $HOME"'], env={"A": "b"})
    assert done.stdout == "b C \n"
    assert children.run(["cat"]).stdout == ""
    with pytest.raises(BenchError, match=r"^no-such-program: No such file or directory$"):
        children.run(["no-such-program"])
