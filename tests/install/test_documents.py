# SPDX-License-Identifier: Apache-2.0
"""Links and file names in documents exist; tutorial and how-tos run, and print what they show.

GoMem's programs in docs/how-to/from-go.md need its sources, which SPANWISE_GOMEM names.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import spanwise as sw
from install_tools import quick_compiler, run, shown_in
from spanwise.commands import COMMANDS
from spanwise.ledger.parts import PARTS
from spanwise.report.sections import DEFINITIONS

from tests.python.browser import needs_browser, seen_in

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
        ("who-wastes", (9, 2)),
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

HEADER = """\
/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes: store things.
 */
typedef struct sw_box {
    int many; /* 0: empty */
} sw_box;

/* As sw_box_get_it, and `box` is *one*. */
SW_API int sw_box_put(sw_box *box,
                      int value) SW_NONNULL(1);
SW_API void *sw_box_get_it(void); /* after all */
static inline int sw_box_same(int a) {
    return a;
}
SW_API int sw_box_other(void);
"""
PAGE = """\
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


CPP_HEADER = """\
/* SPDX-License-Identifier: Apache-2.0 */
/* Crates: hold boxes.
 *
 *     spanwise::crate<int> c;
 */
#include <spanwise/box.h>

namespace spanwise {

namespace detail {

/* Not shown. */
template <typename T> class base {};

} // namespace detail

/* A crate; sw_box_put fills it. */
template <typename T> class crate final : public detail::base<T> {
  public:
    using value_type = T;

    explicit crate(const T &from = T()) noexcept : from_(from) {}
    ~crate() { (void)from_; }
    crate(const crate &) = delete;

    /* Return how
     * many. */
    T many(int kind) const {
        if (kind) return T(); /* none */
        return from_;
    }

  private:
    T from_;
};

/* Open crates. */
class open : public std::exception {
  public:
    open() = default;
};

template <typename T> bool operator==(const crate<T> &, int) noexcept {
    return true;
}

} // namespace spanwise
"""
CPP_PAGE = """\
.. code-block:: cpp

   spanwise::crate<int> c;

``#include <spanwise/crate.hpp>``

.. cpp:class:: template <typename T> spanwise::crate final

   A crate; \\ :c:func:`sw_box_put`\\  fills it.

   .. cpp:type:: value_type = T

   .. cpp:function:: explicit crate(const T &from = T()) noexcept

   .. cpp:function:: ~crate()

   .. cpp:function:: T many(int kind) const

      Return how
      many.

.. cpp:class:: spanwise::open : public std::exception

   Open crates.

   .. cpp:function:: open()

.. cpp:function:: template <typename T> bool spanwise::operator==(const crate<T> &, int) noexcept
"""


def test_the_tables_of_contents_are_whole() -> None:
    assert list(docs_site.wrong_entries(ROOT)) == []
    assert docs_site.entries(ROOT)[0] == "README"


def test_a_page_of_a_header(tmp_path: Path) -> None:
    (tmp_path / "include/spanwise").mkdir(parents=True)
    (tmp_path / "include/spanwise/box.h").write_text(HEADER)
    found = docs_reference.header_pages(tmp_path)
    assert ":doc:`box.h <box>`\n     - Boxes: store things\n" in found["index"]
    assert found["box"].endswith(PAGE)


def test_a_page_of_a_header_of_cplusplus(tmp_path: Path) -> None:
    (tmp_path / "include/spanwise").mkdir(parents=True)
    (tmp_path / "include/spanwise/box.h").write_text(HEADER)
    (tmp_path / "include/spanwise/crate.hpp").write_text(CPP_HEADER)
    assert docs_reference.header_pages(tmp_path)["crate"].endswith(CPP_PAGE)


def test_every_public_name_has_one_anchor() -> None:
    text = "\n".join(docs_reference.header_pages(ROOT).values())
    blocks = re.findall(r"^\.\. c:function:: (.*?)\n\n", text, re.M | re.S)
    found = re.findall(r"\b(sw_\w+)\(", "\n".join(blocks))
    headers = "".join(path.read_text() for path in (ROOT / "include/spanwise").glob("*.h"))
    declared = set(re.findall(r"^SW_API [^;(]*?\b(sw_\w+)\(", headers, re.M))
    assert len(found) == len(set(found)) and declared <= set(found) and len(declared) > 200
    cpp = "".join(path.read_text() for path in (ROOT / "include/spanwise").glob("*.hpp"))
    classes = re.findall(r"^.. cpp:class:: .*?spanwise::(\w+)", text, re.M)
    declared = set(re.findall(r"\bclass (\w+)", cpp)) - {"of_handle"}  # of detail
    assert sorted(classes) == sorted(declared) and len(declared) == 7
    pages = "\n".join(docs_reference.python_pages().values())
    assert sorted(re.findall(r"^\.\. \S+:: spanwise\.(\w+)$", pages, re.M)) == sorted(sw.__all__)


FOUND = """\
<article role="main"><section id="page"><h1>Free</h1><p>A page.</p>
<section id="bare"><p>One word: trim.</p></section>
<section id="full"><p>Trim the arena.</p></section>
<section id="deep"><dl class="py function"><dt id="sw.trim">trim()</dt><dd><p>Free the pages
of an arena, and trim.</p></dd></dl></section></section></article>
"""
"""A page of the site, as the search fetches it."""


@needs_browser
@pytest.mark.parametrize(
    ("words", "anchor", "href"),
    [
        (["trim"], "", "p.html#bare"),
        (["trim", "arena"], "", "p.html#full"),
        (["trim", "arena", "free"], "", "p.html#sw.trim"),
        (["free"], "", "p.html"),
        (["trim"], "#deep", "p.html#deep"),
    ],
)
def test_a_search_result_links_to_the_place_of_its_words(
    words: list[str], anchor: str, href: str, tmp_path: Path
) -> None:
    """As Sphinx's script does: the result is there, and the summary is added to it."""
    script = (ROOT / "docs/site/search.js").read_text(encoding="utf-8")
    page = f"""<!doctype html><meta charset="utf-8"><body>
<ul><li><a href="p.html{anchor}">Free</a></li></ul><script>{script}</script><script>
const Search = {{ makeSearchSummary: () => document.createElement("p") }};
addEventListener("DOMContentLoaded", () => {{
    const words = new Set({json.dumps(words)}), item = document.querySelector("li");
    item.append(Search.makeSearchSummary({json.dumps(FOUND)}, words, "{anchor}"));
    setTimeout(() => {{
        const href = item.querySelector("a").getAttribute("href");
        document.body.dataset.seen = JSON.stringify(href.split("/").pop());
    }});
}});</script></body>"""
    assert seen_in(page, tmp_path) == href


def test_the_sidebar_is_short_and_calls_are_links(tmp_path: Path) -> None:
    """A site of five pages with the configuration of the site."""
    for module in ("sphinx", "furo", "myst_nb"):
        pytest.importorskip(module, reason=f"{module} is not installed (extra: docs)")
    source = tmp_path / "source"
    (source / "docs/decisions").mkdir(parents=True)
    (source / "_static").mkdir()
    shutil.copy(ROOT / "docs/site/conf.py", source)
    shutil.copy(ROOT / "docs/site/favicon.svg", source / "_static")
    contents = "# {}\n\n```{{toctree}}\n{}\n```\n"
    (source / "docs/index.md").write_text(contents.format("Start", "background\npython\narena"))
    page = docs_reference.header_pages(ROOT)["arena_allocator"]
    (source / "docs/arena.rst").write_text(page)
    (source / "docs/background.md").write_text(contents.format("Background", "decisions/0001"))
    (source / "docs/decisions/0001.md").write_text("# Decided\n")
    (source / "docs/python.rst").write_text(
        "Python\n======\n\n.. autoclass:: spanwise.Recording\n   :members: open, from_ops\n\n"
        ".. autoclass:: spanwise.Arena\n   :members: hold\n"
    )
    run(sys.executable, "-m", "sphinx", "-q", "-W", source, tmp_path / "html")

    def page_and_sidebar(name: str) -> tuple[str, str]:
        page = (tmp_path / "html/docs" / name).read_text(encoding="utf-8")
        before, _, article = page.partition("<article")
        return article, before.partition('class="sidebar-tree"')[2]

    for name in ("index.html", "background.html", "decisions/0001.html"):
        sidebar = page_and_sidebar(name)[1]
        assert "Background" in sidebar and "Python" in sidebar and "Decided" not in sidebar
    article, _ = page_and_sidebar("background.html")
    assert 'href="decisions/0001.html">Decided</a>' in article
    article, _ = page_and_sidebar("python.html")
    assert re.search(
        r'href="#spanwise.Recording.open"[^>]*><code[^>]*><span[^>]*>open\(\)', article
    )
    assert "leave the `with` of hold()" in re.sub("<[^>]*>", "", article)  # in an example
    article, _ = page_and_sidebar("arena.html")
    for name in ("arena", "arena_allocator", "arena_resource"):
        length = len(name)
        assert re.search(rf'<dt class="[^"]*" id="_CPPv4\w*N8spanwise{length}{name}E"', article)
    assert re.search(r'<dt class="[^"]*" id="\w*15arena_allocator8allocate', article)


@pytest.mark.parametrize("name", readme_charts.PICTURES)
def test_charts_of_the_readme_are_those_of_the_measurements(name: str) -> None:
    """After a change of the tables: python3 scripts/readme_charts.py."""
    picture = readme_charts.PICTURES[name]()
    assert (ROOT / name).read_text(encoding="utf-8") == picture and picture.count("ours") > 2


def test_the_page_of_commands_has_each() -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `spanwise (\w+)", page, re.M)) == set(COMMANDS)


LISTED = (ROOT / "dev").read_text(encoding="utf-8").partition("\n}\n")[0]
COMMANDS_OF_DEV = [name for name in re.findall(r"^  ([a-z]+) ", LISTED, re.M) if name != "help"]
assert len(COMMANDS_OF_DEV) > 8


@pytest.mark.parametrize("command", ["", *COMMANDS_OF_DEV, "bench --programs"])
def test_the_help_of_dev_fits(command: str) -> None:
    """Of each command that ./dev lists."""
    said = run("./dev", *command.split(), "--help", cwd=ROOT, env={"COLUMNS": "80"})
    assert said.startswith(f"usage: ./dev {command}".rstrip())
    assert [line for line in said.splitlines() if len(line) > 80] == []


def test_the_page_of_definitions_has_each_term_of_a_report() -> None:
    page = (ROOT / "docs/definitions.md").read_text(encoding="utf-8")
    terms = set(re.findall(r"^\| ([a-z -]+) \| .+ \|$", page, re.M))
    assert {*DEFINITIONS, *PARTS.values()} <= terms


# --- the pairs of docs/how-to/from-go.md: both print the lines below them -------------------------


FROM_GO = (ROOT / "docs/how-to/from-go.md").read_text(encoding="utf-8")
PAIRS = re.findall(
    r"^## (.*?)\n.*?```go\n(.*?)```\n\n```python\n(.*?)```\n\n```text\n(.*?)```",
    FROM_GO,
    re.M | re.S,
)
assert len(PAIRS) == FROM_GO.count("```go") == FROM_GO.count("\n## ") > 0
IDS = [title for title, *_ in PAIRS]
GOMEM = os.environ.get("SPANWISE_GOMEM", "")


def printed(words: list[str], folder: Path) -> str:
    environment = {**os.environ, "GOEXPERIMENT": "arenas", "GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("title", "go", "python", "text"), PAIRS, ids=IDS)
def test_python_of_a_pair(title: str, go: str, python: str, text: str, tmp_path: Path) -> None:
    assert printed([sys.executable, "-c", f"import spanwise as sw\n{python}"], tmp_path) == text


@pytest.mark.parametrize(("title", "go", "python", "text"), PAIRS, ids=IDS)
def test_go_of_a_pair(title: str, go: str, python: str, text: str, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no go on this machine")
    if "gomem." in go and not GOMEM:
        pytest.skip("SPANWISE_GOMEM does not name GoMem's sources")
    module = "module example\n\ngo 1.23\n"
    used = '"arena"'
    if "gomem." in go:
        used = '"github.com/langhuihui/gomem"'
        module += "\nrequire github.com/langhuihui/gomem v0.0.0\n"
        module += f"\nreplace github.com/langhuihui/gomem => {GOMEM}\n"
    (tmp_path / "go.mod").write_text(module)
    (tmp_path / "main.go").write_text(
        f'package main\n\nimport (\n{used}\n"fmt"\n)\n\nfunc main() {{\n{go}}}\n'
    )
    if "gomem." not in go and "arena" not in printed(["go", "list", "std"], tmp_path).split():
        pytest.skip("this Go has no arenas")
    assert printed(["go", "run", "."], tmp_path) == text
