# SPDX-License-Identifier: Apache-2.0
"""`import spanwise` loads a module when one of its names is first used; `dir` lists all names."""

from __future__ import annotations

import subprocess
import sys

import pytest
import spanwise as sw


def answer(code: str) -> str:
    """What a fresh interpreter prints."""
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
