# SPDX-License-Identifier: Apache-2.0
"""The pairs of docs/how-to/from-go.md: both programs of a pair print the lines below them.

GoMem's programs need its sources, in the folder that SPANWISE_GOMEM names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/how-to/from-go.md").read_text(encoding="utf-8")
PAIRS = re.findall(
    r"^## (.*?)\n.*?```go\n(.*?)```\n\n```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.M | re.S
)
IDS = [title for title, *_ in PAIRS]
GOMEM = os.environ.get("SPANWISE_GOMEM", "")


def printed(words: list[str], folder: Path) -> str:
    environment = {**os.environ, "GOEXPERIMENT": "arenas", "GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_a_pair() -> None:
    assert len(PAIRS) == PAGE.count("```go") == PAGE.count("```python") == PAGE.count("\n## ") == 7


@pytest.mark.parametrize(("title", "go", "python", "text"), PAIRS, ids=IDS)
def test_python(title: str, go: str, python: str, text: str, tmp_path: Path) -> None:
    assert printed([sys.executable, "-c", f"import spanwise as sw\n{python}"], tmp_path) == text


@pytest.mark.parametrize(("title", "go", "python", "text"), PAIRS, ids=IDS)
def test_go(title: str, go: str, python: str, text: str, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no go on this machine")
    if "gomem." in go and not GOMEM:
        pytest.skip("SPANWISE_GOMEM does not name GoMem's sources")
    module = "module example\n\ngo 1.23\n"
    used = '"arena"'
    if "gomem." in go:
        used = '"github.com/langhuihui/gomem"'
        module += "\nrequire github.com/langhuihui/gomem v0.0.0\n"
        module += f"\nreplace github.com/langhuihui/gomem => {GOMEM}\n"
    (tmp_path / "go.mod").write_text(module)
    (tmp_path / "main.go").write_text(
        f'package main\n\nimport (\n{used}\n"fmt"\n)\n\nfunc main() {{\n{go}}}\n'
    )
    if "gomem." not in go and "arena" not in printed(["go", "list", "std"], tmp_path).split():
        pytest.skip("this Go has no arenas")
    assert printed(["go", "run", "."], tmp_path) == text
