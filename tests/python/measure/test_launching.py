# SPDX-License-Identifier: Apache-2.0
"""One run of a command: memory, times, errors, the hash of stdout, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from spanwise.measure import launching
from spanwise.measure.launching import launch

from tests.python.measure.bench_tools import BYTES, MIB


def used(tmp_path: Path, *argv: str, timeout_s: float = 300) -> Any:
    return launch(argv, "", env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path, timeout_s=timeout_s)


def test_memory_is_that_of_the_command(tmp_path: Path) -> None:
    """The memory excludes the Python that started the command, but includes its largest child."""
    ballast = bytearray(60 * MIB)
    small = used(tmp_path, "true")
    assert len(ballast) == 60 * MIB and small.error == ""
    assert 0 < small.rss_bytes < 8 * MIB
    for stays_s in (0.3, 3, 30):  # until a sample has seen them
        code = BYTES.replace("0.3", str(stays_s))
        large = used(tmp_path, "sh", "-c", f"{sys.executable} -S -c '{code}'; true")
        assert large.error == ""
        if large.anonymous_bytes > 32 * MIB:
            break
    for seen in (large.rss_bytes, large.anonymous_bytes):
        assert 32 * MIB < seen < 64 * MIB
    assert large.anonymous_bytes <= large.rss_bytes
    assert large.cpu_ns > 0 and large.elapsed_ns > 0
    assert large.page_faults > small.page_faults > 0


@pytest.mark.parametrize(
    ("words", "timeout_s", "error"),
    [
        (["sh", "-c", "echo bad >&2; exit 3"], 300, "ended with 3: bad"),
        (["sh", "-c", "kill -9 $$"], 300, "signal 9 ended it"),
        (
            ["no-such-program"],
            300,
            "ended with 2: spanwise-rusage: no-such-program: No such file or",
        ),
        (["sleep", "600"], 0.5, "did not end within 0.5 s"),
        (["yes"], 0.5, "did not end within 0.5 s"),
        (["sh", "-c", "exec >&-; exec sleep 600"], 0.5, "did not end within 0.5 s"),
    ],
)
def test_a_run_that_fails_says_how(
    tmp_path: Path, words: list[str], timeout_s: float, error: str
) -> None:
    assert used(tmp_path, *words, timeout_s=timeout_s).error.startswith(error)


ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"""SHA-256 of the bytes abc (FIPS 180-2, appendix B.1)."""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("printf abc", ""),
        ("printf a; sleep 0.1; printf bc", ""),
        ("printf abc; printf d >&2", ""),
        ("printf abc; exec >&-; sleep 0.1; exit 3", "ended with 3"),
        ("sleep 600 & echo $! > left; printf abc", ""),  # it keeps the pipe open
    ],
)
def test_stdout_is_hashed(tmp_path: Path, text: str, error: str) -> None:
    try:
        found = used(tmp_path, "sh", "-c", text)
    finally:
        for left in tmp_path.glob("left"):
            os.kill(int(left.read_text()), signal.SIGKILL)
    assert (found.output_sha256, found.error) == (ABC, error)


def test_output_in_the_pipe_after_the_end_is_hashed(tmp_path: Path) -> None:
    """A remaining process holds the pipe open."""
    words = ["sh", "-c", "sleep 600 & echo $! > left; printf abc"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0, cwd=tmp_path)
    try:
        child.wait()
        assert launching._hash_output(child, 300) == ABC
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
        launching._end(child)


def wait_for_end(pid: int) -> bool:
    """Wait for a killed process to end; a zombie has no command line."""
    for _ in range(3000):
        try:
            if not Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("work", ["yes", "sleep 600", "sleep 600 >&-"])
def test_ctrl_c_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    pid = tmp_path / "pid"
    started = threading.Event()
    real = launching._hash_output

    def hash_output(*arguments: Any) -> str:
        started.set()
        return real(*arguments)

    def interrupt() -> None:
        started.wait()
        while not pid.exists() or not pid.read_text().endswith("\n"):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(launching, "_hash_output", hash_output)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            used(tmp_path, "sh", "-c", f"echo $$ > pid; exec {work}")
    finally:
        thread.join()
    assert wait_for_end(int(pid.read_text()))
