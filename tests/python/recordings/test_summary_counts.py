# SPDX-License-Identifier: Apache-2.0
"""Counts of operations by size, thread and site, and moments of a recording, by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import spanwise as sw
from numpy.typing import NDArray
from spanwise import _lib
from spanwise.recordings.simulate import before_stop
from spanwise.recordings.sources import Batch, Module
from spanwise.recordings.summary import count_sites, count_sizes, count_threads, frame_name

from tests.python.helpers import ALLOC, FREE, REALLOC

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
    assert frame_name(0x1000, modules) == "/bin/a+0x800"
    assert frame_name(0x1FFF, modules) == "/bin/a+0x17ff"
    assert frame_name(0x2000, modules) == "/lib/b+0x0"
    assert frame_name(0x3000, modules) == "0x3000"
    assert frame_name(0xFFF, modules) == "0xfff"


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
