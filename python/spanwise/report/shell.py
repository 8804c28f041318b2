# SPDX-License-Identifier: Apache-2.0
"""The shell of a self-contained HTML file: style, scripts and data, and a policy for them alone."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from pathlib import Path

_FOLDER = Path(__file__).parent


def document(title: str, body: str, styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Return a page; `styles` and `scripts` are names of files beside this one."""
    style, script = (
        "".join((_FOLDER / name).read_text(encoding="utf-8") for name in names)
        for names in (styles, scripts)
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy that allows this style and this script only."""

    def source(text: str) -> str:
        digest = hashlib.sha256(text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"

    return f"default-src 'none'; style-src {source(style)}; script-src {source(script)}"


def json_script(name: str, value: object) -> str:
    """Return data as a JSON script; `<` is escaped, so that no text ends the element early."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'
