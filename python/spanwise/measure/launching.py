# SPDX-License-Identifier: Apache-2.0
"""Run a command once; measure its times and the peak RSS of its largest process, hash its stdout.

`spanwise-rusage` (src/rusage_wrapper/main.c) starts it, because a direct child of Python would
report the peak RSS of Python itself.
"""

from __future__ import annotations

import array
import fcntl
import hashlib
import os
import select
import signal
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from spanwise import _lib
from spanwise.recordings.launch import PIPE_CLOSED, with_pipefail
from spanwise.results.jobs import raise_what_came

RUSAGE_WRAPPER = "spanwise-rusage"
CHUNK_BYTES = 1 << 20
"""Size of the pipe and of one read, so that the command rarely waits."""
POLL_S = 0.05
"""Interval of checks for the end of a command, since a remaining child may hold its stdout open."""

_SERVER = " (to compare a server, run a script that starts, loads and stops it)"


@dataclass(frozen=True)
class Usage:
    """The resource usage of a command.

    Attributes:
        elapsed_ns: from its start to its end.
        cpu_ns: user and system time of the command and its children.
        rss_bytes: peak RSS of its largest process.
        anonymous_bytes: its anonymous part in the largest sample.
        page_faults: of the same processes as cpu_ns.
        error: "" for exit status 0, else how it ended.
        output_sha256: SHA-256 of its stdout; "" if the wrapper did not report.
    """

    elapsed_ns: int
    cpu_ns: int
    rss_bytes: int
    anonymous_bytes: int
    page_faults: int
    error: str = ""
    output_sha256: str = ""


def launch(
    argv: Sequence[str],
    preload: str,
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str],
    timeout_s: float,
) -> Usage:
    """Run a command to its end; hash and drop its stdout.

    The hash is of the output until the command ends, even if a remaining child holds the pipe.
    A shell pipeline fails if any of its commands does (`with_pipefail`).
    """
    program = _lib.native_library(RUSAGE_WRAPPER)
    words = with_pipefail(argv, env.get("PATH"), cwd)
    kept = {name: value for name, value in env.items() if name != "LD_PRELOAD"}
    with (
        tempfile.NamedTemporaryFile(prefix="spanwise-usage-") as report,
        tempfile.TemporaryFile() as complaint,
    ):
        child = subprocess.Popen(
            [program, report.name, preload, *words],
            cwd=cwd,
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            bufsize=0,
            stderr=complaint,
            start_new_session=True,
        )
        try:
            output_sha256 = _hash_output(child, timeout_s)
        except subprocess.TimeoutExpired:
            return Usage(
                0,
                0,
                0,
                0,
                0,
                f"did not end within {timeout_s:g} s{_SERVER}",
            )
        finally:
            _end(child)
        complaint.seek(0)
        lines = complaint.read().decode("utf-8", "replace").strip().splitlines()
        allowed = (0, PIPE_CLOSED) if words != list(argv) else (0,)
        usage = _read(Path(report.name), lines[-1] if lines else "", allowed)
        return replace(usage, output_sha256=output_sha256)


@contextmanager
def dropped_output() -> Iterator[int]:
    """Yield a descriptor for stdout whose output is read and dropped.

    Programs such as grep and tar do less work if stdout is /dev/null.
    """
    end, descriptor = os.pipe()

    def drain() -> None:
        with open(end, "rb", buffering=0) as pipe:  # noqa: PTH123  a descriptor
            while pipe.read(CHUNK_BYTES):
                pass

    threading.Thread(target=drain, name="spanwise-drain", daemon=True).start()
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _hash_output(child: subprocess.Popen[bytes], timeout_s: float) -> str:
    """Read stdout until the child has ended; return its SHA-256."""
    assert child.stdout is not None
    pipe = child.stdout.fileno()
    with suppress(OSError):  # the system may refuse a larger pipe
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)
    found = hashlib.sha256()
    deadline = time.monotonic() + timeout_s
    readable = select.poll()
    readable.register(pipe, select.POLLIN)
    while child.poll() is None:
        raise_what_came()
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise subprocess.TimeoutExpired(child.args, timeout_s)
        if readable.poll(1000 * min(left_s, POLL_S)):
            chunk = os.read(pipe, CHUNK_BYTES)
            found.update(chunk)
            if not chunk:  # closed: the wrapper is about to end
                child.wait(left_s)
    # The pipe has the rest. Later output of a remaining process is not the command's.
    left = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, left)
    found.update(os.read(pipe, left[0]))
    return found.hexdigest()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the session if it still runs, and close the pipe."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _read(report: Path, complaint: str, allowed: tuple[int, ...]) -> Usage:
    """Read the wrapper's report.

    `complaint` is the last line of stderr; `allowed` are the exit statuses of a good run.
    """
    try:
        kind, *words = report.read_text(encoding="ascii").split()
        number, wall_ns, user_us, system_us, peak_kb, anonymous_kb, faults = map(int, words)
    except ValueError:
        return Usage(0, 0, 0, 0, 0, complaint or "the wrapper reported nothing")
    error = ""
    if kind == "signal":
        error = f"signal {number} ended it"
    elif number not in allowed:
        error = f"ended with {number}"
    if error and complaint:
        error = f"{error}: {complaint[:200]}"
    cpu_ns = 1000 * (user_us + system_us)
    return Usage(wall_ns, cpu_ns, peak_kb << 10, anonymous_kb << 10, faults, error)
