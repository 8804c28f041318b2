# SPDX-License-Identifier: Apache-2.0
"""The package at first use: lazy names, type marker, a researcher's session."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import spanwise as sw

from tests.python.helpers import ROOT, needs_python_malloc, needs_recorder, python


def answer(code: str) -> str:
    """Return the output of a fresh interpreter."""
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_the_import_loads_neither_numpy_nor_a_model() -> None:
    code = (
        "import sys, spanwise; print([name for name in sorted(sys.modules) if name.split('.')[0] in"
        " ('spanwise', 'numpy', 'matplotlib', 'argparse', 'dataclasses')])"
    )
    loaded = ["spanwise", "spanwise.commands", "spanwise.commands._start"]
    assert answer(code) == str(loaded)


def test_a_name_loads_what_it_needs() -> None:
    code = (
        "import sys, spanwise; spanwise.SizeClassTable; loaded = set(sys.modules);"
        "print(*('spanwise.' + name in loaded for name in ('tables.table', 'plots', 'measure')))"
    )
    assert answer(code) == "True False False"


def test_dir_lists_every_name_before_its_first_use() -> None:
    code = "import spanwise; print(set(spanwise.__all__) - set(dir(spanwise)), spanwise.plots)"
    unknown, plots = answer(code).split(" ", 1)
    assert unknown == "set()"
    assert plots.startswith("<module 'spanwise.plots'")


def test_completion_offers_public_names_only() -> None:
    offered = answer("import spanwise as sw; print(*dir(sw), *dir(sw.plots), *dir(sw.workloads))")
    public = ([*sw.__all__, "__version__"], sw.plots.__all__, sw.workloads.__all__)
    assert offered.split() == [name for names in public for name in sorted(names)]


def test_all_names_at_once() -> None:
    code = "from spanwise import *; print(optimize.__module__, Heap.__name__, plots.__name__)"
    assert answer(code) == "spanwise.optimizer.search Heap spanwise.plots"


@pytest.mark.parametrize("name", ["optimise", "_nothing", "heap_map", ""])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(AttributeError, match=f"No spanwise attribute {name}"):
        getattr(sw, name)
    with pytest.raises(ImportError):
        exec(f"from spanwise import {name or 'none'}")


def test_threads_that_use_a_name_first_at_once() -> None:
    code = (
        "import threading, spanwise as sw\n"
        "gate, seen = threading.Barrier(8), []\n"
        "def use():\n"
        "    gate.wait()\n"
        "    seen.append((sw.Heap, sw.optimize, sw.plots, sw.OPS_DTYPE))\n"
        "threads = [threading.Thread(target=use) for _ in range(8)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "print(len(seen), len({tuple(map(id, one)) for one in seen}))"
    )
    assert answer(code) == "8 1"


def test_a_command_loads_no_other_command() -> None:
    code = (
        "import sys; from spanwise.__main__ import main\n"
        "try: main(['classes', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(n.split('.')[2] for n in sys.modules"
        " if n.startswith('spanwise.commands.') and n.split('.')[2][0] != '_'))"
    )
    assert answer(code).endswith("\n['tables']")


# --- the marker -----------------------------------------------------------------------------------

TESTS = """\
import pytest
before = [bytearray(1_000_000) for _ in range(30)]

@pytest.fixture
def text(tmp_path):
    return "x" * 1000

@pytest.mark.spanwise(max_waste="99%", max_held="9M", max_requested="1M", max_resident="4M")
def test_small(text):
    assert len([text + str(i) for i in range(300)]) == 300

@pytest.mark.spanwise(max_resident="1M", table="go")
@pytest.mark.parametrize("what", ["a/b"])
def test_large(what):
    kept = [bytearray(100_000) for _ in range(40)]

@pytest.mark.spanwise(max_wast="20%")
def test_misspelt(): pass

def test_plain(): pass
"""
BROKEN = """\
import pytest
@pytest.mark.spanwise(max_waste="90%")
def test_broken(): assert 1 == 2
"""


@needs_recorder()
@needs_python_malloc()
def test_limits_of_tests(tmp_path: Path) -> None:
    """30 MB were there before; the large test keeps 4 MB of its own."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "test_broken.py").write_text(BROKEN)
    # Every process would load hypothesis, and record that: two fifths of all events.
    words = "--strict-markers -p no:hypothesispytest"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {words}\n")
    done = python("-m", "pytest", "-p", "no:cacheprovider", "-rf", cwd=tmp_path, timeout=600)
    said = done.stdout
    assert "3 failed, 2 passed" in said, said + done.stderr
    assert re.search(r"TOO MUCH: peak resident [34]\.\d MiB \([\d,]+ bytes\), at most 1", said)
    assert "at most 1.0 MiB (test_large[a_b].swt, whole run, table go)" in said
    assert "unknown option --max-wast; did you mean --max-waste?" in said
    assert (
        "test_broken.py::test_broken in the recorded process:" in said and "assert 1 == 2" in said
    )


def test_without_the_marker_nothing_is_loaded() -> None:
    text = (
        "import sys, spanwise_pytest\n"
        "item = type('Item', (), {'get_closest_marker': lambda self, name: None})()\n"
        "assert spanwise_pytest.pytest_pyfunc_call(item) is None\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('spanwise', 'numpy')])"
    )
    done = python("-c", text)
    assert done.stdout == "[]\n", done.stderr


# --- a researcher's session -----------------------------------------------------------------------

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
