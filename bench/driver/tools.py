# SPDX-License-Identifier: Apache-2.0
"""Errors, processes, text tables, files written atomically, and the exit status of a command."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class BenchError(Exception):
    """Bad input, or a program that failed. The message is one line that says what to do."""


class NoPeerError(BenchError):
    """A peer is not installed on this machine."""


def captured(
    words: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program without input and return its output.

    Raises:
        BenchError: it cannot be started.
    """
    try:
        return subprocess.run(
            words,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BenchError(f"{words[0]}: {error.strerror}") from error


def last_line(text: str) -> str:
    """Return the last line that a program printed."""
    return (text.strip().splitlines() or ["no message"])[-1]


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned table: the first column flush left, the others flush right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def render(line: Sequence[str]) -> str:
        first = line[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "  ".join([first, *rest]).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([render(lines[0]), rule, *map(render, lines[1:])])


def number(value: float | None) -> str:
    """Format a value with about three significant digits; `-` for None."""
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def write_atomically(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        BenchError: the file cannot be written; the message names the path.
    """
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def run_command(name: str, work: Callable[[], int]) -> int:
    """Return the status of `work`, 2 with a message for bad input, 130 after Ctrl-C."""
    try:
        return work()
    except BenchError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
