# SPDX-License-Identifier: Apache-2.0
"""Heap maps: they add up to the ledger, and know each object of a recording."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import spanwise as sw
from spanwise import _lib

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


def live_after(count: int) -> dict[int, tuple[int, int]]:
    """Return size and time of each live object after some operations, by an independent model."""
    live: dict[int, tuple[int, int]] = {}
    for op in OPS[:count]:
        if op["kind"] == _lib.lib.SW_OP_FREE:
            live.pop(int(op["object"]))
        elif op["kind"] != _lib.lib.SW_OP_THREAD_END:
            live[int(op["object"])] = int(op["size"]), int(op["time_ns"])
    return live


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


def test_a_map_knows_every_live_object() -> None:
    one = RECORDING.map("go", "peak")
    model = live_after(RECORDING.summary.peak_op)
    assert one.placed is not None
    got = sorted(zip(one.placed["requested_bytes"], one.placed["born_ns"], strict=True))
    assert got == sorted(model.values())
    of_slots = [one.slots(i) for i in range(len(one))]
    live = [row for rows in of_slots for row in rows if row["live"]]
    assert sorted((row["requested_bytes"], row["born_ns"]) for row in live) == got
    ages = one.age_ns
    assert ages is not None
    assert np.nanmax(ages) == one.ledger.time_ns - min(born for _, born in model.values())
    assert (np.isnan(ages) == (one.array["live"] == 0)).all()


def test_maps_through_time_are_those_of_single_moments() -> None:
    maps = RECORDING.maps("go", samples=5)
    peak = RECORDING.after_peak("go").peak_op
    assert peak is not None
    evenly = [len(RECORDING) * i // 5 for i in range(1, 6)]
    assert [one.ledger.stats.ops for one in maps if one.ledger.stats] == sorted({*evenly, peak})
    most = [one.ledger.stats for one in maps if one.ledger.at == "peak-resident"]
    assert [stats.ops for stats in most if stats] == [peak]
    for one in maps:
        check(one)
        assert one.slot_requested_bytes is None and one.placed is None
    last = RECORDING.map("go", "end")
    assert np.array_equal(np.asarray(maps[-1].array), np.asarray(last.array))


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
