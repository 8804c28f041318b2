# SPDX-License-Identifier: Apache-2.0
"""The sections of a report."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from spanwise import _format, _lib
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PEAK_RESIDENT
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import RecordingSet
from spanwise.report import charts, flame
from spanwise.report.facts import SITES, Facts, searched_tables
from spanwise.report.flame import OF
from spanwise.report.moments import COUNTS, is_runtime, peak_of

if TYPE_CHECKING:
    from spanwise.recordings.live_sites import LiveSite


DEFINITIONS: dict[str, str] = {
    "requested": "The sum of the requested sizes of live objects.",
    "round-up": "The slot's size minus the requested size, over live objects in slots.",
    "tail": "The end of each span that is too short for one more slot.",
    "free slots": "Free slots of spans that no thread is allocating from; only the same size class"
    " can use them.",
    "cached": "Free slots of the spans that threads allocate from, and empty spans and freed large"
    " objects that a thread's cache keeps.",
    "metadata": "The heap's own records: spans, bits, page map, caches.",
    "large rounding": "Whole pages minus the requested size, of live large objects.",
    "free pages": "Pages of no span that were not returned to the system.",
    "held": "The exact sum of all of the above: the memory that the heap has from the system by its"
    " own account. Held minus requested is waste.",
    "resident": "Held bytes in pages of the system (4 KiB on most machines) that were written to."
    " The simulated program writes all of each object.",
    "peak": "Of the simulated heap: the moment after the first operation that brings the resident"
    " bytes to their maximum under the table of this report.",
    "waste": "Held minus requested, in bytes or as a share of held. Of the program's own heap:"
    " resident minus what was requested and written.",
    "headers and rounding": "Of glibc's malloc, computed from the sizes of the live objects when"
    " requested bytes peak: what its chunks (multiples of 16 bytes with a header of 8, at least 32;"
    " from 128 KiB on whole pages) have beyond the request.",
    "free chunks and unreturned pages": "The rest of the waste of glibc's malloc: freed memory that"
    " is still resident, and its own records.",
    "class": "A slot size of the table. A request gets the smallest class that is large enough.",
    "span": "Contiguous pages that are divided into slots of one class.",
    "occupancy": "The share of a span's slots that are in use.",
    "free bytes kept": "The free slots and the tail of a span, divided evenly among its live"
    " objects, since each of them alone keeps the span.",
    "held out": "A recording that a table was evaluated on but not fitted to.",
}


class Section(NamedTuple):
    """A section of the page: its title, the HTML below it, and what heap it is about."""

    title: str
    content: str
    is_simulated: bool = False

    @property
    def name(self) -> str:
        """Its id."""
        return self.title.lower().replace(" ", "-")

    def html(self) -> str:
        """Return the section element."""
        title = html.escape(self.title) + (" (simulated)" if self.is_simulated else "")
        return f'<section id="{self.name}"><h2>{title}</h2>{self.content}</section>'


def section(title: str, text: str, content: str, *, is_simulated: bool = False) -> Section:
    """Return a section that begins with a text, which is escaped."""
    start = f"<p>{html.escape(text)}</p>" if text else ""
    return Section(title, start + content, is_simulated)


def sizes(facts: Facts) -> Section:
    """The requests of the recording by size, and the live objects of a moment by class."""
    text = (
        "<p>Lines: requests of each size, of the whole recording. A request gets the next class"
        " above it; the difference is round-up."
    )
    peak = peak_of(facts.moments)
    slots = peak.by_class() if peak is not None else {}
    if slots:
        text += ' Boxes: live objects of each class <span class="when">at the peak</span>.'
    most = max((max(one.by_class().values(), default=0) for one in facts.moments), default=0)
    chart = charts.both(partial(charts.sizes, facts.histogram, facts.table, slots, most))
    content = f'{text}</p>{chart}<div id="sizes-of" aria-live="polite"></div>'
    return Section("Sizes", content, is_simulated=True)


_MAP_KEYS = (
    ("key-scale", "slots in use, from few to all"),
    ("key-large", "large object"),
    ("key-free", "free pages"),
    ("key-none", "not held"),
)


def processes(facts: Facts) -> Section:
    """The ledger of each process, and the sum."""
    assert isinstance(facts.recording, RecordingSet)
    names = [f"{one.name}: {' '.join(one.arguments)}"[:100] for one in facts.recording]
    both = [*zip(facts.ledger.parts, names, strict=True), (facts.ledger, "all")]
    rows = [
        (
            _format.size(ledger.requested_bytes),
            _format.size(ledger.held_bytes),
            "-" if ledger.resident_bytes is None else _format.size(ledger.resident_bytes),
            _format.size(ledger.waste_bytes),
            _format.share(ledger.waste_bytes, ledger.held_bytes),
            _format.number(ledger.events),
            name,
        )
        for ledger, name in both
    ]
    text = (
        "Each has a heap of its own and is taken at its own peak. So the sum is what they would"
        " hold if all peaks fell together. A report of each: spanwise report FILE.swt."
    )
    head = ("requested", "held", "resident", "waste", "of held", "events", "process")
    return section("Processes", text, _table(rows, head, 6), is_simulated=True)


def heap_map(facts: Facts) -> Section:
    """The heap map with its slider over the moments."""
    last = max(len(facts.maps) - 1, 0)
    peak = next((i for i, one in enumerate(facts.maps) if one.ledger.at == PEAK_RESIDENT), last)
    keys = "".join(f'<span><i class="key {name}"></i>{text}</span>' for name, text in _MAP_KEYS)
    content = (
        f'<p id="moment" aria-live="polite"></p><div class="slider"><label for="when">time</label>'
        f'<input id="when" type="range" min="0" max="{last}" value="{peak}" step="1"></div>'
        '<canvas id="map" role="img" aria-label="heap map"></canvas>'
        f'<div id="holders" aria-live="polite"></div>'
        f'<p class="keys">{keys}</p><p class="quiet" id="grain"></p>'
        "<noscript><p>The heap map is drawn by the script of this page.</p></noscript>"
    )
    text = (
        "All pages of the heap in address order, row by row. Yellow pages are kept"
        " by few objects; only the same class can use their free slots."
    )
    return section("Heap map", text, content, is_simulated=True)


def call_sites(facts: Facts) -> Section:
    """The call sites with the most waste at the peak, or how to record them."""
    if not facts.has_sites:
        how = (
            " spanwise convert found none in the file it read."
            if facts.recording.imported
            else " To see which calls waste memory, record the program with"
            " spanwise record --stacks 16 -o FILE.swt -- PROGRAM ARGS."
        )
        said = f"This recording has no call sites.{how}"
        return section("Call sites", said, "", is_simulated=True)
    rows = [
        (
            _format.size(site.waste_bytes),
            _format.size(site.kept_free_bytes),
            _format.size(site.requested_bytes),
            _format.number(site.live_objects),
            _innermost(site),
        )
        for site in facts.sites.sites[:SITES]
    ]
    stacks = [_stack(site) for site in facts.sites.sites[:SITES]]
    head = ("waste", "of it free bytes kept", "requested", "objects", "innermost callers")
    text = (
        '<p>Live objects <span class="when">at the peak</span>, by the call that last allocated or'
        " resized them. An object keeps its round-up and its share of the free bytes of its"
        " span.</p>"
    )
    more = '<p class="quiet" id="more-sites"></p>'
    return Section("Call sites", f"{text}{_table(rows, head, 4, stacks)}{more}", is_simulated=True)


_LINE = re.compile(r":\d+\)$")


def _innermost(site: LiveSite) -> str:
    """Return the first callers of a site, one per line."""
    first, *others = _callers(site)
    through = f" through {site.through}" if site.through else ""
    return "\n".join([f"{first}{through}", *others])


def _stack(site: LiveSite) -> str:
    """Return all frames of a site, shown by a click; "" if none is hidden."""
    if len(site.full_names) <= len(_callers(site)):
        return ""
    lines = html.escape("\n".join(site.full_names))
    return f"<details><summary>full stack</summary>{lines}</details>"


def _callers(site: LiveSite) -> Sequence[str]:
    """Return the first callers of a site, without those of a runtime if there are others.

    Of a run of recursive calls the innermost is shown.
    """
    names = site.names or site.frames or ("unknown",)
    callers = [name for name in names if not is_runtime(name)] or names
    return [next(run) for _, run in groupby(callers, partial(_LINE.sub, ")"))][:4]


def flame_graph(facts: Facts) -> Section:
    """The flame graph, which a script draws."""
    text = (
        'What live objects keep <span class="when">at the peak</span>, by call stack. The width of'
        " a box is the bytes of the function and its callees. Hatched boxes belong to no call. A"
        " click or Enter zooms, and selects these calls in the other sections; arrow keys move."
        " Pinned bytes are the free bytes kept; allocations are those of the whole recording."
    )
    said = flame.sentence(facts.sites, "waste")
    selected = '<p id="through" aria-live="polite"></p>'
    content = f"<p>{text}</p>{selected}{flame.part_of_page(OF + COUNTS, said)}"
    return Section("Flame graph", content, is_simulated=True)


def _table(
    rows: Sequence[Sequence[str]], head: Sequence[str], numbers: int, ends: Sequence[str] = ()
) -> str:
    """Return a table whose first `numbers` columns are numbers; `ends` is HTML to end each row."""
    names = [html.escape(name) for name in head]
    heads = "".join(
        f"<th{' class=number' if i < numbers else ''}{_meaning(name)}>{name}</th>"
        for i, name in enumerate(names)
    )
    body = ""
    for row, end in zip(rows, ends or ("",) * len(rows), strict=True):
        # A narrow screen shows the name of a column next to each number.
        cells = [
            f'<td class=number data-name="{name}">{html.escape(cell)}'
            for name, cell in zip(names[:numbers], row[:numbers], strict=True)
        ]
        cells += [f"<td>{html.escape(cell)}" for cell in row[numbers:]]
        body += f"<tr>{'</td>'.join(cells)}{end}</td></tr>"
    inside = f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody>"
    kind = " class=stacked" if numbers > 1 else ""
    return f'<div class="wide"><table{kind}>{inside}</table></div>'


def _meaning(name: str) -> str:
    """Return the attribute with the definition of a column, which is shown where the pointer is."""
    text = DEFINITIONS.get(name.removeprefix("of it "))
    return f' title="{html.escape(text)}"' if text else ""


def advice(facts: Facts) -> Section:
    """The fitted table and the stock tables at one moment."""
    if facts.advice is None:
        said = f"No table was fitted: {facts.no_advice}."
        return section("Table advice", said, "", is_simulated=True)
    assert isinstance(facts.recording, Recording)
    evaluation = facts.advice.evaluation
    rows = [_ledger_cells(one, facts) for one in evaluation.comparison.ledgers]
    head = ("held", "resident", "waste", "peak resident, own moment", "classes", "table")
    content = _table(rows, head, 5)
    for other in facts.advice.held_out:
        content += f"<p>Held out, {html.escape(other.name)}:</p>"
        content += _table([_ledger_cells(one, facts) for one in other.comparison.ledgers], head, 5)
    text = (
        f"{facts.advised()} Held, resident and waste are {evaluation.comparison.when}, one moment"
        f" for all tables; all is simulated. {facts.advice.proposal.name} was fitted to this"
        " recording, with classes that are"
        f" multiples of 16 bytes, by a search of at most {searched_tables(facts.recording)} tables."
    )
    return section("Table advice", text, content, is_simulated=True)


def _ledger_cells(ledger: Ledger, facts: Facts) -> tuple[str, ...]:
    resident, most = ledger.resident_bytes, ledger.peak_resident_bytes
    current = " (this report's)" if ledger.table == facts.table.name else ""
    return (
        _format.size(ledger.held_bytes),
        "-" if resident is None else _format.size(resident),
        _format.share(ledger.waste_bytes, ledger.held_bytes),
        "-" if most is None else _format.size(most),
        str(len(ledger.classes) - 1),
        f"{ledger.table}{current}",
    )


def definitions() -> Section:
    """What each number is."""
    items = "".join(
        f"<dt>{html.escape(term)}</dt><dd>{html.escape(text)}</dd>"
        for term, text in DEFINITIONS.items()
    )
    return section("Definitions", "", f"<dl>{items}</dl>")


def about(facts: Facts) -> Section:
    """The recording, and how the page was made."""
    rows = [(value, name) for name, value in facts.recording.summary.text_rows()]
    memory = facts.recording.memory if isinstance(facts.recording, Recording) else None
    rows += [(value, name) for name, value in (memory.text_rows() if memory else ())]
    made = (
        f"Made by spanwise {_lib.version()} from the recording alone: its operations were run"
        f" through a simulated heap with the table {facts.table.name} ({len(facts.table)} classes,"
        f" pages of {facts.table.page_bytes:,} bytes). The simulated program writes all of each"
        " object. spanwise replay measures other allocators with real memory."
    )
    return section("The recording", made, _table(rows, ("value", "what"), 1))
