# SPDX-License-Identifier: Apache-2.0
"""Size-class tables from Python: exact numbers, families, files, errors."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw


def test_explain_zero_says_what_c_returns() -> None:
    note = sw.SizeClassTable.go().explain(0).note
    assert note == (
        "Nothing is needed for 0 bytes, but malloc(0) takes a slot of 8 B, so that its address is"
        " unique."
    )


def test_explain_large() -> None:
    explanation = sw.SizeClassTable.go().explain(32769)
    assert (explanation.cls, explanation.span_bytes, explanation.slots) == (0, 40960, 1)
    with pytest.raises(ValueError, match="is too large to round up to whole pages"):
        sw.SizeClassTable.go().explain(2**63 - 1)


FAMILIES = ["go", "c16", "jemalloc", "tcmalloc", "mimalloc", "pow2", "fibonacci", "geometric-1.3"]


@pytest.mark.parametrize("name", FAMILIES)
def test_array_look_up_equals_the_c_one(name: str) -> None:
    table = sw.SizeClassTable.named(name)
    sizes = np.arange(0, 70000)
    expected = [table.round_up(int(size)) for size in sizes]
    assert table.round_up(sizes).tolist() == expected
    assert (table.waste(sizes) == table.round_up(sizes) - sizes).all()
    assert table.round_up(sizes.reshape(7, -1)).shape == (7, 10000)


# --- families -------------------------------------------------------------------------------------


def test_default_is_c16() -> None:
    default = sw.SizeClassTable.default()
    assert default == sw.SizeClassTable.c16()
    assert default.name == "c16" and default.to_dict() == sw.SizeClassTable.c16().to_dict()
    with sw.Heap() as heap:
        assert heap.table == default


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([8, 12], "class 2 (12 bytes): size must be a multiple of 8; use 16"),
        (
            [(8, 1, 1, 1)],
            "class 1: give a size, a pair (size, pages) or (size, pages, first pages)",
        ),
        ([-8], "class 1: size -8 is negative; give 0 or more"),
    ],
)
def test_bad_classes(classes: list[Any], message: str) -> None:
    with pytest.raises(sw.InvalidError) as caught:
        sw.SizeClassTable.custom(classes)
    assert str(caught.value) == message


# --- files ----------------------------------------------------------------------------------------


def test_file_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    table = sw.SizeClassTable.custom([8, 24, 40, 200], name="mine", page_bytes=4096)
    table.to_json(path)
    again = sw.SizeClassTable.named(str(path))
    assert again == table
    assert again.name == "mine"
    assert hash(again) == hash(table)
    assert again != sw.SizeClassTable.go()


# tests/generator/test_table_files.py has the others: the reader is the generator's.
BAD_FILES = {
    "[]": "top level: must be an object, not a list",
    '{"name": "t", "page_bytes": 8192, "classes": [{"size": 20, "pages": 1}]}': (
        "class 1 (20 bytes): size must be a multiple of 8; use 24"
    ),
}


@pytest.mark.parametrize("text", BAD_FILES, ids=range(len(BAD_FILES)))
def test_bad_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(sw.InvalidError) as caught:
        sw.SizeClassTable.from_json(path)
    assert str(caught.value) == f"{path}: {BAD_FILES[text]}"


# --- as objects -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["go", "pow2", "geometric-1.4", "jemalloc"])
def test_copies_are_equal(name: str) -> None:
    table = sw.SizeClassTable.named(name)
    for again in (pickle.loads(pickle.dumps(table)), copy.copy(table), copy.deepcopy(table)):
        assert again == table
        assert again.name == table.name
        assert again.to_dict() == table.to_dict()


def test_texts() -> None:
    table = sw.SizeClassTable.go()
    lines = str(table).splitlines()
    assert lines[0].split() == [
        "class",
        "bytes/obj",
        "bytes/span",
        "objects",
        "tail",
        "max",
        "waste",
        "min",
        "align",
    ]
    assert lines[2].split() == ["1", "8", "8192", "1024", "0", "87.50%", "8"]
    assert len(table.to_markdown().splitlines()) == 69
    assert table._repr_html_().count("<tr>") == 68


def test_an_error_names_the_argument() -> None:
    with pytest.raises(sw.InvalidError, match=r"^largest_bytes 0: must be a power of two"):
        sw.SizeClassTable.pow2(0)


def test_arrays_of_sizes_must_be_integers_too() -> None:
    table = sw.SizeClassTable.go()
    with pytest.raises(TypeError, match="sizes must be integers, not float64"):
        table.round_up(np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="size -1 is negative"):
        table.round_up(np.array([4, -1]))
