# SPDX-License-Identifier: Apache-2.0
"""The report: its parts, its numbers, bad input, and a browser."""

from __future__ import annotations

import html
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise import _format
from spanwise.__main__ import main
from spanwise.report import facts as facts_of
from spanwise.report.advice import ADVICE_PASSES

from tests.python.browser import Page, unpacked
from tests.python.helpers import has_open, make_ops, random_ops

RECORDING = sw.Recording.from_ops(random_ops(9, 4000), name="mine")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a recording."""
    path = tmp_path_factory.mktemp("page") / "mine.html"
    RECORDING.to_html(path, "go")
    return path.read_text(encoding="utf-8")


def test_the_page_has_all_its_parts_and_no_more_than_it_may(text: str) -> None:
    page = Page(text)
    assert page.open == []
    wanted = ("answer", "over-time", "sizes", "waste-by-class", "heap-map", "call-sites")
    for name in (*wanted, "table-advice", "definitions", "map", "when", "timeline"):
        assert name in page.ids, name
    assert len(text) < 1 << 20
    assert text.index('id="answer"') < text.index("<svg viewBox") < text.index('id="over-time"')


def test_rules_of_print_win(text: str) -> None:
    """A slider is useless on paper; of equally specific CSS rules, the last one wins."""
    hidden = text.index(".slider { display: none; }")
    assert text.rindex("@media print", 0, hidden) > text.rindex(".slider { display: flex")


def test_the_page_needs_nothing_else(text: str) -> None:
    """No element loads anything, and the policy lets none do so. Links are to the page itself."""
    page = Page(text)
    targets = {value for _, name, value in page.attributes if name == "href"}
    assert {one.removeprefix("#") for one in targets} <= {*page.ids} and "#heap-map" in targets
    loads = {"src", "srcset", "action", "poster", "data", "formaction"}
    assert [one for one in page.attributes if one[1] in loads] == []
    assert "default-src 'none'" in text
    addresses = set(re.findall(r"[a-z]+://[^\s\"'<]*", text))
    assert addresses == set()
    assert set(re.findall(r"url\(([^)]*)\)", text)) <= {
        *("#roundup", "#free-slot", "#cached", "#large-rounding", "#quarantine", "#free-page"),
        "#of-no-call",
    }


def test_the_numbers_are_those_of_the_package(text: str) -> None:
    page = Page(text)
    facts, ledger = page.data("facts"), RECORDING.ledger("go")
    assert facts["ledger"] == json.loads(ledger.to_json())
    assert facts["after_peak"] == json.loads(RECORDING.after_peak("go").to_json())
    assert facts["answer"] == page.paragraphs["answer"]
    assert f"{100 * ledger.waste_bytes / ledger.held_bytes:.1f} % is waste" in facts["simulated"]
    advice = RECORDING.advice("go", fitted=None)
    assert facts["answer"] == advice.verdict
    assert [one["kind"] for one in facts["changes"] if one["kind"] != "table"] == [
        one.kind for one in advice
    ]
    for one in advice:
        assert html.escape(one.finding) in text.replace("&nbsp;", " ")
    assert [site["id"] for site in facts["sites"]] == [
        site.id for site in RECORDING.live_sites("go").sites[:15]
    ]
    assert facts["advice"]["go"] == RECORDING.ledger("go", "peak-resident").peak_resident_bytes


def test_the_tables_are_at_the_moment_of_the_head(text: str) -> None:
    """The row of the report's table has the head's waste; another table's is of the same moment."""
    op = RECORDING.after_peak("go").peak_op
    advice = text[text.index('id="table-advice"') :]
    assert "Held, resident and waste are at peak-resident under go, one moment" in advice
    for name, table in (("go (this report&#x27;s)", "go"), ("c16", "c16")):
        row = advice[: advice.index(f"<td>{name}</td>")].rpartition("<tr>")[2]
        ledger = RECORDING.ledger(table, f"#{op}")
        share = f"{100 * ledger.waste_bytes / ledger.held_bytes:.1f} %"
        assert re.findall(r"<td class=number[^>]*>(.*?)</td>", row)[2] == share


def test_frames_are_the_maps(text: str) -> None:
    """Each cell is a page here: its byte is the page's use, taken from the tiles one by one."""
    shown = Page(text).data("frames")
    maps = RECORDING.maps("go", samples=24)
    assert [frame["at"] == "peak-resident" for frame in shown["frames"]].count(True) == 1
    assert len(shown["frames"]) == len(maps) and shown["cell_bytes"] == 8192
    for frame, one in zip(shown["frames"], maps, strict=True):
        cells = np.array(unpacked(frame["cells"]))
        wanted = np.full(len(cells), 255)
        for tile in one.array:
            first, count = int(tile["offset"]) // 8192, int(tile["bytes"]) // 8192
            code = {0: round(100 * int(tile["live"]) / max(int(tile["slots"]), 1)), 1: 101, 2: 102}
            wanted[first : first + count] = code[int(tile["kind"])]
        assert (np.abs(cells - wanted) <= 1).all()
        of_kind = wanted > 100  # codes are exact, percentages may be rounded otherwise
        assert (cells[of_kind] == wanted[of_kind]).all() and (cells[~of_kind] <= 100).all()


def test_what_a_recording_says_cannot_become_markup(tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script>&"
    ops = make_ops((0, 0, 100), (0, 1, 5000))
    sw.Recording.from_ops(ops, name=name).to_html(tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert Page(text).open == []
    assert "alert(1)</script>&" not in text and "<script>alert" not in text


@pytest.mark.parametrize("rows", [[], [(0, 0, 100)], [(0, 0, 0)], [(0, 0, 1 << 20), (1, 0, 0)]])
def test_hardly_any_operation(rows: list[tuple[int, int, int]], tmp_path: Path) -> None:
    recording = sw.Recording.from_ops(make_ops(*rows), name="few")
    answer = recording.to_html(tmp_path / "x.html")
    page = Page((tmp_path / "x.html").read_text(encoding="utf-8"))
    assert page.paragraphs["answer"] == answer
    if not rows:
        assert answer == "few allocated nothing, so nothing was wasted."


def test_without_call_sites_it_says_how_to_record_them(text: str, tmp_path: Path) -> None:
    assert "spanwise record --stacks 16" in Page(text).texts["call-sites"]
    ops = random_ops(9, 400).copy()
    ops["site"] = 1 + ops["object"] % 7
    sw.Recording.from_ops(ops).to_html(tmp_path / "x.html")
    output = Page((tmp_path / "x.html").read_text(encoding="utf-8")).texts["call-sites"]
    assert "innermost callers" in output and "--stacks" not in output


def test_the_command_writes_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swt = tmp_path / "a.swt"
    sw.Recording.from_ops(random_ops(3, 900), swt)
    assert main(["report", str(swt), "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["report"] == str(tmp_path / "a.html")
    assert output["bytes"] == (tmp_path / "a.html").stat().st_size
    other = tmp_path / "b.swt"
    sw.Recording.from_ops(random_ops(4, 900), other)
    words = ["report", str(swt), "-o", str(tmp_path / "b.html"), "--holdout", str(other)]
    assert main(words) == 0
    assert "Held out, b.swt:" in (tmp_path / "b.html").read_text(encoding="utf-8")
    assert f"wrote {tmp_path}/b.html" in capsys.readouterr().out


def test_a_page_of_several_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows and sums are those of the ledgers, each at its own peak."""
    paths = [tmp_path / name for name in ("a.swt", "b.swt", "c.swt")]
    each = [sw.Recording.from_ops(random_ops(i, 900 * i), p) for i, p in enumerate(paths, 1)]
    assert main(["report", *map(str, paths), "--table", "go"]) == 0
    text = (tmp_path / "a.html").read_text()
    page = Page(text)
    held = [one.ledger("go").held_bytes for one in each]
    shown = [_format.size(value) for value in (*held, sum(held))]
    rows = re.findall(r"<tr>(.*?)</tr>", text[page_place(text, "processes") :])[1:5]
    assert [re.findall(r">([^<]*)</td>", row)[1] for row in rows] == shown
    assert [row.rpartition("<td>")[2].split(":")[0] for row in rows][:3] == [p.name for p in paths]
    assert page.data("facts")["ledger"]["held_bytes"] == sum(held)
    assert "3 processes (" in page.data("facts")["answer"]
    assert {"over-time", "call-sites", "the-recording"} <= {*page.ids}
    assert "heap-map" not in page.ids
    capsys.readouterr()
    assert main(["report", *map(str, paths), "--holdout", str(paths[0])]) == 2
    assert capsys.readouterr().err.count("for one recording; give one file") == 1
    with pytest.raises(sw.InvalidError, match="for a report of one recording"):
        sw.RecordingSet(each).to_html(tmp_path / "x.html", holdout=each)
    of_one = sw.RecordingSet(each[:1]).to_html(tmp_path / "one.html")
    assert of_one.startswith("operations had ")


def page_place(text: str, section: str) -> int:
    """Where a section begins."""
    return text.index(f'<section id="{section}">')


def test_places_and_files_that_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swt, cut = tmp_path / "a.swt", tmp_path / "cut.swt"
    sw.Recording.from_ops(random_ops(3, 2000), swt)
    cut.write_bytes(swt.read_bytes()[:-900])
    (tmp_path / "old.html").write_text("old")
    for words, said in (
        ([str(swt), "-o", str(tmp_path / "none/x.html")], "cannot be written"),
        ([str(swt), "-o", "/proc/x.html"], "cannot be written"),
        ([str(swt), "-o", str(tmp_path / "x.txt")], "a report ends in .html"),
        ([str(swt), "-o", str(tmp_path)], "cannot be written: Is a directory"),
        ([str(cut), "-o", str(tmp_path / "old.html")], "cut.swt"),
        ([str(tmp_path / "no.swt"), "-o", str(tmp_path / "x.html")], "no.swt"),
        ([str(swt), "-o", str(tmp_path / "x.html"), "--table", "fly"], "fly"),
    ):
        assert main(["report", *words]) == 2
        captured = capsys.readouterr()
        assert said in captured.err and captured.err.count("\n") == 1 and captured.out == ""
    assert (tmp_path / "old.html").read_text() == "old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.swt", "cut.swt", "old.html"]
    assert main(["report", str(cut), "-o", str(tmp_path / "x.html"), "--valid-prefix"]) in (0, 1)


def test_the_bar_counts_simulated_operations() -> None:
    """Of each operation 5 passes precede the search, which has nearly all the steps."""
    steps: list[int] = []
    one = sw.Recording.from_ops(random_ops(1, 2000))
    facts_of.gather(one, sw.SizeClassTable.c16(), progress=steps.append)
    total = (facts_of._PASSES + ADVICE_PASSES) * len(one) + facts_of._searched_operations(one, [])
    assert 50 * len(one) < sum(steps) <= total and max(steps) < total / 5


def test_ctrl_c_leaves_no_part(tmp_path: Path) -> None:
    swt = tmp_path / "a.swt"
    sw.Recording.from_ops(sw.synthesize(64, 5000, count=400_000).ops, swt)
    words = [sys.executable, "-m", "spanwise", "report", str(swt), "-o", str(tmp_path / "x.html")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as going:
        while going.poll() is None and not (
            has_open(going.pid, "a.swt") or len(list(tmp_path.iterdir())) > 1
        ):
            time.sleep(0.01)  # until it is at work: a busy machine may take seconds
        going.send_signal(signal.SIGINT)
        _, output = going.communicate(timeout=300)
    if going.returncode == 0:
        pytest.skip("it was done before it was interrupted")
    assert (going.returncode, output) == (130, "spanwise: interrupted\n")
    assert [one.name for one in tmp_path.iterdir()] == ["a.swt"]


def test_long_recordings_are_searched_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: at least 8 tables, at most 160, between them what makes 100 million operations."""
    for ops, tables in ((10, 160), (624_999, 160), (1_000_000, 100), (10_000_000, 10), (10**8, 8)):
        monkeypatch.setattr(sw.Recording, "__len__", lambda _, ops=ops: ops)
        assert facts_of.searched_tables(RECORDING) == tables
