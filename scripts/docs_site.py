#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation site build/docs/html with Sphinx and MyST-NB (./dev docs).

The site has the documents, reference pages from docstrings and headers, and the notebooks as last
run in build/notebooks. Warnings are errors. --check, which needs no Sphinx, checks that every page
is in the table of contents of docs/index.md, and that every entry there is a page.

Example:
    python scripts/docs_site.py --check
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import inspect
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/docs"
INDEX = ROOT / "docs/index.md"
OUTSIDE = ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY", "src/LAYERS", "python/ROOMS")
"""Pages outside docs/."""
REFERENCE = ("python", "headers")
"""Generated pages of docs/reference."""
_TOC = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)

CONFIGURATION = """\
project = "spanwise"
extensions = ["myst_nb"]
root_doc = "docs/index"
myst_heading_anchors = 6
nb_execution_mode = "off"
html_theme = "alabaster"
html_theme_options = {"page_width": "72em", "sidebar_width": "18em"}
html_copy_source = False
suppress_warnings = ["misc.highlighting_failure", "mystnb.unknown_mime_type", "myst.header"]
"""


def entries(index: Path) -> list[str]:
    """Return the entries of the tables of contents, as paths from the root without extensions."""
    found = []
    for inside in _TOC.findall(index.read_text(encoding="utf-8")):
        lines = (line.strip() for line in inside.splitlines())
        found += [line for line in lines if line and not line.startswith(":")]
    return [posixpath.normpath(f"{index.parent.name}/{entry}") for entry in found]


def pages(root: Path) -> set[str]:
    """Return all pages of the site, without extensions."""
    found = {name for name in OUTSIDE if (root / f"{name}.md").is_file()}
    for pattern in ("docs/**/*.md", "notebooks/*.ipynb"):
        found |= {one.relative_to(root).with_suffix("").as_posix() for one in root.glob(pattern)}
    return found | {f"docs/reference/{name}" for name in REFERENCE}


def wrong_entries(root: Path) -> Iterator[str]:
    """Yield a line for each page without an entry, and for each entry without a page."""
    known = pages(root) - {"docs/index"}
    named: set[str] = set()
    for entry in entries(root / "docs/index.md"):
        matching = set(fnmatch.filter(known, entry))
        if not matching:
            yield f"docs/index.md: {entry}: names no page"
        named |= matching
    yield from (
        f"{page}: is in no table of contents of docs/index.md" for page in sorted(known - named)
    )


def python_reference() -> str:
    """Return a page with each public name of the package and its docstring."""
    package = importlib.import_module("spanwise")
    parts = ["# Python\n\nThe public names of `import spanwise`, as `help()` prints them.\n"]
    for name in sorted(package.__all__, key=str.lower):
        thing = getattr(package, name)
        if inspect.ismodule(thing) or not (inspect.isclass(thing) or callable(thing)):
            continue
        parts.append(
            f"## {name}\n\n```text\n{name}{_signature(thing)}\n\n{inspect.getdoc(thing)}\n```\n"
        )
        for method, member in inspect.getmembers(thing) if inspect.isclass(thing) else ():
            text = inspect.getdoc(member)
            if method.startswith("_") or not text or not _is_ours(member):
                continue
            parts.append(
                f"### {name}.{method}\n\n```text\n{method}{_signature(member)}\n\n{text}\n```\n"
            )
    return "\n".join(parts)


def _is_ours(member: object) -> bool:
    inside = member.fget if isinstance(member, property) else member
    return (getattr(inside, "__module__", None) or "").startswith("spanwise")


def _signature(thing: object) -> str:
    try:
        return str(inspect.signature(thing))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""


def header_reference(root: Path) -> str:
    """Return a page with the public headers, whose comments are the contracts of functions."""
    parts = ["# C headers\n\nInclude `<spanwise/spanwise.h>`, or the header of a subject.\n"]
    for header in sorted((root / "include/spanwise").glob("*.h")):
        parts.append(f"## {header.name}\n\n```c\n{header.read_text(encoding='utf-8')}```\n")
    return "\n".join(parts)


def gather(source: Path) -> None:
    """Copy and generate all pages."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source / "docs")
    for name in (*(f"{page}.md" for page in OUTSIDE), "CITATION.cff"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text(encoding="utf-8")
        # A site has no page for a folder, so link to the table of contents.
        (source / name).write_text(text.replace("](docs/decisions)", "](docs/index.md)"))
    (source / "notebooks").mkdir()
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        ran = ROOT / "build/notebooks" / notebook.name
        shutil.copy(ran if ran.is_file() else notebook, source / "notebooks")
    reference = source / "docs/reference"
    reference.mkdir()
    (reference / "python.md").write_text(python_reference(), encoding="utf-8")
    (reference / "headers.md").write_text(header_reference(ROOT), encoding="utf-8")
    (source / "conf.py").write_text(CONFIGURATION, encoding="utf-8")


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
    """Check the table of contents, or build the site."""
    parser = argparse.ArgumentParser(
        prog="./dev docs", description="Builds the documents as a site: build/docs/html."
    )
    parser.add_argument("--check", action="store_true", help="only compare the table of contents")
    options = parser.parse_args(arguments)
    wrong = list(wrong_entries(ROOT))
    print("".join(f"{line}\n" for line in wrong), end="")
    if options.check or wrong:
        return int(bool(wrong))
    return build()


if __name__ == "__main__":
    sys.exit(main())
