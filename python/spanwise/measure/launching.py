# SPDX-License-Identifier: Apache-2.0
"""A command is run once, and what it used is read: time, and memory of its largest process.

The program is `spanwise-launch` (src/launch/main.c), because a child of Python would report the
peak of Python's own memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spanwise import _lib
from spanwise.recordings.shells import PIPE_CLOSED, with_pipefail

LAUNCHER = "spanwise-launch"


@dataclass(frozen=True)
class Usage:
    """What a command used.

    Attributes:
        elapsed_ns: from its start to its end.
        cpu_ns: user and system time of the command and of the children that it waited for.
        rss_bytes: peak RSS of its largest process.
        anonymous_bytes: the part of it that is not backed by a file, in the sample with the most
            resident.
        page_faults: of the same processes as cpu_ns.
        error: "" after exit status 0, else how it ended.
    """

    elapsed_ns: int
    cpu_ns: int
    rss_bytes: int
    anonymous_bytes: int
    page_faults: int
    error: str = ""


def launch(
    argv: Sequence[str],
    preload: str,
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str],
    timeout_s: float,
) -> Usage:
    """Runs a command to its end; what it prints is thrown away.

    A pipeline of a shell fails if any of its commands does (`with_pipefail`).

    Args:
        argv: program and arguments.
        preload: value of LD_PRELOAD for the command alone, "" for none.
        env: all of its environment.
        cwd: its working folder.
        timeout_s: then it is killed with all that it started, and that is its error.

    Raises:
        UnsupportedError: the launcher is not installed.
    """
    program = _lib.native_library(LAUNCHER)
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
            stdout=subprocess.DEVNULL,
            stderr=complaint,
            start_new_session=True,
        )
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return Usage(0, 0, 0, 0, 0, f"did not end within {timeout_s:g} s")
        finally:
            _end(child)
        complaint.seek(0)
        said = complaint.read().decode("utf-8", "replace").strip().splitlines()
        allowed = (0, PIPE_CLOSED) if words != list(argv) else (0,)
        return _read(Path(report.name), said[-1] if said else "", allowed)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kills what is left of a session, whatever ended the wait for it."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _read(report: Path, said: str, allowed: tuple[int, ...]) -> Usage:
    """The launcher's line.

    Args:
        report: the file that it wrote.
        said: the last line of standard error.
        allowed: the exit statuses of a good run.
    """
    try:
        kind, *words = report.read_text(encoding="ascii").split()
        number, wall_ns, user_us, system_us, peak_kb, anonymous_kb, faults = map(int, words)
    except ValueError:
        return Usage(0, 0, 0, 0, 0, said or "the launcher reported nothing")
    error = ""
    if kind == "signal":
        error = f"signal {number} ended it"
    elif number not in allowed:
        error = f"ended with {number}"
    told = f"{error}: {said[:200]}" if error and said else error
    cpu_ns = 1000 * (user_us + system_us)
    return Usage(wall_ns, cpu_ns, peak_kb << 10, anonymous_kb << 10, faults, told)


__all__ = ["LAUNCHER", "Usage", "launch"]
