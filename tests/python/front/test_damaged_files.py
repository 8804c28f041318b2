# SPDX-License-Identifier: Apache-2.0
"""Damaged files for every reader: the short form of `./dev stress python_files`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from spanwise.recordings import conversion

from tests.python.helpers import ROOT, python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs forks and /proc")

FILES = 510


def test_no_damaged_file_ends_in_a_traceback(tmp_path: Path) -> None:
    """Each reader accepts some damaged files and rejects others, so both paths are tested."""
    words = ["--files", str(FILES), "--seed", "7", "--keep", str(tmp_path)]
    done = python("-m", "tests.fuzz.fuzz_files", *words, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{FILES} files: 0 failures" in done.stdout
    rows = re.findall(r"^(.+?) +(\d+) +(\d+) +(\d+)$", done.stdout, re.MULTILINE)
    assert len(rows) >= 17
    assert {f"convert {form}" for form in conversion.FORMS} < {name for name, *_ in rows}
    for name, *counts in rows:
        files, fine, refused = map(int, counts)
        assert fine + refused == files >= FILES // len(rows)
        assert fine > 0 and refused > 0, name
