# SPDX-License-Identifier: Apache-2.0
"""Heap maps: they add up to the ledger, and know each object of a recording."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import spanwise as sw

from tests.python.helpers import random_ops

OPS = random_ops(9, 4000)
RECORDING = sw.Recording.from_ops(OPS, name="mine")


def sums(one: sw.HeapMap) -> dict[str, int]:
    """Return the terms of a ledger, computed from the tiles."""
    tiles = np.asarray(one.array)
    slots, large, free = (tiles[tiles["kind"] == kind] for kind in range(3))
    cached = tiles[(tiles["flags"] & 1) != 0]
    return {
        "requested_bytes": int(tiles["requested_bytes"].sum()),
        "roundup_bytes": int(slots["roundup_bytes"].sum()),
        "tail_bytes": int(tiles["tail_bytes"].sum()),
        "free_slot_bytes": int(slots[(slots["flags"] & 1) == 0]["free_bytes"].sum()),
        "cached_bytes": int(cached["free_bytes"].sum()),
        "large_rounding_bytes": int(large["roundup_bytes"].sum()),
        "free_page_bytes": int(free["bytes"].sum()),
        "held_bytes": int(tiles["bytes"].sum()) + one.ledger.metadata_bytes,
        "live_objects": int(tiles["live"].sum()),
        "spans": len(slots),
    }


def check(one: sw.HeapMap) -> None:
    found = sums(one)
    assert found == {name: getattr(one.ledger, name) for name in found}
    assert (np.diff(one.array["offset"].astype(np.int64)) > 0).all()


@pytest.mark.parametrize("table", ["go", "c16", "pow2"])
@pytest.mark.parametrize("at", ["peak", "peak-resident", "end"])
def test_a_recording_has_a_map_at_each_moment(table: str, at: str) -> None:
    one = RECORDING.map(table, at)
    check(one)
    of_map, expected = one.ledger, RECORDING.ledger(table, at)
    assert replace(of_map, stats=None) == replace(expected, stats=None)
    touched = int(one.array["touched_bytes"].sum())
    assert expected.resident is not None
    assert touched + expected.resident.metadata_bytes == expected.resident_bytes


def test_slots_by_hand() -> None:
    """Class 48 of Go's table: three objects, the second is freed; then a large one."""
    with sw.Heap("go", dry=True) as heap:
        blocks = [heap.alloc(n) for n in (33, 34, 35)]
        heap.alloc(100_000)
        blocks[1].free()
        one = heap.map()
        (small,) = np.flatnonzero(one.array["cls"])
        slots = one.slots(int(small))
        assert len(slots) == 8192 // 48
        assert slots["live"][:4].tolist() == [True, False, True, False]
        assert slots["requested_bytes"][:4].tolist() == [33, 0, 35, 0]
        assert np.diff(slots["offset"]).tolist() == [48] * (len(slots) - 1)
        (large,) = np.flatnonzero(one.array["kind"] == 1)
        assert one.slots(int(large)).to_dicts()[0]["requested_bytes"] == 100_000
        with pytest.raises(sw.InvalidError, match="tile 99: the map has"):
            one.slots(99)


def test_what_has_no_map() -> None:
    nothing = sw.Recording.from_ops(OPS[:0], name="nothing")
    assert len(nothing.map("go")) == 0 and nothing.maps("go") == []
    with sw.Heap("go", dry=True) as heap, pytest.raises(sw.StateError):
        heap.map(resident=True)
    with pytest.raises(sw.InvalidError, match="without slots"):
        RECORDING.maps("go", samples=1)[0].slots(0)
    both = sw.RecordingSet([RECORDING, RECORDING])
    with pytest.raises(sw.InvalidError, match="one recording"):
        both.map("go")
    assert len(sw.RecordingSet([RECORDING]).map("go")) == len(RECORDING.map("go"))
    with pytest.raises(sw.InvalidError, match="after its end"):
        RECORDING.map("go", 1e6)
