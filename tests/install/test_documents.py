# SPDX-License-Identifier: Apache-2.0
"""Links and file names in documents exist, and the site has every page and public name."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from install_tools import quick_compiler, run

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("*.md", "docs/**/*.md", "src/**/*.md", "notebooks/*.ipynb")
PAGES = sorted(page for place in PLACES for page in ROOT.glob(place))

LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:docs|tests|scripts|include|python|cmake)/[\w./-]+)`")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCED = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as on GitHub."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def text_of(page: Path) -> str:
    """Return the text of a page, or of a notebook's cells of Markdown."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
    return "\n".join("".join(cell["source"]) for cell in cells)


def broken_links(root: Path, page: Path) -> Iterator[str]:
    """Yield relative links, and names of this project's files, that do not exist."""
    text = text_of(page)
    for target in LINK.findall(FENCED.sub("", text)):
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


# --- pages that are run ---------------------------------------------------------------------------

SAVED = re.compile(r"[Ss]ave (?:it|this|this program) as `([\w.]+)`|for instance in `([\w.]+)`")
NUMBER = r"\\d[\\d.,]*"
INPUTS = {"use-other-recordings.md": {"heap.pb.gz": ROOT / "tests/data/profiles/go.pb.gz"}}
"""Files that a page takes from elsewhere."""
GO_FILES = {
    "go.mod": "module example\n\ngo 1.23\n",
    "main_test.go": """\
package main

import "testing"

var kept [][]byte

func TestKeep(t *testing.T) {
	for range 1000 {
		kept = append(kept, make([]byte, 1000))
	}
}
""",
}
"""A package of Go, where that is installed, for `go test` in a page."""


def has_go() -> bool:
    """Whether this machine has a Go that traces allocations: 1.23 or newer."""
    if shutil.which("go") is None:
        return False
    version = re.search(r"go1\.(\d+)", run("go", "version"))
    return version is not None and int(version.group(1)) >= 23


def shown_in(expected: str, printed: str) -> bool:
    """Compare words; a number or unit may be any, and a line "..." any text."""
    words = [re.escape(word) for word in expected.split()]
    words = [re.sub(r"\d[\d.,\\]*(?<![.,\\])", NUMBER, word) for word in words]
    words = [r"(?:B|KiB|MiB)(?=\W|$)" if re.fullmatch("[KM]iB|B", word) else word for word in words]
    pattern = r"\s+".join(".*?" if word == r"\.\.\." else word for word in words)
    return re.search(pattern, printed, re.DOTALL) is not None


def run_page(page: Path, folder: Path) -> tuple[int, int]:
    """Run a page's commands and scripts in order; return how many, and how many outputs.

    A program is saved under the name that the text before it gives. A block `text` is part of what
    the commands before it printed.
    """
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CC": str(quick_compiler(folder / "cc")),
        "MPLBACKEND": "Agg",
    }
    for name, source in INPUTS.get(page.name, {}).items():
        shutil.copy(source, folder / name)
    for name, content in GO_FILES.items() if has_go() else ():
        (folder / name).write_text(content, encoding="utf-8")
    text, printed, at, ran, compared = page.read_text(encoding="utf-8"), "", 0, 0, 0
    for block in FENCED.finditer(text):
        language, code = block.groups()
        saved = SAVED.findall(text[at : block.start()])
        at = block.end()
        if language == "text":
            assert shown_in(code, printed), f"{code}\n--- printed:\n{printed}"
            compared += 1
        elif saved:
            (folder / "".join(saved[-1])).write_text(code, encoding="utf-8")
        elif language in ("sh", "python") and (has_go() or "go test" not in code):
            if language == "python":
                (folder / "script.py").write_text(code, encoding="utf-8")
                code = "python3 script.py"
            printed = run("/bin/sh", "-euc", f"exec 2>&1\n{code}", cwd=folder, env=environment)
            ran += 1
    return ran, compared


@pytest.mark.slow
def test_the_tutorial_runs_in_order_and_prints_what_it_shows(tmp_path: Path) -> None:
    assert run_page(ROOT / "docs/tutorial.md", tmp_path) == (7, 5)
    assert (tmp_path / "pages.html").is_file() and (tmp_path / "fits").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ran"),
    [
        ("read-a-ledger", (3, 1)),
        ("who-wastes", (7, 2)),
        ("keep-limits-in-ci", (2, 0)),
        ("use-other-recordings", (2 + has_go(), 0)),
    ],
)
def test_a_how_to_runs_in_order(name: str, ran: tuple[int, int], tmp_path: Path) -> None:
    assert run_page(ROOT / f"docs/how-to/{name}.md", tmp_path) == ran


# --- the site ------------------------------------------------------------------------------------


sys.path.insert(0, str(ROOT / "scripts"))
docs_reference = importlib.import_module("docs_reference")
docs_site = importlib.import_module("docs_site")
readme_charts = importlib.import_module("readme_charts")


@pytest.mark.parametrize("name", readme_charts.PICTURES)
def test_the_charts_of_the_readme_are_those_of_the_measurements(name: str) -> None:
    """After a change of the tables: python3 scripts/readme_charts.py."""
    picture = readme_charts.PICTURES[name]()
    assert (ROOT / name).read_text(encoding="utf-8") == picture and picture.count("ours") > 2


def test_the_tables_of_contents_are_whole() -> None:
    assert list(docs_site.wrong_entries(ROOT)) == []
    assert docs_site.entries(ROOT)[0] == "README"


def test_every_public_name_of_python_has_an_anchor() -> None:
    found = docs_reference.python_pages()
    for name in ("Recording", "SizeClassTable", "Heap"):
        assert f"\n.. autoclass:: spanwise.{name}\n" in found[name]
    assert ".. autoclass:: spanwise.TraceFormatError\n" in found["errors"]
    assert "autofunction:: spanwise.plots.timeline" in found["plots"]
    assert "autofunction:: spanwise.workloads.phase_shift" in found["workloads"]
    described = re.findall(r"^\.\. \S+:: spanwise\.(\w+)$", "\n".join(found.values()), re.MULTILINE)
    assert sorted(described) == sorted(importlib.import_module("spanwise").__all__)


HEADER = """\
/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes: store things.
 *
 *   sw_box_put(box, 1);
 */
#ifndef SPANWISE_BOX_H
#define SPANWISE_BOX_H

typedef struct sw_box {
    int many; /* 0: empty */
} sw_box;

/* As sw_box_get_it, and `box` is *one*. */
SW_API int sw_box_put(sw_box *box,
                      int value) SW_NONNULL(1);
SW_API void *sw_box_get_it(void); /* after all */
static inline int sw_box_same(int a) {
    if (a) return a;
    return 0;
}
SW_API int sw_box_other(void);

#endif
"""


def test_each_function_of_a_header_has_an_anchor_and_its_comment(tmp_path: Path) -> None:
    (tmp_path / "include/spanwise").mkdir(parents=True)
    (tmp_path / "include/spanwise/box.h").write_text(HEADER)
    found = docs_reference.header_pages(tmp_path)
    assert ":doc:`box.h <box>`\n     - Boxes: store things\n" in found["index"]
    assert (
        found["box"].split("\n\n", 4)[4]
        == """\
``#include <spanwise/box.h>``

.. c:struct:: sw_box

   .. code-block:: c

      typedef struct sw_box {
          int many; /* 0: empty */
      } sw_box;

.. c:function:: int sw_box_put(sw_box *box, int value)

   As \\ :c:func:`sw_box_get_it`\\ , and ``box`` is \\*one\\*.

.. c:function:: void *sw_box_get_it(void)

   after all

.. c:function:: int sw_box_same(int a)
                int sw_box_other(void)
"""
    )


def test_each_exported_function_has_one_anchor() -> None:
    text = "\n".join(docs_reference.header_pages(ROOT).values())
    blocks = re.findall(r"^\.\. c:function:: (.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    found = re.findall(r"\b(sw_\w+)\(", "\n".join(blocks))
    headers = (ROOT / "include/spanwise").glob("*.h")
    declared = {
        name
        for header in headers
        for name in re.findall(r"^SW_API [^;(]*?\b(sw_\w+)\(", header.read_text(), re.MULTILINE)
    }
    assert len(found) == len(set(found)) and declared <= set(found) and len(declared) > 200
