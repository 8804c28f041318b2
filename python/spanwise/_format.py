# SPDX-License-Identifier: Apache-2.0
"""Format numbers and tables as text and HTML."""

from __future__ import annotations

import html
import re
import shutil
import textwrap
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


def seconds(nanoseconds: int, places: int = 3) -> str:
    """Format a duration in a suitable unit, with decimal places."""
    for unit_ns, unit in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if nanoseconds >= unit_ns:
            return f"{nanoseconds / unit_ns:.{places}f} {unit}"
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
    "program after exec": "programs after exec",
    "class": "classes",
    "process": "processes",
}


_TOKENS = re.compile(r"\w+|::|\W")


def shortened(text: str, most: int) -> str:
    """Truncate a text in its middle to `most` characters; an ellipsis replaces whole tokens."""
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
    return f"{front.rstrip('…')}…{back.lstrip('…')}"  # the text may have been cut before


def label_value(text: str) -> str:
    """Escape the value of a label of Prometheus or OpenMetrics."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def terminal_width() -> int:
    """Return the columns of the terminal, at least 60; 200 without one."""
    return max(shutil.get_terminal_size((200, 24)).columns, 60)


def screen_width() -> int:
    """Return the columns that output may have: COLUMNS, or those of the terminal; 0: no limit."""
    columns = shutil.get_terminal_size((0, 0)).columns
    return max(columns, 40) if columns else 0


_UNIT = re.compile(r"(?<=\d) (?=(?:%|[KMGT]?i?B|[mµn]?s)(?!\w))")


def wrapped(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """Break prose into lines that begin with the indents; a number stays with its unit."""
    lines = textwrap.wrap(
        _UNIT.sub("\xa0", text),
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in lines]


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: 1 child, 2 children, 3 events."""
    many = _PLURALS.get(noun, noun + "s")
    return f"{count:,} {noun if count == 1 else many}"


_LABEL_MIN = 20  # characters of a label, or two thirds of it, that are never cut


def table(
    rows: Iterable[Sequence[str]],
    head: Sequence[str] = (),
    left: int = 1,
    indent: str = "",
    *,
    names_last: bool = False,
    width: int | None = None,
) -> str:
    """Format a table with aligned columns, the first `left` of them left-aligned.

    In a table that is too wide, the widest label is cut in its middle. If that is not enough, the
    other columns are spread over several tables, one below the other, each with all labels.
    """
    cells = [list(row) for row in ([head, *rows] if head else rows)]
    count = max(map(len, cells), default=0)
    labels = [count - 1] if names_last else list(range(min(max(left, 1), count)))
    limit = screen_width() if width is None else width
    parts = [list(range(count))]
    if limit and sum(_widths(cells)) + 2 * (count - 1) + len(indent) > limit:
        parts = _fitted(cells, labels, limit - len(indent), bool(left) or names_last)
    at_left = {*range(left), *([count - 1] if names_last else [])}
    return "\n\n".join(_aligned(cells, part, at_left, indent, bool(head)) for part in parts)


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    count = max(map(len, cells), default=0)
    return [max((len(row[i]) for row in cells if i < len(row)), default=0) for i in range(count)]


def _fitted(cells: list[list[str]], labels: list[int], most: int, cut: bool) -> list[list[int]]:
    """Return the columns of each table of at most so many; with `cut`, shorten the widest label."""
    widths = _widths(cells)
    longest = max(labels, key=lambda i: widths[i])
    if cut:
        room = most - (sum(widths) + 2 * (len(widths) - 1) - widths[longest])
        if room >= min(-(-2 * widths[longest] // 3), _LABEL_MIN):
            _cut(cells, longest, room)
            return [list(range(len(widths)))]
        _cut(cells, longest, max(_LABEL_MIN, most * 2 // 5))
    return _spread(cells, labels, most)


def _spread(cells: list[list[str]], labels: list[int], most: int) -> list[list[int]]:
    """Return the columns of each table, all with the labels; a title that is too long is cut."""
    widths, numbers = _widths(cells), _widths(cells[1:])
    room = most - sum(widths[i] + 2 for i in labels)
    parts: list[list[int]] = []
    left = 0
    for i in (i for i in range(len(widths)) if i not in labels):
        _cut(cells[:1], i, max(room, numbers[i] if i < len(numbers) else 0))
        wide = _widths(cells)[i]
        if not parts or wide > left:
            parts.append([])
            left = room
        parts[-1].append(i)
        left -= wide + 2
    return [sorted([*labels, *part]) for part in parts or [[]]]


def _cut(cells: Iterable[list[str]], column: int, most: int) -> None:
    """Shorten the cells of a column in place."""
    for row in cells:
        if column < len(row):
            row[column] = shortened(row[column], most)


def _aligned(
    cells: Sequence[Sequence[str]], part: list[int], at_left: set[int], indent: str, head: bool
) -> str:
    """Return the lines of a table with the columns `part`."""
    widths = _widths(cells)

    def line(row: Sequence[str]) -> str:
        shown = [
            row[i].ljust(widths[i]) if i in at_left else row[i].rjust(widths[i])
            for i in part
            if i < len(row)
        ]
        return (indent + "  ".join(shown)).rstrip()

    rule = indent + "-" * (sum(widths[i] + 2 for i in part) - 2)
    lines = [line(row) if row else rule for row in cells]
    return "\n".join([*lines[:1], rule, *lines[1:]] if head else lines)


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
