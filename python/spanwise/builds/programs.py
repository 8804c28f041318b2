# SPDX-License-Identifier: Apache-2.0
"""Starts and ends the programs of a build.

Each program has its own process group, so a compiler's children end with it. Ctrl-C and SIGTERM
therefore reach only the build, which ends all programs. A handler notes the signal
(results/jobs.py), and `run_steps` polls for it.

A build that is killed cannot end its programs. So a shell in each group reads from a pipe that only
the build holds open, and kills the group when the pipe closes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

from spanwise.errors import SpanwiseError
from spanwise.results.jobs import LOOK_SECONDS, raise_what_came

_STEP_SECONDS = 600
_GRACE_SECONDS = 2
_WATCHED = """
exec 3<&0 </dev/null
{ trap '' TERM; read -r line; kill -KILL 0; } <&3 3<&- >/dev/null 2>&1 &
"$@" 3<&-
status=$?
{ kill -KILL $!; wait $!; } 2>/dev/null
exit $status
"""
"""A shell script that runs a program, and kills it when the other end of stdin is closed."""


class BuildError(SpanwiseError, RuntimeError):
    """A build failed and left nothing behind. The message names the step and the fix."""


@dataclass(frozen=True)
class Step:
    """A program to run.

    Attributes:
        words: program and arguments.
        what: the step's name in messages.
        env: its environment; None: that of this process.
    """

    words: Sequence[object]
    what: str
    env: dict[str, str] | None = None


def run_step(words: Sequence[object], what: str, env: dict[str, str] | None = None) -> str:
    """Run a program of a build; return its standard output."""
    return run_steps([Step(words, what, env)], 1)[0]


def run_steps(steps: Sequence[Step], jobs: int) -> list[str]:
    """Run programs, up to `jobs` in parallel; the first failure, or Ctrl-C, ends all."""
    running = Running()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            tasks = [pool.submit(running.run, step) for step in steps]
            done = _wait_for(tasks)
            # Report a failed program first: others may still run.
            failed = [task for task in tasks if task in done and task.exception() is not None]
            return [task.result() for task in failed or tasks]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop()
            raise


def _wait_for(tasks: Sequence[Future[str]]) -> set[Future[str]]:
    """Wait until all programs have ended or one has failed; return the ended ones.

    Polls for signals, which do not wake the wait.
    """
    while True:
        raise_what_came()
        done, rest = wait(tasks, LOOK_SECONDS, FIRST_EXCEPTION)
        if not rest or any(task.exception() is not None for task in done):
            return done


class Running:
    """The running programs of some steps. After `stop`, none is running and none can start."""

    def __init__(self) -> None:
        self._children: set[subprocess.Popen[str]] = set()
        self._stopped = False
        self._changed = threading.Condition()  # guards the two fields above

    def run(self, step: Step) -> str:
        """Run a program to its end; return its standard output. Called by worker threads."""
        child, lifeline = self._start(step)
        try:
            out, complaint = _outputs(child)
        except subprocess.TimeoutExpired:
            raise BuildError(f"{step.what}: did not end within {_STEP_SECONDS} s") from None
        finally:
            os.close(lifeline)
            with self._changed:
                self._children.discard(child)
                self._changed.notify_all()
        if child.returncode != 0:
            raise BuildError(f"{step.what}: {_error_line(complaint) or f'exit {child.returncode}'}")
        return out

    def stop(self) -> None:
        """End every program with SIGTERM, or with SIGKILL after two seconds."""
        with self._changed:
            self._stopped = True
            for number in (signal.SIGTERM, signal.SIGKILL):
                for child in self._children:
                    _send(child, number)
                if self._changed.wait_for(lambda: not self._children, _GRACE_SECONDS):
                    return

    def _start(self, step: Step) -> tuple[subprocess.Popen[str], int]:
        """Start a program under its watcher; the returned pipe end kills both when closed."""
        words = [str(word) for word in step.words]
        if shutil.which(words[0], path=(step.env or os.environ).get("PATH")) is None:
            raise BuildError(f"{step.what}: {words[0]}: there is no such program")
        with self._changed:
            if self._stopped:
                raise BuildError(f"{step.what}: not started, the build is ending")
            watched, lifeline = os.pipe()
            try:
                child = subprocess.Popen(
                    ["/bin/sh", "-c", _WATCHED, "sh", *words],
                    stdin=watched,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    env=step.env,
                    start_new_session=True,
                )
            except OSError as error:
                os.close(lifeline)
                raise BuildError(f"{step.what}: /bin/sh: {error.strerror}") from None
            finally:
                os.close(watched)
            self._children.add(child)
            return child, lifeline


def _outputs(child: subprocess.Popen[str]) -> tuple[str, str]:
    """Return stdout and stderr of a program; an exception during the wait kills it."""
    with child:
        try:
            return child.communicate(timeout=_STEP_SECONDS)
        finally:
            if child.returncode is None:
                _send(child, signal.SIGKILL)


def _send(child: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to a program's process group, which exists until its output has been read."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _error_line(complaint: str) -> str:
    """Return the line of a compiler's output that has the error."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    errors = (line for line in lines if re.search(r"\b(error|undefined|No space)\b", line))
    return next(errors, lines[-1] if lines else "")
