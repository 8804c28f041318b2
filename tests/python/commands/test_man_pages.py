# SPDX-License-Identifier: Apache-2.0
"""Manual pages from the help texts: one per command, accepted by groff."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from spanwise.__main__ import COMMANDS

from tests.python.helpers import ROOT


@pytest.fixture(scope="module")
def man(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("man")
    words = [sys.executable, str(ROOT / "scripts/man_pages.py"), str(folder)]
    subprocess.run(words, check=True)
    return sorted(folder.glob("*.1"))


def test_each_command_has_one(man: list[Path]) -> None:
    names = {f"spanwise-{name}.1" for name in COMMANDS}
    assert {page.name for page in man} == {"spanwise.1", *names}
    for page in man:
        text = page.read_text(encoding="utf-8")
        for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"):
            assert f".SH {part}\n" in text, page.name
        assert page.name == "spanwise.1" or ".SH EXAMPLE\n.nf\n  spanwise " in text, page.name
        assert "SUPPRESS" not in text and "%(" not in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_no_complaint(man: list[Path]) -> None:
    words = ["groff", "-man", "-Tutf8", "-ww", "-z", *map(str, man)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
