# SPDX-License-Identifier: Apache-2.0
"""Start a program with a preloaded library, wait for it, and pass signals on."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from spanwise import errors
from spanwise.recordings.programs import Program


def words_of(argv: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return program and arguments as text."""
    if isinstance(argv, str | bytes) or not argv:
        raise errors.InvalidError("argv must be a list: the program, then its arguments")
    return [os.fspath(word) for word in argv]


def seen_from(name: str, cwd: str | os.PathLike[str] | None) -> str:
    """Resolve a relative path with a slash against the program's working directory."""
    return str(Path(cwd, name)) if cwd is not None and os.sep in name else name


def python_variables(program: Program, keep_pymalloc: bool) -> dict[str, str]:
    """Return the variables that make a CPython program allocate all objects with malloc."""
    return {"PYTHONMALLOC": "malloc"} if program.may_be_python and not keep_pymalloc else {}


def preload_of(library: Path, env: Mapping[str, str]) -> str:
    """Return LD_PRELOAD with our library before those of an environment."""
    return ":".join(filter(None, (str(library), env.get("LD_PRELOAD"))))


def wait_for(child: subprocess.Popen[bytes], meanwhile: Callable[[], object] = lambda: None) -> int:
    """Calls `meanwhile`, then waits for a program and returns its exit status.

    An exception (Ctrl-C) ends the program.
    """
    try:
        meanwhile()
        return child.wait()
    except BaseException:
        try:
            child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise


@contextmanager
def passing_on(
    children: list[subprocess.Popen[bytes]], second: signal.Signals = signal.SIGTERM
) -> Iterator[list[int]]:
    """Handles Ctrl-C, SIGTERM and SIGHUP while programs run, which start with default handlers.

    A terminal sends Ctrl-C to the program as well, which may handle it. So the first one does
    nothing here, the second ends the program, the third kills it. SIGTERM and SIGHUP may come to us
    alone and are forwarded. A signal that was ignored before (nohup) stays ignored. Once all
    programs have ended, the second Ctrl-C raises KeyboardInterrupt, to cancel work on their output.
    """
    heard: list[int] = []
    late = 0

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal late
        heard.append(number)
        if children and all(child.poll() is not None for child in children):
            late += 1
            if late > 1:
                raise KeyboardInterrupt
        elif heard.count(number) > 1:
            _send(children, second if heard.count(number) == 2 else signal.SIGKILL)

    def terminated(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        _send(children, number)

    handlers = {
        signal.SIGINT: interrupted,
        signal.SIGTERM: terminated,
        signal.SIGHUP: terminated,
    }
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield heard
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _send(children: list[subprocess.Popen[bytes]], number: int) -> None:
    for child in children:
        child.send_signal(number)


# --- shells ---------------------------------------------------------------------------------------
#
# The exit status of `a | b` is that of b alone, so a run would seem good although `a` crashed.

SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_PIPEFAIL = ("-o", "pipefail")
_LINE_BYTES = 256
"""Bytes of a script to read for its #! line."""


PIPE_CLOSED = 128 + signal.SIGPIPE
"""Status of a pipeline whose reader ended first (`job | head`), which is not a failure."""


def with_pipefail(
    argv: Sequence[str], search_path: str | None, folder: str | os.PathLike[str]
) -> list[str]:
    """Return the command with `pipefail` set if it is a shell or shell script with a pipeline.

    A shell without that option (dash before 0.5.13) is replaced by bash in POSIX mode. Without
    bash the command is unchanged.
    """
    words = _with_interpreter(list(argv), search_path, folder)
    if Path(words[0]).name not in SHELLS or not _has_pipeline(words, folder):
        return list(argv)
    if _knows_pipefail(words[0], search_path):
        return [words[0], *_PIPEFAIL, *words[1:]]
    if _knows_pipefail("bash", search_path):
        return ["bash", "--posix", *_PIPEFAIL, *words[1:]]
    return list(argv)


def _with_interpreter(
    words: list[str], search_path: str | None, folder: str | os.PathLike[str]
) -> list[str]:
    """Return the words that the kernel runs for a script; other commands are unchanged."""
    relative = os.sep in words[0]
    path = words[0] if relative else shutil.which(words[0], path=search_path) or words[0]
    try:
        with Path(folder, path).open("rb") as file:
            head = file.read(_LINE_BYTES)
    except OSError:
        return words
    if not head.startswith(b"#!"):
        return words
    line = os.fsdecode(head[2:].split(b"\n", 1)[0]).split(maxsplit=1)
    if line and Path(line[0]).name == "env" and len(line) > 1 and " " not in line[1].strip():
        line = [line[1].strip()]
    return [*line, path, *words[1:]] if line else words


def _has_pipeline(words: list[str], folder: str | os.PathLike[str]) -> bool:
    """Return whether "|" is in the words or in the script that they name, perhaps in a string."""
    if any("|" in word for word in words):
        return True
    for word in words[1:]:
        with suppress(OSError, ValueError):
            if b"|" in Path(folder, word).read_bytes():
                return True
            break  # the script; its arguments follow
    return False


@functools.cache
def _knows_pipefail(shell: str, search_path: str | None) -> bool:
    found = shutil.which(shell, path=search_path)
    if found is None:
        return False
    words = [found, *_PIPEFAIL, "-c", ":"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
