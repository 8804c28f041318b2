#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the ledger of a demo into README.md, and draws its three pictures.

The figures are of one machine and one version; the names of the rows, their order and their sums
are not, and --check compares those.

Examples:
    ./dev demo && .venv/bin/python scripts/readme_ledger.py     takes ./out
    .venv/bin/python scripts/readme_ledger.py --check           exit 1: README shows other rows
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import numpy as np
import spanwise as sw
from spanwise import plots
from spanwise.commands.demo import TABLES
from spanwise.ledger.parts import PARTS

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ("docs/demo-ledger.png", "docs/demo-classes.png", "docs/demo-map.png")
BLOCK = re.compile(r"(?<=^```\n) +go +c16\n.*?(?=^```$)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^  (?P<name>\S+(?: \S+)*?)  +(?P<cells>\S.*)$")


def table_of(recording: sw.Recording) -> str:
    """The ledgers under both tables as the demo prints them, without title and verdict."""
    lines = str(recording.compare(TABLES)).splitlines()
    return "\n".join(lines[1:-1]) + "\n"


def rows_of(table: str) -> dict[str, list[str]]:
    """The cells of each row, by its name."""
    found = (ROW.match(line) for line in table.splitlines()[1:])
    return {row["name"]: row["cells"].split("  ") for row in found if row}


def faults(shown: str, printed: str) -> list[str]:
    """What is wrong with the table that is shown, beside one that is printed; a line each."""
    rows, wanted = rows_of(shown), rows_of(printed)
    if list(rows) != list(wanted):
        return [f"rows are {', '.join(rows)}; the demo prints {', '.join(wanted)}"]
    numbers = {
        name: [int(cell.replace(",", "")) for cell in " ".join(cells).split()]
        for name, cells in rows.items()
        if "%" not in "".join(cells)
    }
    found = []
    for column, table in enumerate(TABLES):
        total = sum(numbers[title][column] for title in PARTS.values())
        held, requested = numbers["held"][column], numbers["requested"][column]
        if total != held:
            found.append(f"{table}: the parts are {total:,} bytes, held is {held:,}")
        if held - requested != numbers["waste"][column]:
            found.append(f"{table}: waste is not held less requested")
    return found


def draw(recording: sw.Recording, found: sw.SizeClassTable, folder: Path) -> None:
    """Ledgers under the library's own table and the found one; sizes beside classes; a heap map."""
    recording.name = "python3, JSON and sqlite"
    tables = [sw.SizeClassTable.c16(), found]
    pictures = (
        recording.compare(tables).plot(),
        plots.boundaries(recording.histogram(), tables, title=f"requests of {recording.name}"),
        recording.map(found, "end").plot(),
    )
    for name, picture in zip(PICTURES, pictures, strict=True):
        plots.save(picture, folder / name)


def small_recording() -> sw.Recording:
    """A hundred objects: what is printed of it has the rows of every ledger."""
    ops = np.zeros(100, sw.OPS_DTYPE)
    ops["object"] = ops["time_ns"] = np.arange(100)
    ops["size"] = 100
    return sw.Recording.from_ops(ops)


def main() -> int:
    """Returns 0, 1 when README shows other rows, 2 when there is nothing to take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "out", help="the demo's folder")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="another file")
    parser.add_argument(
        "--check", action="store_true", help="compares rows and sums, writes nothing"
    )
    options = parser.parse_args()
    text = options.readme.read_text(encoding="utf-8")
    block = BLOCK.search(text)
    if block is None:
        return _fail(f"{options.readme}: has no block that begins with the tables go and c16", 2)
    if options.check:
        found = faults(block[0], table_of(small_recording()))
        for fault in found:
            _fail(f"{options.readme}: {fault}; run ./dev demo and this script", 1)
        return 1 if found else 0
    recorded = options.out / "python.swt"
    if not recorded.is_file():
        return _fail(f"{recorded}: not there; run ./dev demo first", 2)
    table = table_of(sw.Recording.open(recorded))
    options.readme.write_text(text[: block.start()] + table + text[block.end() :], encoding="utf-8")
    draw(sw.Recording.open(recorded), sw.SizeClassTable.named(str(options.out / "best.json")), ROOT)
    print(f"{options.readme} and {', '.join(PICTURES)} are those of {options.out}")
    return 0


def _fail(message: str, status: int) -> int:
    print(f"readme_ledger: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
