#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation site build/docs/html with Sphinx, MyST-NB and Furo (./dev docs).

The site has the documents, reference pages from docstrings and headers, a sample report recorded
during the build, and a gallery of the notebooks. Notebooks that were not run are run in their short
form. Warnings are errors. --check, which needs no Sphinx, checks that every page is in a table of
contents, and that every entry there is a page.

Example:
    python scripts/docs_site.py --check
"""

from __future__ import annotations

import argparse
import base64
import fnmatch
import json
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import docs_reference

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/docs"
RAN = ROOT / "build/notebooks"
CONTENTS = ("docs/index.md", "docs/background.md")
"""Pages with tables of contents."""
OUTSIDE = ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY", "src/LAYERS")
"""Pages outside docs/."""
GENERATED = ("docs/gallery", "docs/reference/python/index", "docs/reference/c/index")
"""Pages that the build writes; the pages of classes and headers are entries of the last two."""
_TOC = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)
_PERL = re.compile(r"```perl\n(.*?)```", re.DOTALL)


def entries(root: Path) -> list[str]:
    """Return the entries of the tables of contents, as paths from the root without extensions."""
    found = []
    for page in (root / name for name in CONTENTS if (root / name).is_file()):
        for inside in _TOC.findall(page.read_text(encoding="utf-8")):
            lines = (line.strip() for line in inside.splitlines())
            found += [_entry(line) for line in lines if line and not line.startswith(":")]
    return [posixpath.normpath(f"docs/{entry}") for entry in found]


def _entry(line: str) -> str:
    """Return the page of `page` or `title <page>`."""
    return line.rpartition("<")[2].removesuffix(">")


def pages(root: Path) -> set[str]:
    """Return all pages of the site, without extensions."""
    found = {name for name in OUTSIDE if (root / f"{name}.md").is_file()}
    for pattern in ("docs/**/*.md", "notebooks/*.ipynb"):
        found |= {one.relative_to(root).with_suffix("").as_posix() for one in root.glob(pattern)}
    return found | set(GENERATED)


def wrong_entries(root: Path) -> Iterator[str]:
    """Yield a line for each page without an entry, and for each entry without a page."""
    known = pages(root) - {"docs/index"}
    named: set[str] = set()
    for entry in entries(root):
        matching = set(fnmatch.filter(known, entry))
        if not matching:
            yield f"{entry}: is in a table of contents and names no page"
        named |= matching
    yield from (
        f"{page}: is in no table of contents of {' or '.join(CONTENTS)}"
        for page in sorted(known - named)
    )


def gather(source: Path) -> None:
    """Copy and generate all pages."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source / "docs")
    for name in (*(f"{page}.md" for page in OUTSIDE), "CITATION.cff"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text(encoding="utf-8")
        # A site has no page for a folder.
        text = text.replace("](docs/decisions)", "](docs/background.md)")
        if name == "README.md":
            text = text.replace("# spanwise\n", "# What spanwise is\n", 1)
        (source / name).write_text(text.replace("](notebooks)", "](docs/gallery.md)"))
    for folder, found in (
        ("python", docs_reference.python_pages()),
        ("c", docs_reference.header_pages(ROOT)),
    ):
        (source / "docs/reference" / folder).mkdir(parents=True)
        for name, text in found.items():
            (source / f"docs/reference/{folder}/{name}.rst").write_text(text, encoding="utf-8")
    (source / "_static").mkdir()
    for name in ("site.css", "search.js", "favicon.svg"):
        shutil.copy(ROOT / "docs/site" / name, source / "_static")
    shutil.copy(ROOT / "docs/site/conf.py", source)
    sample_report(source / "_static")
    gallery(source)


def sample_report(folder: Path) -> None:
    """Record the program of README.md and write its report, sample-report.html, into the folder."""
    program = _PERL.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert program is not None
    work = BUILD / "sample"
    work.mkdir(parents=True, exist_ok=True)
    (work / "index.pl").write_text(program.group(1), encoding="utf-8")
    spanwise = [sys.executable, "-m", "spanwise"]
    recorded = ["record", "--force", "-o", "index.swt", "--", "perl", "index.pl"]
    reported = ["report", "--force", "index.swt", "-o", str(folder / "sample-report.html")]
    for words in (recorded, reported):
        subprocess.run([*spanwise, *words], cwd=work, check=True, stdout=subprocess.DEVNULL)


def gallery(source: Path) -> None:
    """Copy the executed notebooks, and write a page that shows a picture of each."""
    (source / "notebooks").mkdir()
    cards = []
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        ran = RAN / notebook.name
        if not ran.is_file() or ran.stat().st_mtime < notebook.stat().st_mtime:
            words = [str(ROOT / "scripts/notebooks.py"), "--short", notebook.name]
            subprocess.run([sys.executable, *words], check=True)
        shutil.copy(ran, source / "notebooks")
        cards.append(card(ran, source / "_static"))
    text = "# Gallery\n\nNotebooks, as last run. `./dev notebooks` runs them in full.\n\n"
    text += '<div class="gallery">\n' + "\n".join(cards) + "\n</div>\n"
    (source / "docs/gallery.md").write_text(text, encoding="utf-8")


def card(notebook: Path, folder: Path) -> str:
    """Return a link to a notebook with its title and first picture, which goes to the folder."""
    book = json.loads(notebook.read_text(encoding="utf-8"))
    title = "".join(book["cells"][0]["source"]).partition("\n")[0].lstrip("# ")
    shown = ""
    for picture in pictures(book):
        (folder / f"{notebook.stem}.png").write_bytes(base64.b64decode(picture))
        shown = f'<img src="../_static/{notebook.stem}.png" alt="" loading="lazy">'
        break
    return f'<a href="../notebooks/{notebook.stem}.html">{shown}<br>{title}</a>'


def pictures(book: dict[str, Any]) -> Iterator[str]:
    """Yield the pictures of a notebook, base64 of PNG."""
    for cell in book["cells"]:
        for output in cell.get("outputs", []):
            picture = output.get("data", {}).get("image/png")
            if picture:
                yield "".join(picture)


def build() -> int:
    """Run Sphinx; return its exit status."""
    source, html = BUILD / "source", BUILD / "html"
    gather(source)
    shutil.rmtree(html, ignore_errors=True)
    words = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-j", "2"]
    status = subprocess.run([*words, source, html], check=False).returncode
    if status == 0:
        start = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">\n'
        (html / "index.html").write_text(start, encoding="utf-8")
        print(f"{(html / 'index.html').relative_to(ROOT)}: open it in a browser")
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the tables of contents, or build the site."""
    parser = argparse.ArgumentParser(
        prog="./dev docs", description="Builds the documents as a site: build/docs/html."
    )
    parser.add_argument("--check", action="store_true", help="only compare the tables of contents")
    options = parser.parse_args(arguments)
    wrong = list(wrong_entries(ROOT))
    print("".join(f"{line}\n" for line in wrong), end="")
    if options.check or wrong:
        return int(bool(wrong))
    return build()


if __name__ == "__main__":
    sys.exit(main())
