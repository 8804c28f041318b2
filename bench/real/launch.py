# SPDX-License-Identifier: Apache-2.0
"""Runs one command through bench/real/launch.c and reads what it used."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import BenchError

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Usage:
    """What a finished command used.

    Attributes:
        wall_s: from start to end, seconds.
        cpu_s: user and system time of the command and its children, seconds.
        peak_rss_bytes: of its largest process.
        error: "" after exit status 0, else how it ended.
    """

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    error: str = ""


def build_launcher(folder: Path) -> Path:
    """Compiles the launcher into the folder.

    Raises:
        BenchError: no C compiler, or it fails.
    """
    program = folder / "launch"
    command = ["cc", "-std=c11", "-O2", "-o", str(program), str(HERE / "launch.c")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchError(f"cc: {error.strerror}; apt-get install gcc") from error
    if done.returncode != 0:
        raise BenchError(f"{HERE / 'launch.c'}: {(done.stderr.splitlines() or ['cc failed'])[-1]}")
    return program


def environment(home: Path, added: Mapping[str, str]) -> dict[str, str]:
    """All that a program gets: no option of any allocator, no locale of this user."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TZ": "UTC", **added}


def start(
    launcher: Path, preload: str, command: Sequence[str], cwd: Path, added: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own.

    Args:
        launcher: of build_launcher.
        preload: value of LD_PRELOAD for the command.
        command: words.
        cwd: its folder; `stdout`, `stderr` and `report` go to the parent of that.
        added: to the environment.
    """
    report = cwd.parent / "report"
    with (report.parent / "stdout").open("wb") as out, (report.parent / "stderr").open("wb") as err:
        return subprocess.Popen(
            [launcher, report, preload, *command],
            cwd=cwd,
            env=environment(cwd, added),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def finish(process: subprocess.Popen[bytes], cwd: Path, timeout_s: float = TIMEOUT_S) -> Usage:
    """Waits for a command of start() and reads its usage; kills its session at the time limit.

    Whatever ends the wait (Ctrl-C too), nothing of the session stays behind.
    """
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return Usage(timeout_s, 0.0, 0, f"did not end within {timeout_s:.0f} s")
    finally:
        stop(process)
    return read_usage(cwd.parent / "report")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kills the session of start() unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read_usage(report: Path) -> Usage:
    """Parses the line of launch.c."""
    try:
        kind, *numbers = report.read_text(encoding="ascii").split()
        number, wall_ns, user_us, system_us, peak_kb = map(int, numbers)
    except (OSError, ValueError):
        return Usage(0.0, 0.0, 0, "the launcher wrote no report")
    error = "" if (kind, number) == ("exit", 0) else f"ended with {kind} {number}"
    if kind == "signal":
        error = f"ended with signal {number} ({signal.strsignal(number) or 'unknown'})"
    return Usage(wall_ns * 1e-9, (user_us + system_us) * 1e-6, peak_kb * 1024, error)
