# SPDX-License-Identifier: Apache-2.0
"""The program's own heap, as it was measured: its parts, in the report and in the terminal."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise import _format
from spanwise.heap.options import HeapOptions
from spanwise.recordings import sources
from spanwise.report import facts as facts_of
from spanwise.report.advice_facts import AdviceFacts
from spanwise.report.own_heap import own_heap_of
from spanwise.report.page import page_of

from tests.python.browser import Page, needs_browser, probe
from tests.python.helpers import make_ops, spanwise

KIB, MIB = 1 << 10, 1 << 20
SIZES = [1] * 1000 + [24] * 1000 + [25] * 1000 + [40] * 1000 + [131072] * 8
REQUESTED = 1000 * (1 + 24 + 25 + 40) + 8 * 131072
OVERHEAD = 1000 * (31 + 8 + 23 + 8) + 8 * 4096
"""By hand: chunks of 32, 32, 48 and 48 bytes, and 33 pages each."""
C16 = sw.SizeClassTable.c16()


def in_process(
    path: Path, malloc: int = 2 * MIB, untouched: int = 0, library: str = ""
) -> sw.Recording:
    """Allocate SIZES, free half of them, and allocate a little; the peak is before."""
    count = len(SIZES)
    rows = [(0, i, size) for i, size in enumerate(SIZES)]
    rows += [(1, i, 0) for i in range(0, count, 2)] + [(0, count, 100)]
    ops = make_ops(*rows)
    ops["time_ns"] = 1000 * np.arange(len(ops))
    parts = {"peak": 6 * MIB, "ns": 1000, "malloc": malloc, "mapped": 0, "data": MIB}
    parts |= {"file": 6 * MIB - malloc - MIB, "recorder": 0, "end_malloc": malloc}
    parts["untouched"] = untouched
    meta = [("program", "/opt/app"), *((f"rss_{name}", str(n)) for name, n in parts.items())]
    modules = [sources.Module(1 << 30, 2 << 30, 0, library, "")] if library else []
    sources.write_ops(path, iter([ops]), meta, modules=modules)
    return sw.Recording.open(path)


def overhead_of(recording: sw.Recording) -> int:
    return AdviceFacts(recording, C16, HeapOptions(), None).own_overhead_bytes


def test_headers_and_rounding_of_glibc(tmp_path: Path) -> None:
    """Those of the objects at the peak, not at the end."""
    recording = in_process(tmp_path / "a.swt")
    assert recording.summary.peak_requested_bytes == REQUESTED
    assert overhead_of(recording) == OVERHEAD == 102_768
    own = own_heap_of(recording, C16)
    assert own is not None and own.waste_bytes == 2 * MIB - REQUESTED
    assert own.parts == (
        ("part-requested", "requested", REQUESTED),
        ("part-roundup", "headers and rounding", OVERHEAD),
        ("part-free-page", "free chunks and unreturned pages", 2 * MIB - REQUESTED - OVERHEAD),
    )
    assert own.title == "Today: glibc's malloc, measured at the peak RSS"


def test_headers_and_rounding_are_at_most_the_waste(tmp_path: Path) -> None:
    recording = in_process(tmp_path / "a.swt", REQUESTED + 50_000)
    assert overhead_of(recording) == 50_000
    own = own_heap_of(recording, C16)
    assert own is not None and own.parts == (
        ("part-requested", "requested", REQUESTED),
        ("part-roundup", "waste, all headers and rounding", 50_000),
    )


def test_where_headers_and_rounding_are_not_known(tmp_path: Path) -> None:
    """Another malloc; too much that was never written; no memory measured."""
    other = in_process(tmp_path / "a.swt", library="/usr/lib/libjemalloc.so.2")
    own = own_heap_of(other, C16)
    assert overhead_of(other) == 0 and own is not None
    assert [(name, size) for _, name, size in own.parts] == [
        ("requested", REQUESTED),
        ("waste", 2 * MIB - REQUESTED),
    ]
    assert own.title.startswith("Today: jemalloc's malloc")
    for one in (
        in_process(tmp_path / "b.swt", REQUESTED - 300 * KIB),
        sw.Recording.from_ops(make_ops((0, 0, 100))),
    ):
        assert overhead_of(one) == 0 and own_heap_of(one, C16) is None


def test_what_was_never_written_is_not_in_the_bar(tmp_path: Path) -> None:
    own = own_heap_of(in_process(tmp_path / "a.swt", untouched=512 * KIB), C16)
    assert own is not None and own.waste_bytes == 2 * MIB + 512 * KIB - REQUESTED
    assert own.parts[0] == ("part-requested", "requested and written", REQUESTED - 512 * KIB)
    assert sum(size for _, _, size in own.parts) == 2 * MIB


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> sw.Recording:
    return in_process(tmp_path_factory.mktemp("own") / "a.swt")


def test_the_head_begins_with_the_heap_of_today(recording: sw.Recording) -> None:
    """Its waste is that of the verdict; the simulated bar says that it is simulated."""
    facts = facts_of.gather(recording, C16, progress=None)
    text = page_of(facts)
    page = Page(text)
    share = f"{100 * (2 * MIB - REQUESTED) / (2 * MIB):.1f} %"
    assert f"({share}) was waste" in facts.answer()
    head = re.sub("<[^>]*>", "", text[text.index('id="answer"') :])
    words = " ".join(html.unescape(head).split())
    today = words.index("Today: glibc's malloc, measured at the peak RSS. 2.0 MiB resident")
    assert f"({share}) of it waste." in words[today : today + 120]
    simulated = words.index("Under spanwise's c16 (simulated).")
    assert words.index("was waste") < today < simulated
    assert facts.own is not None and page.data("facts")["own_heap"] == facts.own.to_dict()
    assert text.index('id="own-heap"') < text.index('id="simulated-heap"')
    svg = text[text.index('id="own-heap"') : text.index('id="simulated-heap"')]
    for _, name, size in facts.own.parts:
        assert svg.count(f"<title>{name}: {_format.size(size)}</title>") == 2  # wide and narrow
    assert "by simulation" not in words[simulated : simulated + 200]


def test_without_measured_memory_there_is_the_simulated_heap_only() -> None:
    one = sw.Recording.from_ops(make_ops((0, 0, 100), (0, 1, 1000)))
    text = page_of(facts_of.gather(one, C16, progress=None))
    assert 'id="own-heap"' not in text and "measured at the peak RSS" not in text
    assert "<b>Under spanwise&#x27;s c16 (simulated).</b>" in text


def test_titles_say_what_is_simulated(recording: sw.Recording) -> None:
    """In the table of contents the sections about the simulated heap are one group."""
    text = page_of(facts_of.gather(recording, C16, progress=None))
    titles = re.findall("<h2>(.*?)</h2>", text)
    own = ["Definitions", "The recording"]
    assert titles[-2:] == own
    assert titles[:-2] and all(one.endswith(" (simulated)") for one in titles[:-2])
    (group,) = re.findall('<span class="group">simulated: (.*?)</span>', text)
    links = re.findall("<a [^>]*>(.*?)</a>", group)
    assert [f"{one} (simulated)" for one in links] == titles[:-2]


@needs_browser
def test_the_head_fits_a_phone(recording: sw.Recording, tmp_path: Path) -> None:
    """At 400 pixels nothing in it is wider, even a long name; only the narrow bars are shown."""
    facts = facts_of.gather(recording, C16, progress=None)
    assert facts.changes is not None
    facts = replace(facts, changes=replace(facts.changes, verdict=f"{'name' * 40} was waste."))
    page = tmp_path / "x.html"
    page.write_text(page_of(facts), encoding="utf-8")
    script = """
    const shown = [...document.querySelectorAll("header *")]
        .filter((one) => one.getClientRects().length > 0);
    output = {
        right: Math.max(...shown.map((one) => one.getBoundingClientRect().right)),
        over: shown.filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0)
            .map((one) => one.tagName),
        bars: shown.filter((one) => one.tagName === "svg").map((one) => one.ariaLabel),
    };
    """
    output = probe(tmp_path, page, script, width=400)
    assert output["right"] <= 400 and output["over"] == []
    own, simulated = output["bars"]
    assert own == "the program's own heap: 2.0 MiB resident"
    assert simulated.startswith("ledger of the simulated peak: ")


def test_the_ledger_in_the_terminal(recording: sw.Recording) -> None:
    """The heap of today comes first; at another moment it is not known."""
    assert recording.path is not None
    place = Path(recording.path)
    wasted, share = 2 * MIB - REQUESTED, f"{100 - 100 * REQUESTED / (2 * MIB):.1f} %"
    lines = spanwise("ledger", place.name, cwd=place.parent).stdout.splitlines()
    assert lines[:3] == [
        "Today: glibc's malloc, measured at the peak RSS:",
        f"  2.0 MiB resident, {wasted / KIB:.1f} KiB ({share}) of it waste.",
        "",
    ]
    assert lines[3].startswith("simulated ledger of a.swt under c16 at peak-resident: ")
    at_end = spanwise("ledger", place.name, "--at", "end", cwd=place.parent).stdout
    assert at_end.startswith("simulated ledger of a.swt under c16 at end: ")
