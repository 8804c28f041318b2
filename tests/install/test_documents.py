# SPDX-License-Identifier: Apache-2.0
"""Links and file names in documents exist, and the site has every page and public name."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md")])

LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:docs|tests|scripts|include|python|cmake)/[\w./-]+)`")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as on GitHub."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def broken_links(root: Path, page: Path) -> Iterator[str]:
    """Yield relative links, and names of this project's files, that do not exist."""
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


# --- the site ------------------------------------------------------------------------------------


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts/docs_site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_site"] = module
    spec.loader.exec_module(module)
    return module


SITE = _script()


def test_the_table_of_contents_is_whole() -> None:
    assert list(SITE.wrong_entries(ROOT)) == []
    assert SITE.entries(ROOT / "docs/index.md")[0] == "README"


def test_missing_pages_are_reported(tmp_path: Path) -> None:
    (tmp_path / "docs/design").mkdir(parents=True)
    for name in ("docs/design/a.md", "docs/lost.md", "README.md"):
        (tmp_path / name).write_text("# page\n")
    toc = "```{toctree}\n:glob:\n\ndesign/*\n../README\nreference/*\ngone\n```\n"
    (tmp_path / "docs/index.md").write_text(toc)
    assert list(SITE.wrong_entries(tmp_path)) == [
        "docs/index.md: docs/gone: names no page",
        "docs/lost: is in no table of contents of docs/index.md",
    ]


def test_the_reference_has_every_public_name() -> None:
    text = SITE.python_reference()
    for name in ("record", "Recording", "SizeClassTable", "optimize", "convert"):
        assert f"\n## {name}\n" in text
    assert "\n### Recording.ledger\n" in text
    headers = SITE.header_reference(ROOT)
    assert all(f"## {one.name}\n" in headers for one in (ROOT / "include/spanwise").glob("*.h"))
