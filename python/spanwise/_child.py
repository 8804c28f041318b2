# SPDX-License-Identifier: Apache-2.0
"""Programs that are started with a library of ours preloaded: words, environment, waiting."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from spanwise import errors
from spanwise._program import Program


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
    """What makes a CPython program take each object from malloc."""
    return {"PYTHONMALLOC": "malloc"} if program.may_be_python and not keep_pymalloc else {}


def preload_of(library: Path, env: Mapping[str, str]) -> str:
    """LD_PRELOAD with a library of ours before those of an environment."""
    return ":".join(filter(None, (str(library), env.get("LD_PRELOAD"))))


def wait_for(child: subprocess.Popen[bytes]) -> int:
    """Its exit status. The program does not outlive an exception here, Ctrl-C for one."""
    try:
        return child.wait()
    except BaseException:
        try:
            child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise


@contextmanager
def passing_on(children: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Handlers of Ctrl-C and SIGTERM while programs run; these start with the system's.

    A terminal sends Ctrl-C to the program as well, which may have its own answer: the first is left
    to it, the second ends it, the third kills it. SIGTERM comes to us alone and is sent on.
    """
    interrupts = 0

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        for child in children:
            if interrupts == 2:
                child.terminate()
            elif interrupts > 2:
                child.kill()

    def terminated(number: int, frame: FrameType | None) -> None:
        for child in children:
            child.terminate()

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, interrupted),
        signal.SIGTERM: signal.signal(signal.SIGTERM, terminated),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
