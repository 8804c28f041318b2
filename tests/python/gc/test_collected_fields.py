# SPDX-License-Identifier: Apache-2.0
"""Objects of collected heaps with a layout: pointer and data fields, struct formats, errors."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import spanwise as sw

NODE = [("next", object), ("value", "i8")]


def test_a_list_is_walked_by_its_fields() -> None:
    with sw.CollectedHeap() as heap:
        heap.set_debug(checkmark=True)
        node = heap.add_type("node", NODE)
        head = None
        for value in range(100):
            made = heap.new(node)
            made["next"], made["value"] = head, value
            head = made
        del made
        gc.collect()
        assert heap.collect().marked_objects == 100
        values, one = [], head
        while one is not None:
            values.append(one["value"])
            one = one["next"]
        assert values == list(range(99, -1, -1))
        assert head is not None and head["next"] is head[0]
        head["next"]["next"] = None
        gc.collect()
        assert heap.collect().freed_objects == 98


def test_fields_of_several_objects_and_shapes() -> None:
    """Words 0 and 1 are pointers; the bytes are those of the numpy type."""
    with sw.CollectedHeap() as heap:
        kind = heap.add_type(
            "tree", [("children", object, 2), ("at", "f4", (2, 2)), ("name", "S5"), ("n", "u1")]
        )
        assert (kind.size_bytes, kind.pointers) == (40, (0, 1))
        trees = heap.new(kind, 3)
        trees[1, "children"] = (None, trees)
        trees[1, "at"], trees[1, "name"], trees[2, "n"] = [[1, 2], [3, 4]], b"hello", 255
        assert trees[1, "children"] == (None, trees)
        assert trees[1, "at"].tolist() == [[1, 2], [3, 4]]
        assert (trees[1, "name"], trees[2, "n"], trees["n"], trees[0, "name"]) == (
            b"hello",
            255,
            0,
            b"",
        )
        bad: list[tuple[object, object, str]] = [
            ("size", 1, "its fields are"),
            ((3, "n"), 1, "too large"),
            ("children", (None,), r"^field 'children' takes 2 objects, such as \[a, None\]$"),
            ("children", trees, r"^field 'children' takes 2 objects, such as \[a, None\]$"),
            ((0, "children"), (None, 5), "^field 'children' must be CollectedObject or None"),
            ("n", "x", "^field 'n': invalid literal"),
            ("n", None, "^field 'n': "),
            ("name", "é", "^field 'name': .* can't encode"),
            ("at", [1, 2, 3], "^field 'at': could not broadcast"),
        ]
        for key, value, said in bad:
            with pytest.raises((sw.InvalidError, TypeError), match=said):
                trees[key] = value  # type: ignore[index]


def test_array_fields_are_read_as_copies_that_cannot_be_written() -> None:
    with sw.CollectedHeap() as heap:
        layout = [("at", "f4", (2, 2)), ("inner", [("x", "i4"), ("y", "i4")]), ("n", "i4")]
        made = heap.new(heap.add_type("made", layout))
        read, inner = made["at"], made["inner"]
        made["at"], made["inner"], made["n"] = [[1, 2], [3, 4]], (5, 6), 2.5
        assert (read.tolist(), inner.tolist(), made["n"]) == ([[0, 0], [0, 0]], (0, 0), 2)
        assert (made["at"].tolist(), made["inner"].tolist()) == ([[1, 2], [3, 4]], (5, 6))
        for array, index in ((read, 0), (inner, "x")):
            with pytest.raises(ValueError, match="read-only"):
                array[index] = 1
        for use in (iter, lambda it: None in it):
            with pytest.raises(TypeError, match=r"not iterable|not a container"):
                use(made)


def test_a_struct_format() -> None:
    """'Pih' is a pointer, an int at 8 and a short at 12, as struct packs it."""
    with sw.CollectedHeap() as heap:
        made = heap.new(heap.add_type("three", "Pih"))
        made["f0"], made["f1"], made["f2"] = made, -7, 9
        assert made.type.pointers == (0,)
        assert made.type.size_bytes == 16
        assert (made["f0"] is made, made["f1"], made["f2"]) == (True, -7, 9)
        with pytest.raises(OverflowError, match=r"^field 'f2': "):
            made["f2"] = 1 << 20


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("P!", r"format 'P!': '!'; give native codes"),
        ("", "layout 0: give 1 or more"),
        ([("a", [("b", object)])], "within a structure"),
        (np.dtype([("a", "i4"), ("b", object)]), "align=True"),
        (0, "layout 0: give 1 or more"),
        (-1, "layout -1 is negative; give 1 or more"),
    ],
)
def test_layouts_that_are_refused(layout: Any, said: str) -> None:
    with sw.CollectedHeap() as heap, pytest.raises(sw.InvalidError, match=said):
        heap.add_type("bad", layout)


@pytest.mark.parametrize("layout", [None, {"a": object}, 3.5])
def test_what_is_no_layout(layout: Any) -> None:
    """None is numpy's name for float64."""
    said = rf'give bytes, fields such as \[\("next", object\)\], .*not {type(layout).__name__}$'
    with sw.CollectedHeap() as heap, pytest.raises(TypeError, match=said):
        heap.add_type("bad", layout)


def test_a_pointer_to_a_freed_object_is_not_followed() -> None:
    with sw.CollectedHeap() as heap:
        node = heap.add_type("node", NODE)
        first, second = heap.new(node), heap.new(node)
        first["next"] = second
        second.free()
        with pytest.raises(sw.BlockFreedError, match="leads to an object that was freed"):
            first["next"]
        first["next"] = None
