# SPDX-License-Identifier: Apache-2.0
"""What the tests of the generator share."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from spanwise_sizeclasses.families import make_table
from spanwise_sizeclasses.model import BUILTINS

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "sizeclasses.py"

GO_NUMBERS = json.loads((ROOT / "tests/data/go-sizeclasses.json").read_text())
GO = make_table(BUILTINS["go"])
C16 = make_table(BUILTINS["c16"])

FINE = {"name": "mine", "page_bytes": 8192, "classes": [{"size": 16, "pages": 1}]}


def run_script(*args: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def with_classes(*classes: tuple[object, object], **top: object) -> str:
    """A table file of classes (size, pages); `top` is what else it says."""
    rows = [{"size": size, "pages": pages} for size, pages in classes]
    return json.dumps({**FINE, "classes": rows, **top})
