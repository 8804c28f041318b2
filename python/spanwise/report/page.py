# SPDX-License-Identifier: Apache-2.0
"""The HTML page of a report."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanwise.errors import InvalidError
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import RecordingSet
from spanwise.report import charts, sections
from spanwise.report.facts import FLAME_SITES, SITES, Facts, gather, gather_set
from spanwise.report.moments import StackData, changed_rows, counts_of, frames_of
from spanwise.report.sections import Section, section
from spanwise.results.files import check_output, write_whole
from spanwise.tables.table import SizeClassTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spanwise.heap.options import HeapOptions
    from spanwise.optimizer.result import OptimizeResult
    from spanwise.results.jobs import Progress


def write(
    recording: Recording | RecordingSet,
    path: str | os.PathLike[str],
    table: SizeClassTable,
    holdout: Sequence[Recording],
    options: HeapOptions | None,
    *,
    hide_frames: Iterable[str] = (),
    progress: Progress,
    advice: OptimizeResult | None = None,
) -> str:
    """Writes the page; as `Recording.to_html`. With advice, no table is fitted."""
    check_place(path)
    if isinstance(recording, RecordingSet):
        if holdout:
            raise InvalidError("held-out recordings are for a report of one recording")
        facts = gather_set(recording, table, options, hide_frames=hide_frames, progress=progress)
    else:
        facts = gather(
            *(recording, table, holdout, options),
            hide_frames=hide_frames,
            progress=progress,
            advice=advice,
        )
    write_whole(path, page_of(facts))
    return facts.answer()


def check_place(path: str | os.PathLike[str]) -> None:
    """Check before the work that the page can be written.

    Raises:
        OSError: as `check_output`.
        InvalidError: the name does not end in .html or .htm.
    """
    check_output(path)
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise InvalidError(f"{path}: a report ends in .html; give another name")


def page_of(facts: Facts) -> str:
    """Return the page."""
    stacks = StackData(
        facts.sites, SITES, FLAME_SITES, allocated=(facts.allocated,), moments=facts.moments
    )
    made = list(_sections(facts))
    nav = f'<nav aria-label="contents"><a href="#answer">Verdict</a>{_contents(made)}</nav>'
    body = "\n".join([nav, _head(facts), *(one.html() for one in made)])
    data = [json_script("stacks", stacks.to_dict()), json_script("facts", facts.to_dict())]
    if facts.maps:
        data.append(json_script("frames", _frames(facts, stacks)))
        values = charts.values_over_time(facts.timeline, _own_memory(facts))
        data.append(json_script("values", values))
    return document(
        f"memory of {facts.program}",
        "\n".join([_PATTERNS, f"<main>\n{body}\n</main>", *data]),
        ("report.css", "flame.css"),
        ("common.js", "flame.js", "page.js"),
    )


def _contents(made: Sequence[Section]) -> str:
    """Return links to the sections; those about the simulated heap are one group."""
    groups = []
    for simulated, some in groupby(made, lambda one: one.is_simulated):
        links = "".join(f'<a href="#{one.name}">{html.escape(one.title)}</a>' for one in some)
        groups.append(f'<span class="group">simulated: {links}</span>' if simulated else links)
    return "".join(groups)


OTHERS = -1
"""The number of all stacks that have none."""


def _frames(facts: Facts, stacks: StackData) -> dict[str, Any]:
    """Return the heap maps, and how many objects of the largest sites are in each cell."""
    made = frames_of(facts.maps, partial(charts.place_in_time, facts.timeline))
    if not facts.has_sites:
        return made
    before: dict[int, NDArray[np.uint8]] = {}
    for i, (frame, moment) in enumerate(zip(made["frames"], facts.moments, strict=True)):
        frame["stacks"] = stacks.largest(i, SITES)
        counts = counts_of(facts.maps, moment, stacks.stack_of, frame["stacks"])
        rows = dict(zip([*frame["stacks"], OTHERS], counts, strict=True))
        frame["counts"] = changed_rows(rows, before)
    return made


def _own_memory(facts: Facts) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The program's allocator and its resident bytes over time, if that is not ours."""
    own = facts.recording
    if not isinstance(own, Recording) or own.memory is None or own.allocator == "spanwise":
        return "", ()
    return own.allocator, own.memory.series


def _sections(facts: Facts) -> Iterable[Section]:
    if facts.ledger.parts:
        yield sections.processes(facts)
    if facts.recording.events:
        text = (
            "Bytes that spanwise's heap would hold, stacked by part. The dashed line is its"
            " resident bytes."
        )
        own = _own_memory(facts)
        if own[1]:
            text += f" The solid line is {own[0]}'s malloc, measured as the program ran."
        picture = charts.both(partial(charts.timeline, facts.timeline, facts.peak_op, own))
        if facts.maps:
            text += (
                " Drag over an interval: sizes, heap map, call sites and flame graph show its"
                " moment with the most resident bytes. Arrow keys move from moment to moment."
            )
            picture += '<p id="pointed" class="quiet"></p><p id="shown" aria-live="polite"></p>'
        yield section("Over time", text, picture, is_simulated=True)
        yield sections.sizes(facts)
        yield section(
            "Waste by class",
            f"The classes with the most waste at the peak. The table has {len(facts.table)}"
            " classes.",
            charts.both(partial(charts.waste_by_class, facts.ledger))
            or "<p>No class has any waste.</p>",
            is_simulated=True,
        )
        if facts.maps:
            yield sections.heap_map(facts)
        yield sections.call_sites(facts)
        if facts.has_stacks:
            yield sections.flame_graph(facts)
        yield sections.advice(facts)
    yield sections.definitions()
    yield sections.about(facts)


def _head(facts: Facts) -> str:
    remarks = [facts.ledger.remark, *facts.recording.summary.gaps()]
    notes = "".join(
        f'<p class="remark">{html.escape(text)}</p>'
        for text in dict.fromkeys(filter(None, remarks))
    )
    after = "".join(
        f'<p class="after-peak">{_prose(text)}</p>' for text in facts.after_peak.sentences
    )
    words = facts.recording.arguments if isinstance(facts.recording, Recording) else ()
    command = html.escape(" ".join(words) or facts.program)
    return (
        f'<header><h1>Memory of {html.escape(facts.program)}</h1>{notes}<p id="answer">'
        f"{_prose(facts.answer())}</p>{_findings(facts)}{_own_heap(facts)}{_changes(facts)}"
        f"{_simulated_heap(facts)}{after}"
        f'<p class="quiet">{html.escape(facts.recording.name)}: <code>{command}</code></p></header>'
    )


def _prose(text: str) -> str:
    """Return the HTML of a sentence whose lines do not end between a number and its unit."""
    return re.sub(r"(?<=\d) (?=(?:%|[num]?s|[KMGT]?i?B)(?!\w))", "&nbsp;", html.escape(text))


def _findings(facts: Facts) -> str:
    """What explains the verdict."""
    each = facts.changes.findings if facts.changes is not None else ()
    rows = "".join(
        f"<dt>{name}</dt>" + "".join(f"<dd>{_prose(text)}</dd>" for _, text in some)
        for name, some in groupby(each, lambda one: one.name)
    )
    return f'<dl id="findings">{rows}</dl>' if rows else ""


def _most_bytes(facts: Facts) -> int:
    """The end of the axis of both bars of the head."""
    return max(facts.ledger.held_bytes, facts.own.resident_bytes if facts.own else 0)


def _own_heap(facts: Facts) -> str:
    """The heap that the program runs today, if it was measured."""
    own = facts.own
    if own is None:
        return ""
    draw = partial(charts.own_bar, own.parts, _most_bytes(facts))
    return f"{_bar_title('own-heap', own.title, own.sentence)}{charts.both(draw)}"


def _simulated_heap(facts: Facts) -> str:
    """The ledger of the simulated heap."""
    if not facts.ledger.held_bytes:
        return ""
    text = facts.simulated("") if facts.changes is not None else ""
    if facts.own is not None and facts.own.untouched_bytes:
        text += " It counts each object as written completely."
    draw = partial(charts.ledger_bar, facts.ledger, _most_bytes(facts))
    title = f"Under spanwise's {facts.table.name} (simulated)"
    return f"{_bar_title('simulated-heap', title, text)}{charts.both(draw)}"


def _bar_title(name: str, title: str, text: str) -> str:
    what = f" {_prose(text)}" if text else ""
    return f'<p id="{name}" class="bar-title"><b>{html.escape(title)}.</b>{what}</p>'


def _changes(facts: Facts) -> str:
    """The ranked advice."""
    if facts.changes is None:
        return ""
    items = "".join(
        f"<li><b>{_prose(one.title)}</b> {_prose(one.finding)} <i>{_prose(one.change)}</i></li>"
        for one in facts.changes
    )
    made = (
        f'<ol id="changes">{items}</ol>'
        if items
        else f"<p>{html.escape(facts.changes.nothing)}</p>"
    )
    return made + (f"<p>{facts.changes.overlap}</p>" if facts.changes.overlap else "")


_PATTERNS = (
    '<svg class="patterns" aria-hidden="true"><defs>'
    + "".join(
        f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" class="fill-{name}"/>'
        f'<path d="{path}" class="stroke"/></pattern>'
        for name, path in (
            ("roundup", "M0 6L6 0"),
            ("free-slot", "M0 0L6 6"),
            ("cached", "M3 0V6"),
            ("free-page", "M0 3H6"),
            ("large-rounding", "M0 6L6 0M0 0L6 6"),
        )
    )
    + "</defs></svg>"
)


# --- the shell ------------------------------------------------------------------------------------


_FOLDER = Path(__file__).parent


def document(title: str, body: str, styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Return a page; `styles` and `scripts` are names of files in the folder of this one."""
    style, script = (
        "".join((_FOLDER / name).read_text(encoding="utf-8") for name in names)
        for names in (styles, scripts)
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy that allows this style and this script only."""

    def source(text: str) -> str:
        digest = hashlib.sha256(text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"

    return f"default-src 'none'; style-src {source(style)}; script-src {source(script)}"


def json_script(name: str, value: object) -> str:
    """Return data as a JSON script; `<` is escaped, so that no text ends the element early."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'
