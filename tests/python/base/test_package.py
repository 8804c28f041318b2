# SPDX-License-Identifier: Apache-2.0
"""The package: lazy names, the marker of tests, shared objects, exceptions, examples."""

from __future__ import annotations

import doctest
import errno
import importlib
import io
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise import _lib, _spanwise, errors
from spanwise._lib import ffi, lib
from spanwise.heap import heap_map
from spanwise.ledger import ledger
from spanwise.measure import replay_result

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
    code = "import sys, spanwise; spanwise.SizeClassTable; print(*sys.modules)"
    loaded = answer(code).split()
    assert "spanwise.tables.table" in loaded
    assert not {"spanwise.plots", "spanwise.measure", "matplotlib"} & set(loaded)


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


@pytest.mark.parametrize(
    ("path", "most"),
    [
        (Path(_spanwise.__file__), 8),
        (_lib.native_library("libspanwise-malloc.so"), 8),
        (_lib.native_library("libspanwise-malloc.so").with_name("libspanwise-record.so"), 64),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_shared_objects(path: Path, most: int) -> None:
    """Each stays mapped, because threads call exit functions of it after the last dlclose.

    Libraries loaded by dlopen share a reserve of about 1.6 KiB of static TLS.
    """
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    words = ["readelf", "-dlW", str(path)]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "NODELETE" in text
    sizes = [int(line.split()[5], 16) for line in text.splitlines() if line.split()[:1] == ["TLS"]]
    assert sum(sizes) <= most


# --- exceptions and structures agree with the C headers -------------------------------------------


def names_of(macro: str) -> list[str]:
    """Return the names of an X-macro list of status.h, in order."""
    text = (ROOT / "include/spanwise/status.h").read_text(encoding="utf-8")
    body = re.search(rf"#define {macro}\(X\)(.*?)\n\n", text, re.DOTALL)
    assert body is not None
    return re.findall(r"X\((\w+),", body[1])


def test_every_status_has_an_exception() -> None:
    names = names_of("SW_STATUS_LIST")
    assert names[0] == "OK"
    assert list(errors.STATUS_ERRORS) == names[1:]
    assert len(names) == lib.SW_STATUS_COUNT
    for status, name in enumerate(names):
        assert _lib.text(lib.sw_status_name(status)) == name


def test_every_misuse_has_an_exception() -> None:
    names = names_of("SW_MISUSE_LIST")
    assert names[0] == "NONE"
    assert list(errors.MISUSE_ERRORS) == names[1:]
    assert len(names) == lib.SW_MISUSE_COUNT
    for misuse, name in enumerate(names):
        assert _lib.text(lib.sw_misuse_name(misuse)) == name
    assert all(issubclass(one, RuntimeError) for one in errors.MISUSE_ERRORS.values())
    assert errors.MISUSE_ERRORS["CORRUPT"] is sw.CorruptionError
    assert issubclass(sw.HeapClosedError, RuntimeError)


def pickled(error: Exception) -> bytes:
    """The error, pickled by its own rules: Dask, once imported, registers others for exceptions."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    pickler.dispatch_table = {}
    pickler.dump(error)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("NOMEM", MemoryError),
        ("LIMIT", MemoryError),
        ("INVALID", ValueError),
        ("STATE", RuntimeError),
        ("IO", OSError),
        ("FORMAT", ValueError),
        ("UNSUPPORTED", RuntimeError),
        ("BUSY", BufferError),
    ],
)
def test_exceptions_are_builtin_ones_with_a_code(name: str, builtin: type[Exception]) -> None:
    error = _lib.failure(names_of("SW_STATUS_LIST").index(name))
    assert isinstance(error, builtin)
    assert isinstance(error, sw.SpanwiseError)
    assert error.code == name
    again = pickle.loads(pickled(error))
    assert (type(again), str(again), again.code) == (type(error), str(error), name)


def test_operations_have_the_layout_of_c() -> None:
    assert _lib.dtype_of("sw_op") == sw.OPS_DTYPE
    assert sw.OPS_DTYPE.itemsize == ffi.sizeof("sw_op") == 32


def test_every_public_function_is_declared() -> None:
    """scripts/ffi_cdef.py reads them from the headers."""
    declared = set()
    headers = ("status", "sizeclass", "heap", "stats", "ops", "replay", "trace", "spanwise")
    for header in (*headers, "range", "allocator_vtable", "memory", "reader", "scalable"):
        text = (ROOT / f"include/spanwise/{header}.h").read_text(encoding="utf-8")
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        declared |= set(re.findall(r"SW_API[^;]*?\b(sw_\w+)\(", text))
    assert len(declared) > 100
    assert declared <= set(dir(lib))


# --- what an exception carries --------------------------------------------------------------------


def caught(call: Callable[[], object]) -> sw.SpanwiseError:
    with pytest.raises(sw.SpanwiseError) as found:
        call()
    return found.value


def test_what_is_not_there_is_a_file_not_found(tmp_path: Path) -> None:
    absent, unknown = str(tmp_path / "absent.swt"), "no-such-program-here"
    for call, filename in (
        (lambda: sw.Recording.open(absent), absent),
        (lambda: sw.record([absent]), absent),
        (lambda: sw.run([absent]), absent),
        (lambda: sw.record([unknown]), unknown),
    ):
        error = caught(call)
        assert isinstance(error, FileNotFoundError)
        assert (error.errno, error.filename) == (errno.ENOENT, filename)
        assert filename in str(error) and "Errno" not in str(error)


def test_errors_of_files_name_the_file_and_the_systems_number(tmp_path: Path) -> None:
    folder, text = tmp_path, tmp_path / "text.swt"
    text.write_text("no recording")
    error = caught(lambda: sw.Recording.open(folder))
    assert isinstance(error, sw.RecordingIOError) and not isinstance(error, FileNotFoundError)
    assert (error.errno, error.filename) == (errno.EISDIR, str(folder))
    error = caught(lambda: sw.Recording.open(text))
    assert isinstance(error, sw.TraceFormatError)
    assert (error.errno, error.filename) == (None, str(text))
    place = tmp_path / "none" / "a.swt"
    error = caught(lambda: write(place))
    assert (error.errno, error.filename) == (errno.ENOENT, str(place))


def write(place: Path) -> sw.Recording:
    return sw.Recording.from_ops(sw.synthesize(8, 1, count=3).ops, place)


# --- examples of docstrings -----------------------------------------------------------------------


PACKAGE = ROOT / "python/spanwise"

EXAMPLES = ("arenas", "gc", "heap", "pools", "ranges", "tables")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (heap_map.HeapMap.__doc__, heap_map.TILES_DTYPE),
        (heap_map.HeapMap.__doc__, heap_map.PLACED_DTYPE),
        (heap_map.HeapMap.slots.__doc__, heap_map.SLOTS_DTYPE),
        (sw.Heap.spans.__doc__, heap_map.SPANS_DTYPE),
        (sw.Ledger.__doc__, ledger.LEDGER_CLASS_DTYPE),
        (sw.Run.__doc__, replay_result.SAMPLES_DTYPE),
    ],
    ids=["tiles", "placed", "slots", "spans", "classes", "samples"],
)
def test_docstrings_name_the_columns_of_rows(text: str, rows: np.dtype[np.void]) -> None:
    words = set(re.findall(r"\w+", text))
    assert [name for name in rows.names or () if name not in words] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_docstrings(name: str) -> None:
    folder = PACKAGE / name.replace(".", "/")
    files = sorted(folder.glob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    results = [_run(file) for file in files]
    assert sum(one.attempted for one in results) > 0
    assert sum(one.failed for one in results) == 0


def _run(file: Path) -> doctest.TestResults:
    name = ".".join(("spanwise", *file.relative_to(PACKAGE).with_suffix("").parts))
    names = {one: getattr(sw, one) for one in sw.__all__}
    return doctest.testmod(importlib.import_module(name), extraglobs=names)
