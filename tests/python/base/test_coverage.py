# SPDX-License-Identifier: Apache-2.0
"""Python reaches the functions of the public headers, and the examples of its docstrings run."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest
import spanwise as sw

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "python/spanwise"
RECORD = ROOT / "tests/data/interface.txt"
"""The functions of include/spanwise/*.h; scripts/check_interface.py compares it with them."""

UNREACHED = {
    "a slow path of an inline function": (
        "sw_alloc_slow sw_free_slow sw_cache_emptied sw_memory_push_slow sw_reader_be_slow"
        " sw_reader_leb_slow sw_reader_skip_slow sw_range_find_thread"
    ),
    "the process's malloc; Python has `Heap`": (
        "sw_malloc sw_calloc sw_realloc sw_aligned_alloc sw_free_sized sw_usable_size"
        " sw_heap_default sw_heap_default_init"
    ),
}
EXAMPLES = ("arenas.arena", "gc.heap", "gc.objects", "heap", "ranges", "tables.table")


def exported() -> set[str]:
    """Return the functions, without variables, that the headers declare."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()[1:]
    return {found[1] for line in lines if (found := re.match(r"name (\w+): .*\)$", line))}


def reached() -> set[str]:
    """Return the C functions that the package names."""
    text = "".join(file.read_text(encoding="utf-8") for file in sorted(PACKAGE.rglob("*.py")))
    filled = re.findall(r'options_of\(\s*"(\w+)"', text)  # it calls the `_init` function
    return {*re.findall(r"\blib\.(sw_\w+)", text), *(f"{name}_init" for name in filled)}


def test_each_public_function_is_reached_or_has_a_reason() -> None:
    excepted = [name for names in UNREACHED.values() for name in names.split()]
    assert len(set(excepted)) == len(excepted)
    assert sorted(exported() - reached()) == sorted(excepted)


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
