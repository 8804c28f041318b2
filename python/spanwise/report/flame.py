# SPDX-License-Identifier: Apache-2.0
"""Flame graphs: an SVG file, and the element of a page that the scripts draw."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.ledger.ledger import Ledger
from spanwise.recordings.live_sites import LiveSite, LiveSites
from spanwise.report.charts import element, words
from spanwise.report.stacks import chain_of


class _Kind(NamedTuple):
    """A quantity that a graph shows."""

    noun: str  # its name in a sentence
    site: str  # its field of a call site
    ledger: tuple[str, ...]  # its fields of the ledger, including bytes of no live object


_KINDS = {
    "waste": _Kind("waste", "waste_bytes", ("waste_bytes",)),
    "round-up": _Kind("round-up", "roundup_bytes", ("roundup_bytes", "large_rounding_bytes")),
    "pinned": _Kind(
        "free in spans and caches",
        "kept_free_bytes",
        ("tail_bytes", "free_slot_bytes", "cached_bytes"),
    ),
    "resident": _Kind("resident", "resident_bytes", ("resident_bytes",)),
    "requested": _Kind("requested", "requested_bytes", ("requested_bytes",)),
}
OF = tuple(_KINDS)
"""The quantities that a graph can show."""

NO_OBJECT = "[of no live object]"
FILE_WIDTH = 1400
ROW, LINE, LETTER = 31, 12.5, 6.3
"""Height of a box, height of a line of text, average width of a letter; pixels."""
_FOLDER = Path(__file__).parent
_TEXT_FROM = 34  # minimum width of a box with text
_NARROWEST = 1.0


@dataclass
class Frame:
    """A frame of the graph."""

    name: str  # function and place
    value_bytes: int = 0  # of all stacks through it
    own_bytes: int = 0  # of the stacks that end in it
    callees: dict[str, Frame] = field(default_factory=dict)  # by name

    def add(self, names: tuple[str, ...], value_bytes: int) -> None:
        """Adds a stack, root first."""
        self.value_bytes += value_bytes
        if not names:
            self.own_bytes += value_bytes
            return
        self.callees.setdefault(names[0], Frame(names[0])).add(names[1:], value_bytes)

    def sorted(self) -> list[Frame]:
        """Return the callees, widest first."""
        return sorted(self.callees.values(), key=lambda one: (-one.value_bytes, one.name))

    def depth(self) -> int:
        """Return the height of the tree, including this frame."""
        return 1 + max((one.depth() for one in self.callees.values()), default=0)


def value_of(site: LiveSite, of: str) -> int:
    """Return the bytes of a site."""
    return int(getattr(site, _KINDS[of].site))


def total_of(ledger: Ledger, of: str) -> int:
    """Return the bytes of the whole ledger, including those of no live object."""
    return sum(int(getattr(ledger, name) or 0) for name in _KINDS[of].ledger)


def check_of(of: str) -> None:
    """Check that there is a graph of this quantity."""
    if of not in OF:
        raise InvalidError(f"flame graph of {of!r}: use one of {', '.join(OF)}")


def tree_of(live: LiveSites, of: str) -> Frame:
    """Return the graph of live sites; its root has the bytes of the whole ledger."""
    root = Frame(f"{of} at {live.ledger.at}")
    for site in live:
        if value_of(site, of):
            root.add(tuple(map(printable, reversed(chain_of(site)))), value_of(site, of))
    # If the heap's limit refused a resize, the sites may add up to more than the ledger.
    rest = total_of(live.ledger, of) - root.value_bytes
    if rest > 0:
        root.add((NO_OBJECT,), rest)
    return root


def printable(name: str) -> str:
    """Replace characters that XML forbids by "?"."""
    if name.isprintable():
        return name
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def sentence(live: LiveSites, of: str, before: LiveSites | None = None) -> str:
    """Return a sentence with the graph's bytes and the call site with the most of them."""
    ledger, total = live.ledger, tree_of(live, of).value_bytes
    where = f"at {ledger.at} of {ledger.source or 'the heap'} under {ledger.table}"
    said = f"{_format.size(total)} {_KINDS[of].noun} {where}"
    if before is not None:
        earlier = tree_of(before, of).value_bytes
        return f"{said}, {_format.size(earlier)} in {before.ledger.source}"
    if not live or not total:
        return said
    most = max(live, key=lambda site: value_of(site, of))
    share = _format.share(value_of(most, of), total)
    return f"{said}; {share} of it by {chain_of(most)[0]}"


# --- drawing --------------------------------------------------------------------------------------


def file_of(root: Frame, said: str) -> str:
    """Return a self-contained SVG file."""
    style = (_FOLDER / "flame.css").read_text(encoding="utf-8")
    height = 40 + ROW * root.depth() + 12
    heading = words(8, 24, said, class_="title")
    inside = heading + element("g", "".join(boxes(root, FILE_WIDTH)), transform="translate(0 38)")
    paper = element("rect", x=0, y=0, width=FILE_WIDTH, height=height, class_="paper")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {FILE_WIDTH} {height}" role="img"'
        f' aria-label="{html.escape(said)}">\n<style>\n{style}</style>\n{PATTERN}{paper}{inside}\n'
        "</svg>\n"
    )


def part_of_page(
    quantities: Iterable[str], said: str, shown: str = "waste", *, merged: bool = False
) -> str:
    """Return the element of a page whose scripts draw the graph.

    `merged`: the lines of a function are one box at first, as in a difference of two builds.
    """
    of = "".join(f"<option{' selected' * (one == shown)}>{one}</option>" for one in quantities)
    views = "".join(f'<option value="{one}">{text}</option>' for one, text in _VIEWS)
    return (
        '<div class="tools" id="flame-tools">'
        f'<label>show <select id="flame-of">{of}</select></label>'
        f'<label>from <select id="flame-view">{views}</select></label>'
        '<label><input id="flame-hide" type="checkbox"> hide runtime and import frames</label>'
        f'<label><input id="flame-merge" type="checkbox"{" checked" * merged}> merge lines of a'
        " function</label>"
        '<input id="flame-search" type="search" placeholder="search: regex"'
        ' aria-label="search frames by regular expression">'
        '<button id="flame-reset">reset zoom</button><output id="flame-share"></output></div>'
        f'<svg id="flame" viewBox="0 0 820 400" role="group" aria-label="{html.escape(said)}">'
        f'{PATTERN}</svg><p class="quiet" id="flame-box"></p>'
        "<noscript><p>The graph is drawn by the script of this page; spanwise flame -o FILE.svg"
        " makes a picture.</p></noscript>"
    )


_VIEWS = (
    ("icicle", "the program's start, down"),
    ("flame", "the program's start, up"),
    ("inverted", "the allocating call, down"),
)

PATTERN = (
    '<defs><pattern id="of-no-call" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<rect width="6" height="6" class="fill-of-no-call"/>'
    '<path d="M0 6L6 0" class="line-of-no-call"/>'
    "</pattern></defs>"
)


def boxes(root: Frame, width: int) -> Iterator[str]:
    """Yield the boxes of a graph of that width."""
    whole = max(root.value_bytes, 1)
    yield from _boxes(root, 0.0, float(width), 0, whole)


def _boxes(frame: Frame, left: float, width: float, row: int, whole: int) -> Iterator[str]:
    yield _box(frame, left, width, row, whole)
    scale = width / max(frame.value_bytes, 1)
    narrow = Frame("")
    count = 0
    for one in frame.sorted():
        wide = one.value_bytes * scale
        if wide < _NARROWEST:
            count, narrow.value_bytes = count + 1, narrow.value_bytes + one.value_bytes
            continue
        yield from _boxes(one, left, wide, row + 1, whole)
        left += wide
    if count:
        narrow.name = f"[{_format.plural(count, 'frame')} too narrow to be drawn]"
        yield _box(narrow, left, narrow.value_bytes * scale, row + 1, whole)


def _box(frame: Frame, left: float, width: float, row: int, whole: int) -> str:
    shade = "of-no-call" if frame.name.startswith("[") else f"shade-{row % 2}"
    own = f"\n{frame.own_bytes:,} bytes in itself" if frame.own_bytes else ""
    text = (
        f"{frame.name}\n{_format.size(frame.value_bytes)} ({frame.value_bytes:,} bytes),"
        f" {_format.share(frame.value_bytes, whole)} of all{own}"
    )
    y = row * ROW
    made = element("title", html.escape(text))
    made += element(
        "rect", x=left, y=y, width=max(width - 0.4, 0.2), height=ROW - 1, class_=f"frame {shade}"
    )
    for i, line in enumerate(wrapped(frame.name, width)):
        made += words(left + 4, y + 12 + i * LINE, line, class_="frame-text")
    return element("g", made)


def wrapped(name: str, width: float) -> list[str]:
    """Return the name in at most two lines that fit into a box; none if it is too narrow."""
    letters = int((width - 8) / LETTER)
    if width < _TEXT_FROM or letters < 3:
        return []
    if len(name) <= letters:
        return [name]
    function, mark, place = name.partition(" (")
    space = name.rfind(" ", 0, letters + 1)
    split = (name[:space], name[space + 1 :]) if space > 0 else (name[:letters], name[letters:])
    first, second = (function, f"({place}") if mark else split
    return [_cut(first, letters), *([_cut(second, letters)] if second else [])]


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
