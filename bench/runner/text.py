# SPDX-License-Identifier: Apache-2.0
"""Tables and cells as text, and files that are whole or not there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from runner.errors import BenchError
from runner.stats import describe, ratio


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their cells; the first is flush left, the others right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def render(line: Sequence[str]) -> str:
        first = line[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "  ".join([first, *rest]).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([render(lines[0]), rule, *map(render, lines[1:])])


def number(value: float | None) -> str:
    """Three significant digits, or `-`."""
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def ratio_cell(ours: Sequence[float], peer: Sequence[float]) -> str:
    """`0.61 [0.58, 0.66]`, or `no difference` when the interval holds 1."""
    if not ours or not peer:
        return "-"
    found = ratio(ours, peer)
    if describe(found) == "no difference":
        return "no difference"
    return f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]"


def write_whole(path: Path, text: str) -> None:
    """Writes a file that is either complete or not there.

    Raises:
        BenchError: it cannot be written; the message names the path.
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
