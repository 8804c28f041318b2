# SPDX-License-Identifier: Apache-2.0
"""Parts of recordings, and sets of them."""

from __future__ import annotations

import numpy as np
import pytest
import spanwise as sw
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from spanwise.recordings.ops import own_ops

from tests.python.helpers import histories, make_ops, random_ops

ALLOC, FREE, REALLOC = 0, 1, 2


def live_after(ops: NDArray[np.void], count: int) -> dict[int, int]:
    """Sizes of the objects that are live after so many operations, by a model of its own."""
    live: dict[int, int] = {}
    for row in ops[:count]:
        if row["kind"] in (ALLOC, REALLOC):
            live.pop(int(row["object"]), None)
            live[int(row["object"])] = int(row["size"])
        elif row["kind"] == FREE:
            del live[int(row["object"])]
    return live


def test_a_slice_by_hand() -> None:
    ops = make_ops((ALLOC, 0, 10), (ALLOC, 1, 20), (REALLOC, 0, 30), (FREE, 1, 0), (FREE, 0, 0))
    whole = sw.Recording.from_ops(ops, name="five")
    part = whole[3:5]
    assert part.name == "five[3:5]"
    # Object 1 was allocated before object 0 was resized.
    assert [(r["kind"], r["object"], r["size"]) for r in part.ops] == [
        (ALLOC, 1, 20),
        (ALLOC, 0, 30),
        (FREE, 1, 0),
        (FREE, 0, 0),
    ]
    assert len({int(time) for time in part.ops["time_ns"][:3]}) == 1
    assert (whole[:2].ops == ops[:2]).all() and whole[0]["size"] == 10
    assert len(whole[5:]) == 0 and len(whole[4:2]) == 1  # object 0 alone is live after four
    assert whole[-2:].ops.tolist() == part.ops.tolist()
    with pytest.raises(sw.InvalidError, match="has no step"):
        whole[::2]


@given(histories(), st.integers(0, 300), st.integers(0, 300))
def test_a_slice_is_a_possible_history(ops: NDArray[np.void], a: int, b: int) -> None:
    first, last = min(a, b, len(ops)), min(max(a, b), len(ops))
    part = sw.Recording.from_ops(ops)[first:last]  # from_ops checks it
    before = live_after(ops, first)
    sizes = sorted(live_after(part.ops, len(before)).values())
    assert sizes == sorted(before.values())
    end = sorted(live_after(part.ops, len(part)).values())
    assert end == sorted(live_after(ops, last).values())
    assert part.ledger("go", "end").requested_bytes == sum(end)


def test_a_set_adds_up() -> None:
    pair = [sw.Recording.from_ops(random_ops(seed, 700, threads=2)) for seed in (5, 6)]
    both = sw.RecordingSet(pair)
    totals = [one.summary for one in pair]
    assert both.summary.allocs == sum(one.allocs for one in totals)
    assert both.summary.duration_ns == max(one.duration_ns for one in totals)
    assert len(both.ops) == both.summary.ops == 1400
    assert len(np.unique(both.ops["thread"])) == both.summary.threads == len(both.threads)
    second = both.ops[700:]
    assert second["object"].min() > both.ops[:700]["object"].max()
    assert (second["size"] == pair[1].ops["size"]).all()
    assert sum(site.allocs for site in both.sites) == both.summary.allocs
    assert isinstance(both[:1], sw.RecordingSet) and both[0] is pair[0]
    assert both.highest() in pair
    assert both.histogram()["count"].sum() == sum(one.histogram()["count"].sum() for one in pair)


def test_time_lines_add_up_by_hand() -> None:
    one = make_ops((ALLOC, 0, 100), (ALLOC, 1, 200))
    two = make_ops((ALLOC, 0, 1000), (FREE, 0, 0))
    one["time_ns"], two["time_ns"] = [10, 30], [20, 40]
    lines = sw.RecordingSet([sw.Recording.from_ops(one), sw.Recording.from_ops(two)]).timeline("go")
    wanted = {10: 100, 20: 1100, 30: 1300, 40: 300}
    found = dict(zip(lines["time_ns"].tolist(), lines["requested_bytes"].tolist(), strict=True))
    assert found == {**found, **wanted}


def test_own_operations_by_hand() -> None:
    """Of five objects two are the part's own, and one is resized in it."""
    ops = make_ops(
        *((ALLOC, 0, 10), (ALLOC, 1, 20), (ALLOC, 2, 30)),
        *(
            (FREE, 0, 0),
            (ALLOC, 0, 40),
            (REALLOC, 1, 50),
            (ALLOC, 3, 60),
            (FREE, 2, 0),
            (FREE, 0, 0),
        ),
        (FREE, 1, 0),
    )
    found = own_ops(ops, 3, 9)
    assert [(r["kind"], r["object"], r["size"]) for r in found] == [
        (ALLOC, 0, 40),
        (ALLOC, 1, 50),
        (ALLOC, 2, 60),
        (FREE, 0, 0),
    ]
    assert len(own_ops(ops, 3, 4)) == 0


@given(histories(), st.integers(0, 600), st.integers(0, 600))
def test_own_operations_are_a_history(ops: NDArray[np.void], a: int, b: int) -> None:
    """Beside a model: what is live at the end of the part and was allocated or resized in it."""
    first, last = sorted((min(a, len(ops)), min(b, len(ops))))
    part = sw.Recording.from_ops(own_ops(ops, first, last))
    live: dict[int, int] = {}
    for row in ops[first:last]:
        if row["kind"] == FREE:
            live.pop(int(row["object"]), None)
        elif row["kind"] != 3:
            live[int(row["object"])] = int(row["size"])
    assert part.summary.end_requested_bytes == sum(live.values())
    assert part.summary.end_live_objects == len(live)
