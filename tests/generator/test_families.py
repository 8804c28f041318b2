# SPDX-License-Identifier: Apache-2.0
"""Families of size classes against the numbers that their own projects publish or print.

tests/data has the numbers. Installed allocators are queried again, each in its own process.
"""

from __future__ import annotations

import ctypes.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spanwise_sizeclasses import families, model, tablefile
from spanwise_sizeclasses.model import SizeClassError, Table

ROOT = Path(__file__).resolve().parents[2]


def published(name: str) -> dict[str, Any]:
    path = ROOT / f"tests/data/{name}-sizeclasses.json"
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def made(name: str) -> Table:
    table = families.named(name)
    assert table is not None
    return table


def pairs(table: Table) -> list[list[int]]:
    """Size and span, both in bytes, of each class."""
    return [[c.size, c.pages * table.page_bytes] for c in table.classes]


# --- against published numbers --------------------------------------------------------------------


def test_jemalloc_prints_these_bins_and_extents() -> None:
    theirs = published("jemalloc")
    table = made("jemalloc")
    assert table.page_bytes == theirs["page_bytes"]
    assert pairs(table) == [*theirs["bins"], *([size, size] for size in theirs["large"])]


def test_tcmalloc_serves_these_sizes() -> None:
    theirs = published("tcmalloc")
    table = made("tcmalloc")
    assert table.page_bytes == theirs["page_bytes"]
    assert [c.size for c in table.classes] == theirs["sizes"]


def test_tcmalloc_spans_keep_its_two_rules() -> None:
    for size, span in pairs(made("tcmalloc")):
        moved = min(max(65536 // size, 2), 32)
        kept = [n for n in range(8192, span + 1, 8192) if n % size <= n // 8]
        assert next(n for n in kept if n // size >= moved // 4) == span


def test_mimalloc_declares_these_queues() -> None:
    theirs = published("mimalloc")
    aligned = [8, *(8 * n for n in theirs["words"] if n > 1 and (n % 2 == 0 or n > 8))]
    assert aligned == theirs["good_sizes"]
    table = made("mimalloc")
    small, medium = theirs["small_page_bytes"], theirs["medium_page_bytes"]
    assert pairs(table) == [
        [size, small if size <= theirs["small_object_max"] else medium] for size in aligned
    ]
    assert table.max_size == theirs["medium_object_max"]


def test_go_is_go() -> None:
    theirs = published("go")["classes"]
    assert pairs(made("go")) == [[row["size"], row["span_bytes"]] for row in theirs]


# --- against installed allocators -----------------------------------------------------------------

ASK_JEMALLOC = """
import ctypes, json, sys
library = ctypes.CDLL(None)
def ask(name, kind):
    value, size = kind(), ctypes.c_size_t(ctypes.sizeof(kind))
    status = library.mallctl(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    assert status == 0, name
    return value.value
version = ctypes.c_char_p()
size = ctypes.c_size_t(8)
library.mallctl(b"version", ctypes.byref(version), ctypes.byref(size), None, 0)
print(json.dumps({
    "version": version.value.decode(),
    "page_bytes": ask("arenas.page", ctypes.c_size_t),
    "bins": [
        [ask(f"arenas.bin.{i}.{what}", ctypes.c_size_t) for what in ("size", "slab_size")]
        for i in range(ask("arenas.nbins", ctypes.c_uint))
    ],
    "large": [ask(f"arenas.lextent.{i}.size", ctypes.c_size_t) for i in range(17)],
}))
"""
ASK_USABLE = """
import ctypes, json
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes = [ctypes.c_size_t]
library.free.argtypes = library.malloc_usable_size.argtypes = [ctypes.c_void_p]
library.malloc_usable_size.restype = ctypes.c_size_t
sizes, request = [], 1
while request <= 262144:
    block = library.malloc(request)
    sizes.append(library.malloc_usable_size(block))
    library.free(block)
    request = sizes[-1] + 1
print(json.dumps({"sizes": sizes}))
"""
ASK_MIMALLOC = """
import ctypes, json
library = ctypes.CDLL(None)
library.mi_good_size.restype = ctypes.c_size_t
library.mi_good_size.argtypes = [ctypes.c_size_t]
sizes, request = [], 1
while request <= 131072:
    sizes.append(library.mi_good_size(request))
    request = sizes[-1] + 1
print(json.dumps({"version": library.mi_version(), "good_sizes": sizes}))
"""


def ask(library: str, program: str) -> dict[str, Any]:
    """What a program prints under an allocator; skips where that is not installed."""
    found = ctypes.util.find_library(library)
    if found is None:
        pytest.skip(f"lib{library} is not installed")
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"LD_PRELOAD": found, "PYTHONMALLOC": "pymalloc"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if result.returncode != 0:
        pytest.skip(f"{found} can not be asked: {result.stderr.strip().splitlines()[-1:]}")
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_installed_jemalloc() -> None:
    theirs = ask("jemalloc", ASK_JEMALLOC)
    if not theirs["version"].startswith("5.3.0"):
        pytest.skip(f"jemalloc {theirs['version']} is installed, the table is of 5.3.0")
    assert {key: theirs[key] for key in ("page_bytes", "bins", "large")} == {
        key: published("jemalloc")[key] for key in ("page_bytes", "bins", "large")
    }


def test_installed_tcmalloc() -> None:
    theirs = ask("tcmalloc_minimal", ASK_USABLE)
    assert theirs["sizes"] == [c.size for c in made("tcmalloc").classes]


def test_installed_mimalloc() -> None:
    theirs = ask("mimalloc", ASK_MIMALLOC)
    if theirs["version"] != 209:
        pytest.skip(f"mimalloc {theirs['version']} is installed, the table is of 2.0.9")
    assert theirs["good_sizes"] == [c.size for c in made("mimalloc").classes]


# --- series, names, files -------------------------------------------------------------------------


def test_fibonacci_is_a_sum_of_the_two_below() -> None:
    sizes = [c.size for c in families.fibonacci(align=8).classes]
    assert sizes[:8] == [8, 16, 24, 40, 64, 104, 168, 272]
    assert all(a + b == c for a, b, c in zip(sizes, sizes[1:], sizes[2:-1], strict=False))
    assert sizes[-1] == 32768
    assert all(c.size % 16 == 0 for c in families.fibonacci().classes[1:])


@pytest.mark.parametrize("name", [*families.NAMES, "geometric-1.25", "geometric-2"])
def test_every_family_is_proved_and_survives_a_file(name: str) -> None:
    table = made(name)
    assert model.prove(table)
    again = tablefile.parse_table(tablefile.dump_table(table).encode())
    assert (again.name, again.hash) == (table.name, table.hash)


@pytest.mark.parametrize("name", ["c16", "jemalloc", "tcmalloc", "mimalloc", "pow2", "fibonacci"])
def test_families_fit_the_malloc_preload(name: str) -> None:
    assert all(c.size % 16 == 0 for c in made(name).classes if c.size >= 16)


@given(st.integers(1, 32768), st.sampled_from([4096, 8192, 16384, 65536]))
def test_span_is_the_shortest_with_a_small_tail(eighths: int, page_bytes: int) -> None:
    size = 8 * eighths
    pages = families.span_pages(size, page_bytes)
    span = pages * page_bytes
    assert size <= span and span % size * 8 <= span
    for less in range(1, pages):
        assert less * page_bytes < size or less * page_bytes % size * 8 > less * page_bytes


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "geometric-x",
            "unknown table 'geometric-x'; after geometric- comes a ratio, e.g. geometric-1.25",
        ),
        ("geometric-1", "ratio 1.0: must be above 1"),
        ("geometric-nan", "ratio nan: must be above 1"),
        ("geometric-1.001", " classes: must be 1 to 255"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(SizeClassError) as caught:
        families.named(name)
    assert str(caught.value).endswith(message)


def test_no_family_of_that_name() -> None:
    assert families.named("dlmalloc") is None


@pytest.mark.parametrize("largest", [0, 100, 1 << 20])
def test_bad_largest(largest: int) -> None:
    with pytest.raises(SizeClassError, match=f"largest {largest}: must be"):
        families.pow2(largest)
    with pytest.raises(SizeClassError, match=f"largest {largest}: must be"):
        families.fibonacci(largest)
