# SPDX-License-Identifier: Apache-2.0
"""Lifetimes and ages beside a short model that goes through the operations one by one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from numpy.typing import NDArray
from spanwise import _lib

from tests.python.helpers import ALLOC, FREE, REALLOC, make_ops, random_ops


def pow2(value: int) -> int:
    return 1 << (value.bit_length() - 1) if value else 0


def model(ops: NDArray[np.void], by: str) -> dict[tuple[int, ...], tuple[int, int]]:
    live: dict[int, tuple[int, int, int]] = {}
    count: Counter[tuple[int, ...]] = Counter()
    total: Counter[tuple[int, ...]] = Counter()

    def end(one: tuple[int, int, int], now: int, freed: bool) -> None:
        born, size, site = one
        table = sw.SizeClassTable.c16()
        cls = table.class_of(size) if size <= table.largest_bytes else 0
        slot_bytes = int(table.classes["size_bytes"][cls - 1]) if cls else 0
        group = {
            "site": (0, site, 0),
            "size": (0, 0, pow2(size)),
            "class": (cls, 0, slot_bytes),
        }[by]
        key = (*group, pow2(now - born), int(freed))
        count[key] += 1
        total[key] += size

    now = 0
    for op in ops:
        if op["kind"] == _lib.lib.SW_OP_THREAD_END:
            continue
        now, one = int(op["time_ns"]), int(op["object"])
        if op["kind"] == ALLOC:
            live[one] = now, int(op["size"]), int(op["site"])
        elif op["kind"] == REALLOC:
            live[one] = live[one][0], int(op["size"]), live[one][2]
        else:
            end(live.pop(one), now, True)
    for left in live.values():
        end(left, now, False)
    return {key: (count[key], total[key]) for key in count}


@pytest.mark.parametrize("by", ["class", "site", "size"])
@pytest.mark.parametrize("stored", [False, True])
def test_lifetimes(by: str, stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = random_ops(7, 3000, threads=2)
    ops["site"] = np.arange(len(ops)) % 11
    ops["time_ns"] = np.cumsum(np.arange(len(ops)) ** 2 % 977)
    recording = sw.Recording.from_ops(ops, tmp_path / "a.swt" if stored else None)
    blocks = recording.blocks
    monkeypatch.setattr(recording, "blocks", lambda: blocks(7 if by == "class" else 1000))
    rows = recording.lifetimes(by)
    told = {tuple(int(v) for v in row.tolist()[:5]): row.tolist()[5:] for row in rows}
    assert told == model(ops, by)
    assert len(told) == len(rows) > 10
    both = sw.RecordingSet([recording, recording])
    if by == "site":
        with pytest.raises(sw.InvalidError, match="ask one"):
            both.lifetimes(by)
    else:
        assert both.lifetimes(by)["count"].tolist() == (2 * rows["count"]).tolist()


def test_by_hand() -> None:
    """An id is used twice; a resized object lives on; 40,000 bytes are large."""
    ops = make_ops(
        (ALLOC, 0, 100), (FREE, 0, 0), (ALLOC, 0, 40_000), (ALLOC, 1, 10), (REALLOC, 1, 20)
    )
    ops["time_ns"] = [10, 13, 20, 25, 27]
    rows = sw.Recording.from_ops(ops).lifetimes()
    classes = [sw.SizeClassTable.c16().class_of(size) for size in (20, 100)]
    assert rows.tolist() == [
        (0, 0, 0, 4, False, 1, 40_000),
        (classes[0], 0, 32, 2, False, 1, 20),
        (classes[1], 0, 112, 2, True, 1, 100),
    ]
    nothing = sw.Recording.from_ops(make_ops()).lifetimes("size")
    assert len(nothing) == 0
    with pytest.raises(sw.InvalidError, match="by 'age': use one of class, site, size"):
        sw.Recording.from_ops(ops).lifetimes("age")
