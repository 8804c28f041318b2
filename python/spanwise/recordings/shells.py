# SPDX-License-Identifier: Apache-2.0
"""A shell that a command starts reports every failing member of its pipelines.

The exit status of `a | b` is that of b alone, so a run whose a crashed would pass for a good one.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_PIPEFAIL = ("-o", "pipefail")
_LINE_BYTES = 256
"""How much of a script is read for its #! line."""


PIPE_CLOSED = 128 + signal.SIGPIPE
"""Status of a pipeline whose reader ended first (`job | head`), which is no failure."""


def with_pipefail(
    argv: Sequence[str], search_path: str | None, folder: str | os.PathLike[str]
) -> list[str]:
    """The command, with `pipefail` set if it is a shell, or a script of one, with a pipeline.

    A shell without that option (dash before 0.5.13) is replaced by bash in POSIX mode. Without
    bash the command stays as it is.

    Args:
        argv: program and arguments.
        search_path: where the program is looked up; None: $PATH.
        folder: the working directory of the command.
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
    """The words that the kernel makes of a script; others as they are."""
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
    """Whether a bar is in the words or in the files that they name; it may be one of a text."""
    if any("|" in word for word in words):
        return True
    for word in words[1:]:
        with suppress(OSError, ValueError):
            if b"|" in Path(folder, word).read_bytes():
                return True
            break  # the script; what follows are its arguments
    return False


@functools.cache
def _knows_pipefail(shell: str, search_path: str | None) -> bool:
    found = shutil.which(shell, path=search_path)
    if found is None:
        return False
    words = [found, *_PIPEFAIL, "-c", ":"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


__all__ = ["PIPE_CLOSED", "SHELLS", "with_pipefail"]
