#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Documents that are read as text have lines of at most 100 characters; --write wraps longer ones.

These are the documents of the project's root. What Markdown does not let one break stays as it is:
tables, code, headings, quotes, and a word longer than the line. Of paragraphs and items of lists,
only those with a line that is too long are wrapped anew.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

WIDTH = 100
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
# What would be an item, a heading, a quote or a table at the beginning of a line.
BEGINS_A_BLOCK = re.compile(r"(?:[*+]|-+|=+|#+|\d+[.)])$|[>|]")
STAYS = ("|", "#", ">", "<", "![", "---")
WORD = re.compile(r"(?:`[^`]*`|\S)+")


def documents(root: Path) -> list[Path]:
    """The documents whose lines have a width."""
    return sorted(root.glob("*.md"))


def wrapped(lines: list[str]) -> list[str]:
    """The lines of one paragraph or item, as they are where none is too long."""
    if all(len(line) <= WIDTH for line in lines):
        return lines
    item = ITEM.match(lines[0])
    indent = item.end() if item else len(lines[0]) - len(lines[0].lstrip())
    begun = lines[0][:indent]
    words = WORD.findall(" ".join([lines[0][indent:], *lines[1:]]))
    result = [begun + words[0]]
    for word in words[1:]:
        longer = f"{result[-1]} {word}"
        if len(longer) <= WIDTH or BEGINS_A_BLOCK.match(word):
            result[-1] = longer
        else:
            result.append(" " * indent + word)
    return result


def blocks(text: str) -> Iterator[tuple[bool, list[str]]]:
    """The lines of a document in blocks; whether one is a paragraph or an item, to be wrapped."""
    block: list[str] = []
    in_code = False
    for line in text.splitlines():
        stripped = line.strip()
        fence = stripped.startswith("```")
        stays = in_code or fence or not stripped or stripped.startswith(STAYS)
        if block and (stays or ITEM.match(line)):
            yield True, block
            block = []
        if stays:
            yield False, [line]
        else:
            block.append(line)
        in_code ^= fence
    if block:
        yield True, block


def wrap(text: str) -> str:
    """A document with no line that is longer than it need be."""
    parts = (wrapped(lines) if may_wrap else lines for may_wrap, lines in blocks(text))
    return "".join(f"{line}\n" for lines in parts for line in lines)


def main() -> int:
    """Tells the documents with long lines, or writes them anew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="wrap what is too long")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    options = parser.parse_args()
    status = 0
    for path in documents(options.root):
        text = path.read_text(encoding="utf-8")
        wanted = wrap(text)
        if text == wanted:
            continue
        if options.write:
            path.write_text(wanted, encoding="utf-8")
        else:
            name = path.relative_to(options.root)
            print(f"{name}: lines of more than {WIDTH} characters; ./dev check --fix wraps them")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
