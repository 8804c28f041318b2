# SPDX-License-Identifier: Apache-2.0
"""Counts of operations by size, thread and site, and moments of a recording, by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import spanwise as sw
from numpy.typing import NDArray
from spanwise import _lib
from spanwise.recordings.names import PYTHON_BASE, FrameNames, short_line
from spanwise.recordings.simulate import before_stop
from spanwise.recordings.sources import Batch, Module
from spanwise.recordings.summary import count_sites, count_sizes, count_threads

from tests.python.helpers import ALLOC, FREE, REALLOC, ROOT

EDGE = 1 << 16  # sizes below it are counted in a table, others one by one


def block(*rows: tuple[int, int, int, int]) -> NDArray[np.void]:
    """Operations of (kind, size, thread, site)."""
    ops = np.zeros(len(rows), sw.OPS_DTYPE)
    for i, (kind, size, thread, site) in enumerate(rows):
        ops[i]["kind"], ops[i]["size"], ops[i]["thread"], ops[i]["site"] = kind, size, thread, site
    return ops


def two_blocks() -> Iterator[NDArray[np.void]]:
    yield block(
        (ALLOC, 0, 0, 2),
        (ALLOC, EDGE - 1, 2, 0),
        (ALLOC, EDGE, 2, 5),
        (FREE, 77, 0, 9),
        (REALLOC, EDGE, 0, 2),
        (ALLOC, 100, 0, 2),
    )
    yield block((ALLOC, EDGE, 4, 7), (REALLOC, 100, 4, 7), (FREE, 0, 2, 0), (ALLOC, 9 * EDGE, 4, 5))


def test_sizes() -> None:
    """Of allocations and reallocations; a free asks for nothing."""
    assert count_sizes(two_blocks()).tolist() == [
        (0, 1, 0),
        (100, 2, 200),
        (EDGE - 1, 1, EDGE - 1),
        (EDGE, 3, 3 * EDGE),
        (9 * EDGE, 1, 9 * EDGE),
    ]


def test_threads() -> None:
    """thread, operations, allocations, frees, reallocations, bytes of allocations."""
    assert count_threads(two_blocks()).tolist() == [
        (0, 4, 2, 1, 1, 100),
        (2, 3, 2, 1, 0, 2 * EDGE - 1),
        (4, 3, 2, 0, 1, 10 * EDGE),
    ]


def test_sites() -> None:
    """Of allocations alone."""
    assert count_sites(two_blocks()) == {
        0: (1, EDGE - 1),
        2: (2, 100),
        5: (2, 10 * EDGE),
        7: (1, EDGE),
    }


def test_frames_are_named_by_their_file_and_the_address_in_it() -> None:
    modules = [
        Module(start=0x1000, end=0x2000, bias=0x800, path="/bin/a", build_id=""),
        Module(start=0x2000, end=0x3000, bias=0x2000, path="/lib/b", build_id=""),
    ]
    names = FrameNames(modules)
    assert names.name(0x1000) == "/bin/a+0x800"
    assert names.name(0x1FFF) == "/bin/a+0x17ff"
    assert names.name(0x2000) == "/lib/b+0x0"
    assert names.name(0x3000) == "0x3000"
    assert names.name(0xFFF) == "0xfff"


def test_lines_of_python_are_named_by_function_file_and_line() -> None:
    """Two functions of a million lines each; a file's name may have any character."""
    first, second = PYTHON_BASE + (1 << 20), PYTHON_BASE + (2 << 20)
    paths = "load\n/app/json/a (1).py", "<module>\n<string>"
    names = FrameNames(
        Module(start, start + (1 << 20), start, path, "")
        for start, path in zip((first, second), paths, strict=True)
    )
    frame = names.name(first + 12)
    assert frame == "python: load (/app/json/a (1).py:12)"
    assert short_line(frame) == "load (json/a (1).py:12)"
    assert names.name(second) == "python: <module> (<string>:0)"
    assert short_line(names.name(second + 3)) == "<module> (<string>:3)"
    assert names.name(PYTHON_BASE + (3 << 20)) == f"{PYTHON_BASE + (3 << 20):#x}"
    assert short_line("/usr/bin/python3.11+0x1234") is None


def test_the_recorder_begins_functions_where_the_package_looks_for_them() -> None:
    head = (ROOT / "src/trace/raw.h").read_text(encoding="utf-8")
    assert f"#define SWT_PYTHON_BASE 0x{PYTHON_BASE:X}ull" in head


@pytest.mark.parametrize(
    ("done", "stop_op", "stop_ns", "expected"),
    [
        (0, None, None, None),
        (0, 3, None, 3),
        (10, 13, None, 3),
        (10, 10, None, 0),
        (10, 99, None, 5),
        (0, None, 19, 0),
        (0, None, 20, 1),
        (0, None, 30, 4),  # the last of several at that time
        (0, None, 39, 4),
        (0, None, 40, 5),
        (0, None, 1000, 5),
        (2, 4, 20, 2),  # a number of operations comes before a time
    ],
)
def test_where_a_moment_cuts_a_batch(
    done: int, stop_op: int | None, stop_ns: int | None, expected: int | None
) -> None:
    ops = np.zeros(5, sw.OPS_DTYPE)
    ops["time_ns"] = [20, 30, 30, 30, 40]
    batch = Batch(_lib.pointer(ops, "sw_op *"), len(ops))
    assert before_stop(batch, done, stop_op, stop_ns) == expected
