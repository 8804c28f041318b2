# SPDX-License-Identifier: Apache-2.0
"""Links and names in documents lead somewhere; decision notes have one page and one shape."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md")])
NOTES = sorted((ROOT / "docs/decisions").glob("*.md"))
DESIGN = sorted((ROOT / "docs/design").glob("*.md"))

LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:docs|tests|scripts|include|python|cmake)/[\w./-]+)`")
DATED = re.compile(r"(?<!measurements/)\b20\d\d-\d\d-\d\d\b|\bcommit [0-9a-f]{7}")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
NOTE_LINES = 60


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def broken_links(root: Path, page: Path) -> Iterator[str]:
    """Relative links, and names of this project's files, that lead nowhere."""
    text = page.read_text(encoding="utf-8")
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield target
    for name in NAMED.findall(text):
        # A decision may go by its number alone.
        if not (root / name).exists() and not list(root.glob(f"{name}-*.md")):
            yield name


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(ROOT, page)) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs/decisions").mkdir(parents=True)
    (tmp_path / "docs/decisions/0001-why.md").write_text("# 0001: why\n\n## What it is, today\n")
    page = tmp_path / "docs/page.md"
    page.write_text(
        "[good](decisions/0001-why.md#what-it-is-today), [far](https://example.org/none.md),\n"
        "`docs/decisions/0001`, [here](#page), `docs/decisions/0002`, [no](decisions/why.md),\n"
        "[no](decisions/0001-why.md#what-it-was), `tests/python/test_gone.py`\n\n# Page\n"
    )
    expected = ["decisions/why.md", "decisions/0001-why.md#what-it-was"]
    expected += ["docs/decisions/0002", "tests/python/test_gone.py"]
    assert list(broken_links(tmp_path, page)) == expected


@pytest.mark.parametrize("page", DESIGN, ids=[page.stem for page in DESIGN])
def test_a_design_page_has_no_figures_of_a_day(page: Path) -> None:
    """They lie in docs/measurements, which a design page links to."""
    assert DATED.findall(page.read_text(encoding="utf-8")) == []


def test_figures_of_a_day_are_found() -> None:
    text = "On 2026-11-20 (commit f9e30fd) it was 3 ns. [Figures](../measurements/2026-11-20-a.md)"
    assert DATED.findall(text) == ["2026-11-20", "commit f9e30fd"]


def test_notes_are_numbered_without_gaps() -> None:
    assert [note.name[:5] for note in NOTES] == [f"{i:04}-" for i in range(1, len(NOTES) + 1)]


@pytest.mark.parametrize("note", NOTES, ids=[note.stem for note in NOTES])
def test_a_note_has_one_page(note: Path) -> None:
    text = note.read_text(encoding="utf-8")
    assert text.startswith(f"# {note.name[:4]}: ")
    assert text.count("\n") <= NOTE_LINES


def long_lines(page: Path) -> list[int]:
    """Line numbers beyond 120 columns, outside of tables and code blocks."""
    found, code = [], False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        code ^= line.startswith("```")
        if len(line) > 120 and not code and not line.startswith(("|", "    ", "![", "<")):
            found.append(number)
    return found


def test_long_lines_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    long, fits = "b" * 121, "a" * 120
    page.write_text("\n".join([long, f"| {fits} |", "```", long, "```", fits, long]))
    assert long_lines(page) == [1, 7]
