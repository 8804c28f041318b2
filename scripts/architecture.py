#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the architecture: how a recording becomes an answer, and the floors of library and package.

The floors are those of src/LAYERS.md and python/ROOMS.md. Exit status: 0 docs/architecture.svg is
what they say, 1 it is not.

Example:
    python scripts/architecture.py --write
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PICTURE = Path("docs/architecture.svg")
SOURCES = ("src/LAYERS.md", "python/ROOMS.md")
WIDTH, FLOOR, TOP = 1180, 34, 62
LINE, OURS, SIDE, DATA = "#444444", "#CFE3F2", "#E8EAED", "#FFFFFF"

SAID = {
    "base": "numbers, failures, checks",
    "os": "what the system gives",
    "ds": "sums, handles, locks",
    "size": "tables of size classes",
    "page": "address space, runs of pages",
    "span": "pages cut into slots, their bits",
    "heap": "allocate, free, caches of threads",
    "gc": "collector",
    "arena": "arenas, their tracker",
    "pool": "pools, slabs",
    "watch": "ledger, heap map, audits",
    "trace": "recordings: write, read, mend",
    "run": "runs operations, live or dry",
    "player": "replay with any allocator",
    "lesson": "the articles' cases in C",
    "service": "message service",
    "optimize": "search of tables",
    "range": "range allocators",
    "buffer": "buffers, readers",
    "stack": "stacks that grow",
    "recorder": "library that records",
    "malloc": "library that is preloaded",
    "launch": "starts a program",
}
"""What each layer has, in a few words; a test compares the names with src/LAYERS.md."""


@dataclass(frozen=True)
class Layer:
    """A line of src/LAYERS.md; `uses` is empty where it may use all before it."""

    name: str
    uses: str


def layers(text: str) -> list[Layer]:
    """The layers, the lowest first."""
    found = []
    for line in re.split(r"\n(?=\d+\. |\n)", text):
        match = re.match(r"\d+\. `(\w+)`:", line)
        if match is not None:
            uses = re.search(r"\(uses only (.*)\)", line, re.DOTALL)
            found.append(Layer(match[1], " ".join((uses[1] if uses else "").split())))
    return found


# --- drawing --------------------------------------------------------------------------------------


def words(x: float, y: float, text: str, look: str = "", anchor: str = "start") -> str:
    """A line of text; `look` is a class of the style."""
    shown = f' class="{look}"' if look else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{shown}>{escape(text)}</text>'


def box(place: tuple[float, float, float, float], fill: str, lines: Sequence[str]) -> str:
    """A box at (x, y, width, height); its first line is bold, the others are small."""
    x, y, width, height = place
    parts = [
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}"'
        f' stroke="{LINE}"/>'
    ]
    first = y + height / 2 + 4 - 8 * (len(lines) - 1)
    for i, line in enumerate(lines):
        look = "b" if i == 0 else "s"
        parts.append(words(x + width / 2, first + 16 * i, line, look, "middle"))
    return "\n".join(parts)


def arrow(*points: tuple[float, float]) -> str:
    """A line through the points, with a head at its end."""
    way = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{way}" fill="none" stroke="{LINE}" marker-end="url(#head)"/>'


def flow() -> Iterator[str]:
    """How a recording becomes an answer, and where the library comes from."""
    yield words(24, 44, "From a program to an answer, and back into a program", "h")
    yield box((24, TOP, 130, 52), SIDE, ("a program", "any, unchanged"))
    yield box((210, TOP, 150, 52), OURS, ("recorder", "libspanwise-record.so"))
    yield box((416, TOP, 130, 52), DATA, ("recording", "FILE.swt"))
    yield arrow((154, 88), (210, 88))
    yield arrow((360, 88), (416, 88))
    yield words(24, 140, "pprof, jemalloc, heaptrack, mtrace, memory_replay, Go", "s")
    yield arrow((338, 136), (480, 136), (480, 114))
    yield box((416, 160, 130, 52), OURS, ("operations", "sw_op, 32 bytes each"))
    yield arrow((500, 114), (500, 160))
    yield box((416, 258, 130, 52), OURS, ("runner", "runs them on a heap"))
    yield arrow((481, 212), (481, 258))
    yield box((210, 240, 150, 40), OURS, ("live heap", "real memory"))
    yield box((210, 288, 150, 40), OURS, ("dry heap", "addresses are numbers"))
    yield arrow((416, 276), (360, 260))
    yield arrow((416, 292), (360, 308))
    yield box((24, 258, 130, 52), OURS, ("ledger, heap map", "exact to the byte"))
    yield arrow((210, 260), (154, 276))
    yield arrow((210, 308), (154, 292))
    yield box((24, 358, 130, 68), OURS, ("Python", "tables, pictures,", "report, exports"))
    yield arrow((89, 310), (89, 358))
    yield box((210, 366, 150, 52), OURS, ("optimize", "tables tried on dry heaps"))
    yield arrow((260, 328), (260, 366))
    yield box((416, 366, 130, 52), DATA, ("a table", "T.json: classes, spans"))
    yield arrow((360, 392), (416, 392))
    yield box((416, 466, 130, 52), OURS, ("generator", "scripts/sizeclasses.py"))
    yield arrow((481, 418), (481, 466))
    yield box((210, 466, 150, 52), OURS, ("src/gen, compiled", "a path for each class"))
    yield arrow((416, 492), (360, 492))
    yield box((24, 466, 130, 52), OURS, ("preloaded malloc", "libspanwise-malloc.so"))
    yield arrow((210, 492), (154, 492))
    yield arrow((24, 492), (10, 492), (10, 88), (24, 88))
    yield words(
        24, 546, "A dry heap and a live one are the same code, so what is simulated is what", "s"
    )
    yield words(
        24,
        562,
        "a heap holds. A table that is found is compiled, and the program runs with it.",
        "s",
    )


def rooms(text: str) -> Iterator[str]:
    """The rooms of the Python package, in the order of python/ROOMS.md."""
    names = re.findall(r"(?m)^\d+\. `(\w+)`:", text)
    yield words(24, 620, "The Python package: each room may use those before it", "h")
    for i, name in enumerate(names):
        y = 640 + i // 4 * FLOOR
        yield box((24 + i % 4 * 132, y, 122, FLOOR - 6), SIDE, (name,))


def floors(found: Sequence[Layer]) -> Iterator[str]:
    """The layers: the house, whose floors stand on all below, and what stands beside it."""
    house = [one for one in found if not one.uses]
    beside = [one for one in found if one.uses]
    yield words(610, 44, "The C library: each floor may use all below it", "h")
    for i, one in enumerate(reversed(house)):
        y = TOP + i * FLOOR
        yield box((610, y, 90, FLOOR - 4), OURS, (one.name,))
        yield words(708, y + 19, SAID[one.name], "s")
    top = TOP + len(house) * FLOOR + 34
    yield words(610, top - 10, "Beside the house: only what is named", "h")
    for i, one in enumerate(reversed(beside)):
        y = top + i * FLOOR
        yield box((610, y, 90, FLOOR - 4), SIDE, (one.name,))
        uses = one.uses.replace("`", "").replace("include/", "public headers")
        yield words(708, y + 19, f"{SAID[one.name]}; uses {uses}", "s")


def picture(text: str, python: str) -> str:
    """The drawing, of the texts of src/LAYERS.md and python/ROOMS.md."""
    found = layers(text)
    height = TOP + len(found) * FLOOR + 34 + 20
    return "\n".join(
        (
            '<svg xmlns="http://www.w3.org/2000/svg" font-family="DejaVu Sans, Arial, sans-serif"'
            f' font-size="12" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
            "<title>spanwise: from a program to an answer, and the floors of the library</title>",
            "<style>.h{font-weight:bold;font-size:14px}.b{font-weight:bold}.s{font-size:11px}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8"'
            f' markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{LINE}"/></marker>'
            "</defs>",
            f'<rect width="{WIDTH}" height="{height}" fill="#FFFFFF"/>',
            *flow(),
            *rooms(python),
            *floors(found),
            "</svg>\n",
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares the picture with the layers, or writes it."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", 1)[0],
        epilog="example: python scripts/architecture.py --write",
    )
    parser.add_argument("--write", action="store_true", help="write the picture anew")
    options = parser.parse_args(arguments)
    made = picture(*((ROOT / name).read_text(encoding="utf-8") for name in SOURCES))
    place = ROOT / PICTURE
    if options.write:
        place.write_text(made, encoding="utf-8")
        return 0
    if place.is_file() and place.read_text(encoding="utf-8") == made:
        return 0
    print(
        f"{PICTURE} is not what {' and '.join(SOURCES)} say: python scripts/architecture.py --write"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
