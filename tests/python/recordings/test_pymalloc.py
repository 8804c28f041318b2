# SPDX-License-Identifier: Apache-2.0
"""The model of CPython's own allocator: by hand, and compared with CPython."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise._lib import dtype_of
from spanwise.recordings.pymalloc import (
    Layout,
    Model,
    PinningSite,
    Point,
    lasting,
    layout_of,
    outside_of,
    packed_bytes,
    pinned_by,
    replayed_to,
    series,
)

from tests.python.helpers import make_ops, needs_recorder

LARGE = Layout(1 << 20, 1 << 14, 63)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/usr/bin/python3.9", "/venv/lib/python3.11/a.so"], Layout(1 << 18, 1 << 12, 64)),
        (["/usr/lib/libpython3.9.so.1.0"], Layout(1 << 18, 1 << 12, 64)),
        (["/usr/bin/python3.10"], LARGE),
        (["/usr/bin/python3", "/usr/lib/libpython3.13.so.1.0"], LARGE),
        ([], LARGE),
    ],
)
def test_the_layout_of_a_version(paths: list[str], expected: Layout) -> None:
    assert layout_of(paths) == expected


def test_libraries_call_malloc_themselves() -> None:
    """CPython and its extensions do not, nor is an unknown site one of a library."""
    frames = {
        1: ("python: main (a.py:3)",),
        2: ("/usr/lib/libpython3.11.so.1.0+0x12", "/usr/bin/python3+0x1"),
        3: ("/lib/libsqlite3.so.0+0x8", "/usr/lib/libpython3.11.so.1.0+0x12"),
        4: ("/usr/lib/python3/_json.cpython-311-x86_64-linux-gnu.so+0x4",),
        5: ("/usr/bin/python3.11+0x8",),
    }
    assert outside_of(frames).tolist() == [0, 0, 0, 1, 0, 0]


def point(time_ms: int, resident: int, requested: int) -> Point:
    return Point(time_ms, time_ms * 1_000_000, resident, resident, requested, 1)


def test_the_most_that_lasts() -> None:
    """90 bytes at 10 ms are only on the way to 20 requested; 60 at 20 ms last for 60 ms."""
    points = [
        *(point(0, 100, 100), point(10, 180, 90), point(12, 100, 20), point(20, 80, 20)),
        *(point(60, 80, 20), point(80, 30, 20), point(90, 10, 10)),
    ]
    assert lasting(points, 100_000_000) == (points[2], 80_000_000)
    assert lasting(points[:1], 100_000_000) == (points[0], 100_000_000)
    freed = [point(0, 100, 100), point(50, 100, 40), point(99, 100, 10)]
    assert lasting(freed, 100_000_000)[0] == freed[2]  # the last point has no next one


def test_who_keeps_arenas() -> None:
    """Each arena has 2,000 resident bytes, of which 400 and 1,600 were requested.

    So 1,600 and 400 are kept; half of the first, with two blocks, by each site.
    """
    blocks = np.zeros(3, dtype_of("sw_pymalloc_block"))
    blocks["arena"], blocks["size"] = [0, 0, 7], [100, 300, 1600]
    assert pinned_by(blocks, np.array([5, 6, 6]), 4000) == [
        PinningSite(6, 2, 1900, 800 + 400),
        PinningSite(5, 1, 100, 800),
    ]


def test_full_pools() -> None:
    """31 blocks of 512 bytes fill a pool; one more, and 2 of 16, have a page each."""
    blocks = np.zeros(34, dtype_of("sw_pymalloc_block"))
    blocks["slot_bytes"] = [512] * 32 + [16] * 2
    assert packed_bytes(blocks, LARGE) == 16384 + 2 * 4096


def test_points_of_a_series() -> None:
    """600 operations have points at every second one, and before the pause after 301."""
    ops = make_ops(*((0, i, 100) for i in range(600)))
    ops["time_ns"] = np.arange(600) + 1000 * (np.arange(600) > 300)
    recording = sw.Recording.from_ops(ops)
    points = series(
        recording.source, Model(LARGE, np.zeros(0, np.uint8)), 600, 1599, lambda _: None
    )
    found = [one.op for one in points]
    assert {*range(2, 602, 2), 301} <= {*found}
    assert found == sorted(found) and points[-1].requested_bytes == 60_000
    model = Model(LARGE, np.zeros(0, np.uint8), np.array([3], np.uint64))
    replayed_to(recording.source, model, 301, lambda _: None)
    assert model.point()[-2:] == (30_000, 300)  # operation 3 is aside
    assert np.setdiff1d(np.arange(301), model.blocks()["op"]).tolist() == [3]


PROGRAM = """
import sys
kept = [{"name": str(i), "list": [i, i + 0.5]} for i in range(60_000)]
few = kept[::500]
del kept
mark = bytearray(3_000_000)
if len(sys.argv) > 1:
    sys._debugmallocstats()
"""


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None
    return int(found[1].replace(",", ""))


@needs_recorder()
def test_as_cpython_counts(tmp_path: Path) -> None:
    """Arenas, blocks and bytes at one moment: 2 arenas and 4 % of the blocks may differ.

    The address of its arenas decides whether CPython has 63 or 64 pools in each, and the
    interpreter's own calls of malloc count as blocks.
    """
    words = [sys.executable, "-c", PROGRAM]
    said = subprocess.run([*words, "x"], stderr=subprocess.PIPE, text=True, check=True).stderr
    recording = sw.record(words, tmp_path / "a.swt")
    (stop,) = np.flatnonzero(
        (recording.ops["size"] // 100 == 30_000) & (recording.ops["kind"] == 0)
    )
    paths = [one.path for one in recording.modules]
    model = Model(layout_of(paths), outside_of(recording.site_frames))
    replayed_to(recording.source, model, int(stop), lambda _: None)
    now = model.point()
    arenas = number(r"# arenas allocated current\s+=\s+([\d,]+)", said)
    slot_bytes = number(r"# bytes in allocated blocks\s+=\s+([\d,]+)", said)
    assert abs(now.arena_bytes / model.layout.arena_bytes - arenas) <= 2
    assert arenas > 10  # the blocks that stay keep most of those of all
    assert int(model.blocks()["slot_bytes"].sum()) == pytest.approx(slot_bytes, rel=0.04)
