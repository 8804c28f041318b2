# SPDX-License-Identifier: Apache-2.0
"""Read a page: its parts, or what a script finds in it in a headless browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest


class Page(HTMLParser):
    """The content of a page: elements by id, texts, data, attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: dict[str, dict[str, str | None]] = {}
        self.open: list[str] = []
        self.texts: dict[str, str] = {}
        self.paragraphs: dict[str, str] = {}
        self.attributes: list[tuple[str, str, str]] = []
        self._name = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element."""
        found = dict(attrs)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        name = found.get("id") or ""
        if name:
            assert name not in self.ids
            self.ids[name] = found
        self._name = name if name or tag == "script" else self._name
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that elements end in order."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Notes a text by the id before it."""
        self.texts[self._name] = self.texts.get(self._name, "") + data
        if self.open and self.open[-1] != "p":
            return
        self.paragraphs.setdefault(self._name, data)

    def data(self, name: str) -> Any:
        """Data of the page."""
        return json.loads(self.texts[name])


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


def is_trouble(line: str) -> bool:
    """Whether a line is of the page's console, with the probe's reading of pixels."""
    return "CONSOLE" in line and "willReadFrequently" not in line


def browse(folder: Path, page: Path, *words: str) -> str:
    """Open a page in the browser and return the DOM; its console must be empty."""
    command = [
        *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *(f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"),
        *(words or ("--window-size=794,1123", "--dump-dom")),
        f"file://{page}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert [line for line in done.stderr.splitlines() if is_trouble(line)] == []
    return done.stdout


_FRAME = """<!doctype html><body><script>
addEventListener("message", (event) => { document.body.dataset.output = event.data; });
</script><iframe src="probed.html" width="WIDTH" height="900" style="border: 0"></iframe></body>
"""


def probe(folder: Path, page: Path, script: str, width: int = 0) -> Any:
    """Run a script at the end of a page and return the value that it assigns to `output`.

    With `width`, the page is in a frame of so many pixels.
    """
    ending = f"<script>(() => {{ let output;\n{script}\ndocument.body.dataset.output = "
    ending += "JSON.stringify(output); })();\n"
    ending += 'parent.postMessage(document.body.dataset.output, "*");</script></body>'
    probed = folder / "probed.html"
    text = page.read_text(encoding="utf-8").replace("</body>", ending)
    text = re.sub("'sha256-[^']*'", "'unsafe-inline'", text)
    probed.write_text(text, encoding="utf-8")
    if width:
        outside = folder / "frame.html"
        outside.write_text(_FRAME.replace("WIDTH", str(width)), encoding="utf-8")
        probed = outside
    (output,) = re.findall(r'data-output="([^"]*)"', browse(folder, probed))
    return json.loads(html.unescape(output))


needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no chromium on this machine")
