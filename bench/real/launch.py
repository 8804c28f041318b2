# SPDX-License-Identifier: Apache-2.0
"""Runs one command through src/launch/main.c and reads what it used."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.errors import BenchError
from runner.launch import Usage, read_usage

SOURCE = Path(__file__).resolve().parents[2] / "src/launch/main.c"
TIMEOUT_S = 300.0


def build_launcher(folder: Path) -> Path:
    """Compiles the launcher into the folder.

    Raises:
        BenchError: no C compiler, or it fails.
    """
    program = folder / "launch"
    command = ["cc", "-std=c11", "-O2", "-o", str(program), str(SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchError(f"cc: {error.strerror}; apt-get install gcc") from error
    if done.returncode != 0:
        raise BenchError(f"{SOURCE}: {(done.stderr.splitlines() or ['cc failed'])[-1]}")
    return program


def environment(home: Path, added: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a program, without options of allocators or the user's locale."""
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
