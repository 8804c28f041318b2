# SPDX-License-Identifier: Apache-2.0
"""Print results: prose is wrapped to the terminal, titles are bold, savings green, losses red."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, TextIO

from spanwise import _format

_RULE = re.compile(r" *-{4,}")
_BOLD, _RED, _GREEN, _END = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[m"
_PERCENT = r"[\d.,]+ (?:%|[KMGT]?i?B)"
_WORDS = (
    (_RED, rf"\b(?:loses {_PERCENT}|costs {_PERCENT} more|loss of {_PERCENT}|no table beats)"),
    (_RED, r"\b(?:TOO MUCH|NOT equal)\b|\bfailed:"),
    (_GREEN, rf"\bsaves? {_PERCENT}|^ok\b|\bequal to the byte\b"),
)


def show(*results: Any, file: TextIO | None = None) -> None:
    """Prints results, each as text with a line feed, to standard output or another file."""
    out = file or sys.stdout
    for result in results:
        given = str(result).split("\n")
        lines = [part for line in given for part in _wrapped(line)]
        if _in_color(out):
            lines = list(_colored(lines, _verdict(result), len(given) > 1))
        print("\n".join(lines), file=out)


def _wrapped(line: str) -> list[str]:
    """Break a line of prose; tables fit already."""
    width = _format.screen_width()
    if not width or len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _in_color(out: TextIO) -> bool:
    """Return whether a terminal shows it and its user has not refused (https://no-color.org)."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _verdict(result: Any) -> set[str]:
    """Return the lines of a result's verdict as they are printed."""
    found = getattr(result, "verdict", "")
    text = str(found() if callable(found) else found)
    return {part.strip() for part in _wrapped(text)}


def _colored(lines: list[str], verdict: set[str], titled: bool) -> Iterator[str]:
    """Yield the lines: in bold the first if titled, titles of further tables, and the verdict."""
    for i, line in enumerate(lines):
        title = lines[i - 1] == "" and any(map(_RULE.fullmatch, lines[i + 2 : i + 3]))
        bold = titled if i == 0 else title
        start = _BOLD if line and (bold or line.strip() in verdict) else ""
        text = line
        for color, words in _WORDS:
            text = re.sub(words, rf"{color}\g<0>{_END}{start}", text)
        yield f"{start}{text}{_END}" if start else text
