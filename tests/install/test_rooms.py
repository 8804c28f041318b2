# SPDX-License-Identifier: Apache-2.0
"""scripts/check_rooms.py finds planted violations only; the installed package keeps its names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from install_tools import ROOT

SCRIPT = ROOT / "scripts/check_rooms.py"

ROOMS = """# Rooms

1. `base`: `spanwise/_lib.py`
2. `tables`: `spanwise/tables/` (uses only `base`)
3. `ledger`: `spanwise/ledger/`
4. `plots`: `spanwise/plots/`
5. `front`: `spanwise/__init__.py`
"""

FILES = {
    "ROOMS.md": ROOMS,
    "spanwise/__init__.py": (
        "from spanwise import plots\nfrom spanwise.ledger.ledger import total\n"
    ),
    "spanwise/_lib.py": "from spanwise._spanwise import ffi\n",
    "spanwise/tables/__init__.py": "",
    "spanwise/tables/table.py": (
        "from typing import TYPE_CHECKING\n"
        "from spanwise import _lib\n"
        "if TYPE_CHECKING:\n"
        "    from matplotlib.axes import Axes\n"
        "    from spanwise.ledger.ledger import total\n"
        "def plot():\n"
        "    from spanwise import plots\n"
        "    return plots\n"
    ),
    "spanwise/ledger/__init__.py": "",
    "spanwise/ledger/parts.py": "",
    "spanwise/ledger/ledger.py": (
        "from spanwise.ledger.parts import __doc__\nfrom spanwise.tables import table\ntotal = 0\n"
    ),
    "spanwise/plots/__init__.py": "from spanwise.plots.style import pyplot\n",
    "spanwise/plots/style.py": (
        "import importlib\ndef pyplot(): return importlib.import_module('matplotlib.pyplot')\n"
    ),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project of five rooms without a violation."""
    for name, text in FILES.items():
        path = tmp_path / "python" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def check(tree: Path) -> tuple[int, list[str]]:
    command = [sys.executable, str(SCRIPT), "--root", str(tree)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, (result.stdout + result.stderr).splitlines()


def plant(tree: Path, file: str, line: str) -> None:
    """Insert a line at the beginning of a file, which may be new."""
    path = tree / "python" / file
    path.write_text(line + "\n" + (path.read_text() if path.is_file() else ""))


def test_clean_tree_passes(tree: Path) -> None:
    assert check(tree) == (0, ["check_rooms: 5 rooms, 9 modules, 0 violations"])


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        (
            "spanwise/tables/table.py",
            "from spanwise import plots",
            "room tables may not import plots (spanwise.plots)",
        ),
        (
            "spanwise/tables/table.py",
            "from spanwise.plots.style import pyplot",
            "room tables may not import plots (spanwise.plots.style)",
        ),
        (
            "spanwise/tables/table.py",
            "import spanwise.ledger.parts",
            "room tables may not import ledger (spanwise.ledger.parts)",
        ),
        (
            "spanwise/tables/table.py",
            "from ..ledger import parts",
            "room tables may not import ledger (spanwise.ledger.parts)",
        ),
        (
            "spanwise/tables/table.py",
            "def lazy(): from spanwise.ledger import parts",
            "room tables may not import ledger (spanwise.ledger.parts)",
        ),
        (
            "spanwise/ledger/parts.py",
            "def lazy(): from spanwise import total",
            "room ledger may not import front (spanwise)",
        ),
        (
            "spanwise/ledger/ledger.py",
            "def draw(): import matplotlib.pyplot",
            "imports matplotlib.pyplot; only plots and report may",
        ),
        (
            "spanwise/ledger/ledger.py",
            "import importlib; importlib.import_module('matplotlib')",
            "imports matplotlib; only plots and report may",
        ),
        (
            "spanwise/ledger/ledger.py",
            "from spanwise import _spanwise",
            "imports the extension; only spanwise._lib may",
        ),
        (
            "spanwise/ledger/ledger.py",
            "from spanwise._spanwise import lib",
            "imports the extension; only spanwise._lib may",
        ),
        ("spanwise/loose.py", "", "in no room of python/ROOMS.md; add its folder there"),
    ],
)
def test_planted_import_is_found(tree: Path, file: str, line: str, message: str) -> None:
    plant(tree, file, line)
    status, lines = check(tree)
    assert (status, lines[:-1]) == (1, [f"python/{file}:1: {message}"])


def test_planted_cycle_is_found(tree: Path) -> None:
    plant(tree, "spanwise/ledger/parts.py", "from spanwise.ledger.ledger import total")
    (said,) = check(tree)[1][:-1]
    assert said.startswith("cycle of imports: ") and said.count("spanwise.ledger.") == 3


def test_the_26th_entry_is_found(tree: Path) -> None:
    """The small tree has 5 entries."""
    package = tree / "python/spanwise"
    for number in range(20):
        (package / f"{number}.txt").touch()
    (package / "__pycache__").mkdir()
    assert check(tree)[0] == 0
    (package / "20.txt").touch()
    assert check(tree)[1][:-1] == ["python/spanwise: 26 entries; at most 25"]


def test_this_project_is_clean() -> None:
    status, lines = check(ROOT)
    assert status == 0, lines


def run_python(code: str) -> str:
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, check=True, cwd="/").stdout


def test_every_installed_module_is_the_attribute_of_its_name() -> None:
    """After all are imported: the attribute of a module's name is that module."""
    code = """
import importlib, pkgutil, sys, spanwise
names = [m.name for m in pkgutil.walk_packages(spanwise.__path__, "spanwise.")]
for name in names:
    module = importlib.import_module(name) if name != "spanwise.__main__" else None
    package, _, last = name.rpartition(".")
    if module is not None and getattr(sys.modules[package], last) is not module:
        print(name)
print(len(names) > 80)
"""
    assert run_python(code) == "True\n"
