# SPDX-License-Identifier: Apache-2.0
"""Format numbers and tables as text and HTML."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterable, Sequence

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """Format bytes for humans: "0 B", "12.3 KiB"."""
    value = float(count)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"


def number(count: int) -> str:
    """Format an integer with thousands separators."""
    return f"{count:,}"


def digits(value: float, count: int = 4) -> str:
    """Format a number with `count` significant digits but a whole integer part: 0.3307, 33,070."""
    text = f"{value:.{count}g}"
    return f"{value:,.0f}" if "e+" in text else text


def seconds(nanoseconds: int) -> str:
    """Format a duration in a suitable unit."""
    for unit_ns, unit in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if nanoseconds >= unit_ns:
            return f"{nanoseconds / unit_ns:.3f} {unit}"
    return f"{nanoseconds} ns"


def share(part: float, whole: float) -> str:
    """Format a share in percent; "-" if the whole is 0."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


_CLIPPED = 4000


def clipped(text: str) -> str:
    """Truncate a text to about 4,000 characters; the end then says how much is missing."""
    if len(text) <= _CLIPPED:
        return text
    return f"{text[: _CLIPPED - 60]}\n... {len(text) - _CLIPPED + 60:,} characters more"


_PLURALS = {
    "child": "children",
    "image before exec": "images before exec",
    "class": "classes",
    "process": "processes",
}


_TOKENS = re.compile(r"\w+|::|\W")


def shortened(text: str, most: int) -> str:
    """Truncate a text in its middle to `most` characters; an ellipsis replaces whole tokens.

    A token is cut only if it alone does not fit.
    """
    if len(text) <= most:
        return text
    words = _TOKENS.findall(text)
    front, back = "", ""
    i, j = 0, len(words) - 1
    while i <= j:
        in_front = len(front) <= len(back)
        for front_next in (in_front, not in_front):  # if one side has no room, the other may
            word = words[i] if front_next else words[j]
            if len(front) + len(back) + len(word) + 1 <= most:
                break
        else:
            break
        if front_next:
            front, i = front + word, i + 1
        else:
            back, j = word + back, j - 1
    if not front and not back:
        return f"{text[: max(most - 1, 0)]}…"
    return f"{front}…{back}"


def terminal_width() -> int:
    """Return the columns of the terminal, at least 60; 120 without one."""
    return max(shutil.get_terminal_size((120, 24)).columns, 60)


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: 1 child, 2 children, 3 events."""
    many = _PLURALS.get(noun, noun + "s")
    return f"{count:,} {noun if count == 1 else many}"


def table(
    rows: Iterable[Sequence[str]],
    head: Sequence[str] = (),
    left: int = 1,
    indent: str = "",
    names_last: bool = False,
) -> str:
    """Format a table with aligned columns, the first `left` of them left-aligned.

    Args:
        rows: cells; a row may be shorter than the head. An empty row draws a rule.
        head: titles; if empty, there is no head.
        left: number of left-aligned columns.
        indent: put before each line.
        names_last: left-align the last column, too.
    """
    lines = [list(row) for row in rows]
    every = ([list(head)] if head else []) + lines
    count = max((len(row) for row in every), default=0)
    widths = [max((len(r[i]) for r in every if i < len(r)), default=0) for i in range(count)]

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.ljust(widths[i])
            if i < left or (names_last and i == count - 1)
            else cell.rjust(widths[i])
            for i, cell in enumerate(cells)
        ]
        return (indent + "  ".join(parts)).rstrip()

    rule = indent + "-" * (sum(widths) + 2 * (count - 1))
    text = [line(head), rule] if head else []
    text += [line(row) if row else rule for row in lines]
    return "\n".join(text)


def html_table(
    rows: Iterable[Sequence[str]], head: Sequence[str], title: str = "", left: int = 1
) -> str:
    """Format the same as an HTML table; cells are escaped."""

    def cells(row: Sequence[str], tag: str) -> str:
        sides = ("left" if i < left else "right" for i in range(len(row)))
        return "".join(
            f'<{tag} style="text-align:{side}">{html.escape(cell)}</{tag}>'
            for side, cell in zip(sides, row, strict=True)
        )

    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows if row)
    return (
        f"<table>{caption}<thead><tr>{cells(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"
    )
