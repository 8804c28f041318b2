# SPDX-License-Identifier: Apache-2.0
"""Pages: their parts, and what a script finds in them in a headless browser.

A widget's script runs with a model that has a state and records what is set.
"""

from __future__ import annotations

import base64
import html
import importlib.util
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no chromium on this machine")
needs_anywidget = pytest.mark.skipif(
    importlib.util.find_spec("anywidget") is None, reason="anywidget is not installed"
)


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
        self.feed(text.replace("&nbsp;", " "))
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


def unpacked(text: str) -> list[int]:
    """Bytes: literal runs and repeated values, as docs/design/report.md says."""
    data, at = base64.b64decode(text), 0
    found: list[int] = []
    while at < len(data):
        control, at = data[at], at + 1
        literal = control < 128
        count = control + 1 if literal else 1
        part = data[at : at + count]
        found += part if literal else [*part] * (control - 126)
        at += count
    return found


def browse(folder: Path, page: Path, *words: str) -> str:
    """Open a page in the browser and return the DOM; its console must be empty."""
    command = [
        *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *(f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"),
        *(words or ("--window-size=794,1123", "--dump-dom")),
        f"file://{page}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    trouble = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    # A probe reads pixels, of which the console advises otherwise.
    assert [line for line in trouble if "willReadFrequently" not in line] == []
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


MODEL = """
const state = %s, binary = %s, heard = {};
for (const [name, text] of Object.entries(binary)) {
    const read = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    state[name] = new DataView(read.buffer);
}
const model = {
    saved: 0,
    get: (name) => state[name],
    set: (name, value) => { state[name] = value; heard["change:" + name]?.(); },
    save_changes: () => { model.saved++; },
    on: (name, call) => { heard[name] = call; },
    off: (name) => { delete heard[name]; },
};
"""


def page_of(script: Path, state: str, binary: dict[str, bytes], probe: str) -> str:
    """Return a page that renders the widget and runs the probe.

    Args:
        script: the widget's ES module.
        state: the traits as JSON.
        binary: the traits of bytes.
        probe: JavaScript that sets document.body.dataset.seen to JSON.
    """
    text = script.read_text(encoding="utf-8").replace("export default", "const widget =")
    encoded = {name: base64.b64encode(value).decode() for name, value in binary.items()}
    model = MODEL % (state, json.dumps(encoded))
    return (
        '<!doctype html><meta charset="utf-8"><body><div id="here"></div>'
        f'<script type="module">{text}\n{model}\n{probe}</script></body>'
    )


def in_frame(
    script: Path, state: str, binary: dict[str, bytes], probe: str, *, width: int, style: str
) -> str:
    """Return a page that imports the widget as VS Code and Colab do: from a blob, in a sandbox.

    The frame has an origin of its own, so neither the page nor storage is within reach. Its policy
    allows scripts of the page and of blobs, and pictures in data URLs: no network, no `eval`.

    Args:
        script: the widget's ES module.
        state: the traits as JSON.
        binary: the traits of bytes.
        probe: JavaScript that calls `done(seen)`.
        width: of the frame, pixels.
        style: CSS of the host.
    """
    encoded = {name: base64.b64encode(value).decode() for name, value in binary.items()}
    text = json.dumps(script.read_text(encoding="utf-8")).replace("</", "<\\/")
    policy = "default-src 'none'; script-src 'unsafe-inline' blob:; img-src data:"
    policy += "; style-src 'unsafe-inline'"
    inside = f"""<!doctype html><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{style}</style><body>
<div id="here"></div><script type="module">
{MODEL % (state, json.dumps(encoded))}
const url = URL.createObjectURL(new Blob([{text}], {{ type: "text/javascript" }}));
const widget = (await import(url)).default;
const done = (seen) => parent.postMessage(JSON.stringify(seen), "*");
{probe}
</script></body>"""
    return f"""<!doctype html><meta charset="utf-8"><body><script>
addEventListener("message", ({{ data }}) => {{ document.body.dataset.seen = data; }});
</script><iframe sandbox="allow-scripts" style="width: {width}px; height: 900px; border: 0"
 srcdoc="{html.escape(inside)}"></iframe></body>"""


def seen_in(page: str, folder: Path) -> Any:
    """Open a page of a widget and return what its probe saw."""
    path = folder / "x.html"
    path.write_text(page, encoding="utf-8")
    # Without the feature, a frame has a clock of its own.
    frames = "--disable-features=IsolateSandboxedIframes"
    found = browse(folder, path, frames, "--virtual-time-budget=20000", "--dump-dom")
    (text,) = re.findall(r'data-seen="([^"]*)"', found)
    return json.loads(html.unescape(text))
