# SPDX-License-Identifier: Apache-2.0
"""Groups by call site, class and thread beside a short model, and the sums that they must have."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import spanwise as sw
from spanwise.recordings.live_sites import slots_of

from tests.python.helpers import ALLOC, FREE, random_ops


def with_sites(seed: int) -> sw.Recording:
    """A history whose operations have one of seven sites."""
    ops = random_ops(seed, 3000)
    ops["site"] = np.random.default_rng(seed).integers(0, 7, len(ops))
    return sw.Recording.from_ops(ops, name="mine")


@pytest.mark.parametrize("at", ["peak", "end", "#1000"])
def test_groups_are_those_of_a_model(at: str) -> None:
    """Of each object its last operation counts; a free takes it away."""
    one = with_sites(4)
    groups = one.site_groups("go", at)
    assert np.asarray(groups)["allocs"].sum() == one.summary.allocs
    ledger = one.ledger("go", at)
    ops = {"peak": one.summary.peak_op, "end": len(one), "#1000": 1000}[at]
    last: dict[int, tuple[int, int, int]] = {}
    allocs: Counter[tuple[int, int]] = Counter()
    for i, row in enumerate(one.ops):
        if row["kind"] == ALLOC:
            allocs[int(row["site"]), int(row["thread"])] += 1
        if i < ops and row["kind"] == FREE:
            del last[int(row["object"])]
        elif i < ops:
            last[int(row["object"])] = (int(row["site"]), int(row["thread"]), int(row["size"]))
    wanted: Counter[tuple[int, int]] = Counter()
    for site, thread, size in last.values():
        wanted[site, thread] += size
    found: Counter[tuple[int, int]] = Counter()
    counted: Counter[tuple[int, int]] = Counter()
    for row in groups:
        found[int(row["site"]), int(row["thread"])] += int(row["requested_bytes"])
        counted[int(row["site"]), int(row["thread"])] += int(row["allocs"])
    assert +found == +wanted and +counted == +allocs
    assert groups["live_objects"].sum() == len(last) == ledger.live_objects
    slots = set(np.asarray(sw.SizeClassTable.go().classes["size_bytes"]).tolist()) | {0}
    assert set(groups["slot_bytes"].tolist()) <= slots
    keys = [row[:3] for row in np.asarray(groups).tolist()]
    assert keys == sorted(set(keys))


@pytest.mark.parametrize("seed", [1, 2])
def test_groups_add_up_to_the_sites(seed: int) -> None:
    one = with_sites(seed)
    groups = one.site_groups("c16")
    for site in one.live_sites("c16"):
        mine = np.asarray(groups)[groups["site"] == site.id]
        assert mine["waste_bytes"].sum() == site.waste_bytes
        assert mine["live_objects"].sum() == site.live_objects


def test_the_class_of_an_aligned_request() -> None:
    """By hand, of Go's table: 48 is no multiple of 32; 64 of 64; 4,097 of 4,096 is 8,192."""
    sizes = np.array([33, 33, 33, 4097, 40_000, 40_000, 8, 0], np.uint64)
    log2 = np.array([0, 5, 6, 12, 0, 4, 14, 0], np.uint8)
    found = slots_of(sizes, log2, sw.SizeClassTable.go())
    assert found.tolist() == [48, 64, 64, 8192, 0, 0, 0, 8]


def test_nothing_and_what_is_refused() -> None:
    one = with_sites(1)
    assert len(sw.Recording.from_ops(one.ops[:0], name="nothing").site_groups()) == 0
    with pytest.raises(sw.InvalidError, match="after its end"):
        one.site_groups(at="#4000")
    two = sw.RecordingSet([one, with_sites(2)])
    with pytest.raises(sw.InvalidError, match="site, class and thread"):
        two.site_groups()
