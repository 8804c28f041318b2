# SPDX-License-Identifier: Apache-2.0
"""Draws the two charts of README from the tables of docs/measurements.

They are SVG for light and dark pages.

Example:
    python3 scripts/readme_charts.py
"""

from __future__ import annotations

import html
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH, ROW = 820, 21
NAMES = {"ours": "spanwise", "mimalloc": "mimalloc 2", "mimalloc3": "mimalloc 3"}
_STYLE = """
.paper { fill: #ffffff; } text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1b1b1b; }
.title { font-weight: 600; } .quiet { fill: #575757; }
.ours { fill: #0072b2; stroke: #0072b2; } .peer { fill: #8a8a8a; stroke: #8a8a8a; }
.line { stroke: #c8c8c8; } .one { stroke: #d55e00; stroke-dasharray: 5 3; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #16181c; } text { fill: #ececec; }
  .quiet { fill: #b4b4b4; } .line { stroke: #4a4d55; }
  .ours { fill: #3a9bd9; stroke: #3a9bd9; }
}
"""


def _text(x: float, y: float, text: str, class_: str = "", anchor: str = "start") -> str:
    words = html.escape(text)
    return f'<text x="{x:g}" y="{y:g}" class="{class_}" text-anchor="{anchor}">{words}</text>'


def _line(x: tuple[float, float], y: tuple[float, float], class_: str, width: float = 1) -> str:
    return (
        f'<line x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="{y[0]:.1f}" y2="{y[1]:.1f}" class="{class_}"'
        f' stroke-width="{width:g}"/>'
    )


def _file(height: int, parts: Iterable[str], title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{html.escape(title)}">\n<style>{_STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{height}" class="paper"/>\n'
        + "\n".join([_text(10, 20, title, "title"), *parts])
        + "\n</svg>\n"
    )


def _rows(page: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the tables of a page."""
    for line in (ROOT / "docs/measurements" / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("| ").split("|")]


def _measured(page: str, heading: str) -> str:
    """Return the machine and the date of the measurement below a heading."""
    text = (ROOT / "docs/measurements" / page).read_text(encoding="utf-8")
    below = " ".join(text[text.index(f"# {heading}") :].split())
    machine = re.search(r"AMD EPYC \(family \d+, model \d+\), \d+ processors", below)
    date = re.search(r"\d+ [A-Z][a-z]+ \d{4}", below)
    assert machine is not None and date is not None
    return f"{machine.group()}, {date.group()}"


def allocator() -> str:
    """Return the chart of the allocator against its peers."""
    rows = list(_rows("programs.md"))
    head = next(row for row in rows if row[0] == "geometric mean, glibc = 1")
    names = head[1 : head.index("ours / best peer [94 % interval]")]
    parts: list[str] = []
    for panel, what in enumerate(("CPU time", "peak RSS")):
        cells = next(row for row in rows if row[0] == what)
        found = {"glibc": 1.0, **dict(zip(names, map(float, cells[1:]), strict=False))}
        parts += _bars(found, what, 10 + panel * 405)
    title = "Twelve programs under eight allocators: geometric means, glibc = 1, less is better"
    bottom = 76 + ROW * (len(names) + 1)
    parts.append(_text(10, bottom - 9, _measured("programs.md", "Twelve programs"), "quiet"))
    return _file(bottom, parts, title)


def _bars(found: dict[str, float], what: str, left: float) -> Iterator[str]:
    yield _text(left, 46, what, "quiet")
    scale = 250 / max(found.values())
    ordered = sorted(found, key=lambda name: (found[name], name != "ours"))
    for i, name in enumerate(ordered):
        y = 52 + ROW * i
        class_ = "ours" if name == "ours" else "peer"
        yield _text(left + 85, y + 14, NAMES.get(name, name), "", "end")
        yield (
            f'<rect x="{left + 92:g}" y="{y + 2}" width="{found[name] * scale:.1f}"'
            f' height="{ROW - 5}" class="{class_}"/>'
        )
        yield _text(left + 97 + found[name] * scale, y + 14, f"{found[name]:.2f}")


def collector() -> str:
    """Return the chart of the collector against Go's and Boehm's."""
    found = []
    for row in _rows("collector.md"):
        ratio = re.match(r"([\d.]+) x(?: \(([\d.]+) to ([\d.]+)\))?$", row[1]) if row[1:] else None
        if ratio and row[0].startswith("gc, ") and re.search(r"Go|Boehm", row[0]):
            least, most = (float(end or ratio[1]) for end in ratio.groups()[1:])
            found.append((row[0].removeprefix("gc, "), float(ratio[1]), least, most))
    found.sort(key=lambda row: row[1])
    bottom = 34 + ROW * len(found)
    title = "The collector: time or memory over that of Go and Boehm, with intervals"
    where = _text(10, bottom + 33, _measured("collector.md", "The collector"), "quiet")
    return _file(bottom + 40, [*_ranges(found, bottom), where], title)


def _ranges(found: Sequence[tuple[str, float, float, float]], bottom: float) -> Iterator[str]:
    def at(value: float) -> float:
        return 400 + (WIDTH - 450) * math.log(value / 0.1) / math.log(12)

    for mark in (0.1, 0.2, 0.5, 1.0):
        yield _line((at(mark), at(mark)), (32, bottom), "one" if mark == 1 else "line")
        yield _text(at(mark), bottom + 16, f"{mark:g}", "quiet", "middle")
    yield _text(WIDTH - 10, bottom + 33, "ratio, logarithmic; left of 1 is better", "quiet", "end")
    for i, (name, value, least, most) in enumerate(found):
        y = 44 + ROW * i
        yield _text(390, y + 4, name, "", "end")
        yield _line((at(least), at(most)), (y, y), "ours", 3)
        yield f'<circle cx="{at(value):.1f}" cy="{y}" r="4.5" class="ours"/>'
        yield _text(at(most) + 9, y + 4, f"{value:.2f}", "quiet")


PICTURES = {"docs/allocator.svg": allocator, "docs/collector.svg": collector}


def main() -> int:
    """Write both files."""
    for name, draw in PICTURES.items():
        (ROOT / name).write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
