# SPDX-License-Identifier: Apache-2.0
"""Runs a widget's script in a browser, with a model that has a state and records what is set."""

from __future__ import annotations

import base64
import html
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no chromium on this machine")
needs_anywidget = pytest.mark.skipif(
    importlib.util.find_spec("anywidget") is None, reason="anywidget is not installed"
)
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

    The frame has an origin of its own, so neither the page nor storage is within reach.

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
    inside = f"""<!doctype html><meta charset="utf-8"><style>{style}</style><body>
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
    """Open the page and return what its probe saw; an error on the console fails the test."""
    path = folder / "x.html"
    path.write_text(page, encoding="utf-8")
    words = [
        *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *(f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"),
        "--disable-features=IsolateSandboxedIframes",  # else a frame has a clock of its own
        *("--virtual-time-budget=20000", "--dump-dom", f"file://{path}"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    trouble = [one for one in done.stderr.splitlines() if "CONSOLE" in one]
    assert [one for one in trouble if "willReadFrequently" not in one] == []
    (text,) = re.findall(r'data-seen="([^"]*)"', done.stdout)
    return json.loads(html.unescape(text))
