# SPDX-License-Identifier: Apache-2.0
"""The package at first use: lazy names, type marker, limits of tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import spanwise as sw
from spanwise import _lib, _spanwise

from tests.python.elf import is_never_unloaded, static_tls_bytes
from tests.python.helpers import needs_python_malloc, needs_recorder, python


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


def test_completion_offers_public_names_only() -> None:
    offered = answer("import spanwise as sw; print(*dir(sw), *dir(sw.plots), *dir(sw.workloads))")
    public = ([*sw.__all__, "__version__"], sw.plots.__all__, sw.workloads.__all__)
    assert offered.split() == [name for names in public for name in sorted(names)]


@pytest.mark.parametrize("name", ["optimise", "_nothing", "heap_map", ""])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(AttributeError, match=f"No spanwise attribute {name}"):
        getattr(sw, name)
    with pytest.raises(ImportError):
        exec(f"from spanwise import {name or 'none'}")


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


# --- shared objects -------------------------------------------------------------------------------


EXTENSION = Path(_spanwise.__file__)
OBJECTS = [EXTENSION, *sorted(_lib.native_library("libspanwise-malloc.so").parent.glob("*.so"))]


def test_every_shared_object_is_looked_at() -> None:
    names = {path.name.split(".")[0] for path in OBJECTS}
    assert names >= {"_spanwise", "libspanwise-malloc", "libspanwise-record"}


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.name)
def test_dlclose_leaves_it_mapped(path: Path) -> None:
    """Threads call exit functions of the library after the last dlclose."""
    assert is_never_unloaded(path)


@pytest.mark.parametrize(
    ("name", "most"),
    [("_spanwise", 8), ("libspanwise-malloc", 8), ("libspanwise-record", 64)],
)
def test_static_tls(name: str, most: int) -> None:
    """Libraries loaded by dlopen share a reserve of about 1.6 KiB of static TLS."""
    (path,) = (path for path in OBJECTS if path.name.split(".")[0] == name)
    assert static_tls_bytes(path) <= most
