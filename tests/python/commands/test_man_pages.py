# SPDX-License-Identifier: Apache-2.0
"""The manual pages are what the help texts say, one for each command, and roff takes them."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from spanwise.__main__ import COMMANDS

from tests.python.helpers import ROOT

PAGES = sorted((ROOT / "docs/man").glob("*.1"))


def test_the_pages_are_those_of_the_help_texts() -> None:
    words = [sys.executable, str(ROOT / "scripts/man_pages.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_each_command_has_one() -> None:
    names = {f"spanwise-{name}.1" for name in COMMANDS}
    assert {page.name for page in PAGES} == {"spanwise.1", *names}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"):
            assert f".SH {part}\n" in text, page.name
        assert page.name == "spanwise.1" or ".SH EXAMPLE\n.nf\n  spanwise " in text, page.name
        assert "SUPPRESS" not in text and "%(" not in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_no_complaint() -> None:
    words = ["groff", "-man", "-Tutf8", "-ww", "-z", *map(str, PAGES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
