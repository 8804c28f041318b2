# SPDX-License-Identifier: Apache-2.0
"""A script that a researcher would write runs as it stands: its names are those of the package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.python.helpers import ROOT

SCRIPT = ROOT / "tests/python/front/researcher.py"


def test_the_researchers_script_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "3000"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in ("tables.png", "timeline.png", "replays.png"):
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"
    ledgers = json.loads((tmp_path / "comparison.json").read_text())["ledgers"]
    assert [one["table"] for one in ledgers] == ["go", "c16", "jemalloc", "geometric-1.25"]
    least = min(ledgers, key=lambda one: one["peak_resident_bytes"])
    assert (
        f"{least['table']} has a peak resident of {least['peak_resident_bytes']} bytes"
        in done.stdout
    )
    assert "15 15\n" in done.stdout  # 48 - 33, by both


def test_it_is_forty_lines_of_code() -> None:
    lines = [line.strip() for line in SCRIPT.read_text().splitlines()]
    code = [line for line in lines if line and not line.startswith(("#", '"""'))]
    assert len(code) <= 40
