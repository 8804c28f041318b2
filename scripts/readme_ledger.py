#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the ledger of `./dev demo` into README.md, and draws the three pictures of README.md.

tests/install/test_readme.py compares the rows of README.md with those that the demo prints.

Example: ./dev demo && .venv/bin/python scripts/readme_ledger.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import spanwise as sw
from spanwise import plots
from spanwise.commands.demo import TABLES

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out"
BLOCK = re.compile(r"(?<=^```\n) +go +c16\n.*?(?=^```$)", re.MULTILINE | re.DOTALL)


def table_of(recording: sw.Recording) -> str:
    """Return the ledgers under both tables as in the demo, without title and verdict."""
    lines = str(recording.compare(TABLES)).splitlines()
    return "\n".join(lines[1:-1]) + "\n"


def main() -> int:
    """Write the ledger and the pictures; return 0, or 2 if there is no demo."""
    if not (OUT / "python.swt").is_file():
        print(f"readme_ledger: {OUT} has no demo; run ./dev demo first", file=sys.stderr)
        return 2
    recording = sw.Recording.open(OUT / "python.swt")
    readme = ROOT / "README.md"
    table = table_of(recording)
    readme.write_text(BLOCK.sub(lambda _: table, readme.read_text(encoding="utf-8")), "utf-8")
    recording.name = "python3, JSON and sqlite"
    found = sw.SizeClassTable.named(str(OUT / "best.json"))
    tables = [sw.SizeClassTable.c16(), found]
    pictures = {
        "ledger": recording.compare(tables).plot(),
        "classes": plots.boundaries(
            recording.histogram(), tables, title=f"requests of {recording.name}"
        ),
        "map": recording.map(found, "end").plot(),
    }
    for name, picture in pictures.items():
        plots.save(picture, ROOT / f"docs/demo-{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
