# SPDX-License-Identifier: Apache-2.0
"""Flame graphs, as SVG."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from spanwise import _format
from spanwise.errors import InvalidError
from spanwise.ledger.ledger import Ledger
from spanwise.recordings.live_sites import LiveSite, LiveSites
from spanwise.recordings.sites import Site
from spanwise.recordings.wrappers import plain_function, split_place
from spanwise.report.charts import element, words
from spanwise.report.stacks import chain_of


class _Kind(NamedTuple):
    """A quantity that a graph shows.

    Attributes:
        noun: its name in a sentence.
        site: its field of a call site.
        ledger: its fields of the ledger, including bytes of no live object.
    """

    noun: str
    site: str
    ledger: tuple[str, ...]


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
ALLOCATIONS = "allocations"
"""Of the whole recording: another quantity of the graph in a page."""

NO_OBJECT = "[of no live object]"
FILE_WIDTH = 1400
ROW, LINE, LETTER = 31, 12.5, 6.3
"""Height of a box, height of a line of text, average width of a letter; pixels."""
_FOLDER = Path(__file__).parent
_TEXT_FROM = 34  # minimum width of a box with text
_NARROWEST = 1.0


@dataclass
class Frame:
    """A frame of the graph.

    Attributes:
        name: function and place.
        value_bytes: of all stacks through it.
        own_bytes: of the stacks that end in it.
        callees: by name.
    """

    name: str
    value_bytes: int = 0
    own_bytes: int = 0
    callees: dict[str, Frame] = field(default_factory=dict)

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
    """Check that there is a graph of this quantity.

    Raises:
        InvalidError: it is not one of OF.
    """
    if of not in OF:
        raise InvalidError(f"flame graph of {of!r}: use one of {', '.join(OF)}")


def tree_of(live: LiveSites, of: str, most_sites: int | None = None) -> Frame:
    """Return the graph of live sites; its root has the bytes of the whole ledger.

    Args:
        live: the sites.
        of: one of OF.
        most_sites: number of sites with frames; the others become one frame; None: all.
    """
    root = Frame(f"{of} at {live.ledger.at}")
    for i, site in enumerate(live):
        names: tuple[str, ...]
        if most_sites is not None and i >= most_sites:
            names = (f"[{len(live) - most_sites} more call sites]",)
        else:
            names = tuple(map(_printable, reversed(chain_of(site))))
        if value_of(site, of):
            root.add(names, value_of(site, of))
    # If the heap's limit refused a resize, the sites may add up to more than the ledger.
    rest = total_of(live.ledger, of) - root.value_bytes
    if rest > 0:
        root.add((NO_OBJECT,), rest)
    return root


def _printable(name: str) -> str:
    """Replace characters that XML forbids by "?"."""
    if name.isprintable():
        return name
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def sentence(root: Frame, live: LiveSites, of: str) -> str:
    """Return a sentence with the graph's bytes and the call site with the most of them."""
    ledger = live.ledger
    where = f"at {ledger.at} of {ledger.source or 'the heap'} under {ledger.table}"
    said = f"{_format.size(root.value_bytes)} {_KINDS[of].noun} {where}"
    if not live or not root.value_bytes:
        return said
    most = max(live, key=lambda site: value_of(site, of))
    share = _format.share(value_of(most, of), root.value_bytes)
    return f"{said}; {share} of it by {chain_of(most)[0]}"


# --- data of the page's script --------------------------------------------------------------------

_RUNTIME = re.compile(
    r"_start|__libc_start\w*|start_thread|clone3?|_dl_\w+|dlopen\w*|call_init"
    r"|_*Py(Eval|Run|Import|Marshal)_\w+|_?PyObject_(\w*Vectorcall|Call|MakeTpCall)\w*|_PyVectorcall\w+"
    r"|Py_(RunMain|BytesMain)|pymain_\w+|run_(mod|eval_code_obj)|do_call_core|object_vacall"
    r"|\w*vectorcall_\w+|method_vectorcall\w*|builtin_(exec|__import__)\w*|_?imp(ort)?_\w+"
    r"|marshal_loads\w*|r_object|read_object"
    r"|(std::(rt|sys|thread)|core::ops::function)::.*|runtime\.(main|goexit\d?)"
)


def is_runtime(name: str) -> bool:
    """Return whether a frame is of a language's runtime or start, or imports a module."""
    function, place = split_place(name)
    return "importlib" in place or _RUNTIME.fullmatch(plain_function(function)) is not None


def data_of(live: LiveSites, most_stacks: int, allocated: Iterable[Site] = ()) -> dict[str, Any]:
    """Return stacks for the page's script, with the bytes of each of OF and with allocations.

    The stacks with the largest shares of any quantity have frames; the others are summed.
    Without `allocated`, all sites of the recording, there are no allocations.
    """
    found: dict[tuple[str, ...], list[int]] = {}
    for one in live:
        row = found.setdefault(chain_of(one), [0] * (len(OF) + 1))
        for i, of in enumerate(OF):
            row[i] += value_of(one, of)
    for site in allocated:
        found.setdefault(chain_of(site), [0] * (len(OF) + 1))[-1] += site.allocs
    totals = [total_of(live.ledger, of) for of in OF]
    totals.append(sum(row[-1] for row in found.values()))
    shown = sorted(found, key=lambda chain: -_share(found[chain], totals))
    names: dict[str, int] = {}
    stacks = [
        [names.setdefault(_printable(name), len(names)) for name in reversed(chain)]
        for chain in shown[:most_stacks]
    ]
    values = [found[chain] for chain in shown[:most_stacks]]
    if others := [found[chain] for chain in shown[most_stacks:]]:
        stacks.append([names.setdefault(f"[{len(others)} more call sites]", len(names))])
        values.append([sum(column) for column in zip(*others, strict=True)])
    of_all = zip((*OF, ALLOCATIONS), totals, strict=True)
    return {
        "of": [{"name": of, "total": total} for of, total in of_all],
        "at": live.ledger.at,
        "names": list(names),
        "hidden": [i for name, i in names.items() if is_runtime(name)],
        "stacks": stacks,
        "values": values,
    }


def _share(row: Sequence[int], totals: Sequence[int]) -> float:
    """Return the largest share of a quantity."""
    return max(value / max(total, 1) for value, total in zip(row, totals, strict=True))


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


def part_of_page(root: Frame, said: str, width: int) -> str:
    """Return the graph as an svg element of a page that has the style sheet and the script."""
    height = ROW * root.depth() + 2
    of = "".join(f"<option>{one}</option>" for one in (*OF, ALLOCATIONS))
    views = "".join(f'<option value="{one}">{text}</option>' for one, text in _VIEWS)
    return (
        '<div class="tools" id="flame-tools" hidden>'
        f'<label>show <select id="flame-of">{of}</select></label>'
        f'<label>from <select id="flame-view">{views}</select></label>'
        '<label><input id="flame-hide" type="checkbox"> hide runtime and import frames</label>'
        '<input id="flame-search" type="search" placeholder="search: regex"'
        ' aria-label="search frames by regular expression">'
        '<button id="flame-reset">reset zoom</button><output id="flame-share"></output></div>'
        f'<svg id="flame" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="{html.escape(said)}">'
        f"{PATTERN}{''.join(boxes(root, width))}</svg>"
        '<p class="quiet" id="flame-box"></p>'
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
    first, second = (function, f"({place}") if mark else (name[:letters], name[letters:])
    return [_cut(first, letters), *([_cut(second, letters)] if second else [])]


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
