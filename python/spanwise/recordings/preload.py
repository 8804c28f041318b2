# SPDX-License-Identifier: Apache-2.0
"""How a program is started with a library of ours preloaded, and waited for."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from spanwise import errors
from spanwise.recordings.programs import Program


def words_of(argv: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Program and arguments as text.

    Raises:
        InvalidError: it is no list, or an empty one.
    """
    if isinstance(argv, str | bytes) or not argv:
        raise errors.InvalidError("argv must be a list: the program, then its arguments")
    return [os.fspath(word) for word in argv]


def seen_from(name: str, cwd: str | os.PathLike[str] | None) -> str:
    """A relative path with a slash is relative to the program's folder."""
    return str(Path(cwd, name)) if cwd is not None and os.sep in name else name


def python_variables(program: Program, keep_pymalloc: bool) -> dict[str, str]:
    """The variables that make a CPython program take each object from malloc."""
    return {"PYTHONMALLOC": "malloc"} if program.may_be_python and not keep_pymalloc else {}


def preload_of(library: Path, env: Mapping[str, str]) -> str:
    """LD_PRELOAD with a library of ours before those of an environment."""
    return ":".join(filter(None, (str(library), env.get("LD_PRELOAD"))))


def wait_for(child: subprocess.Popen[bytes], meanwhile: Callable[[], object] = lambda: None) -> int:
    """Waits for a program; returns its exit status. An exception (Ctrl-C) ends the program.

    Args:
        child: the program.
        meanwhile: is called first.
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

    A terminal sends Ctrl-C to the program as well, which may have its own answer: the first is left
    to it, the second ends it, the third kills it. SIGTERM and SIGHUP may come to us alone and are
    sent on. A signal that was ignored before (nohup) stays so. Once all programs have ended, the
    second Ctrl-C since then is a KeyboardInterrupt: work on what they left can be given up.

    Args:
        children: the programs; the caller adds them as they start.
        second: what the second Ctrl-C sends them.

    Yields:
        The signals that came, in order.
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
