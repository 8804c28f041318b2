# SPDX-License-Identifier: Apache-2.0
"""Recordings whose call sites have pools."""

from __future__ import annotations

import numpy as np
import pytest
import spanwise as sw
from spanwise._lib import OPS_DTYPE, lib

ALLOC, FREE, REALLOC, END = (
    lib.SW_OP_ALLOC,
    lib.SW_OP_FREE,
    lib.SW_OP_REALLOC,
    lib.SW_OP_THREAD_END,
)
THREADS, SITES = 3, (2, 5)


def random_ops(count: int, seed: int) -> np.ndarray:
    """Allocations, resizes and frees by any thread; ids are reused, lowest first."""
    draw = np.random.default_rng(seed)
    ops = np.zeros(count, OPS_DTYPE)
    live: list[int] = []
    free = list(range(count))
    for i in range(count):
        op = ops[i]
        op["time_ns"], op["thread"] = i, draw.integers(THREADS)
        kind = ALLOC if len(live) < 3 else draw.choice([ALLOC, FREE, FREE, REALLOC])
        op["kind"] = kind
        if kind == ALLOC:
            op["object"] = free.pop(0)
            live.append(int(op["object"]))
        else:
            op["object"] = live[draw.integers(len(live))]
        if kind == FREE:
            live.remove(int(op["object"]))
            free.insert(0, int(op["object"]))
        else:
            op["size"], op["site"] = draw.integers(1, 3000), draw.integers(1, 7)
    return ops


def expected(ops: np.ndarray, chosen: set[int]) -> list[int]:
    """The thread of each operation, one by one; `chosen`: numbers of pooled operations."""
    pool: dict[int, int] = {}
    threads = []
    for i, op in enumerate(ops):
        thread, object_ = int(op["thread"]), int(op["object"])
        if op["kind"] in (ALLOC, REALLOC):
            pool[object_] = THREADS + thread if i in chosen else 0
        threads.append(pool[object_] or thread)
    return threads


@pytest.mark.parametrize("rows", [1, 7, 4000])
def test_pooled_objects_are_freed_into_their_pool(rows: int) -> None:
    ops = random_ops(3000, seed=1)
    recording = sw.Recording.from_ops(ops)
    chosen = {i for i, op in enumerate(ops) if op["kind"] != FREE and op["site"] in SITES}
    found = np.concatenate(list(recording.pooled(SITES).blocks(rows)))
    assert found["thread"].tolist() == expected(ops, chosen)
    found["thread"] = ops["thread"]
    assert (found == ops).all()  # nothing else changes


def test_only_objects_that_are_live_after_some_operations() -> None:
    ops = random_ops(3000, seed=2)
    last: dict[int, int] = {}
    for i, op in enumerate(ops[:1700]):
        last.pop(int(op["object"]), None)
        if op["kind"] != FREE and op["site"] in SITES:
            last[int(op["object"])] = i
    assert last
    pooled = sw.Recording.from_ops(ops).pooled(SITES, live_after=1700)
    found = np.concatenate(list(pooled.blocks(500)))
    assert found["thread"].tolist() == expected(ops, set(last.values()))


def test_a_pool_packs_what_lives_on() -> None:
    """Every tenth object of 48 bytes lives on: alone they fill a tenth of the spans."""
    count = 20_000
    ops = np.zeros(2 * count - count // 10, OPS_DTYPE)
    ops["time_ns"] = np.arange(len(ops))
    ops["kind"][count:], ops["object"][:count] = FREE, np.arange(count)
    ops["object"][count:] = np.flatnonzero(np.arange(count) % 10)
    ops["size"][:count] = 48
    ops["site"][:count] = np.where(np.arange(count) % 10, 1, 2)
    recording = sw.Recording.from_ops(ops)
    mixed, apart = (one.ledger(at="end") for one in (recording, recording.pooled([2])))
    assert mixed.requested_bytes == apart.requested_bytes == 48 * count // 10
    assert mixed.free_slot_bytes > 8 * apart.requested_bytes
    assert apart.free_slot_bytes + apart.tail_bytes < 2 * 8192 + apart.requested_bytes // 50
    assert len(recording.pooled([2])) == len(recording)


def test_ends_of_threads_stay() -> None:
    ops = np.zeros(4, OPS_DTYPE)
    ops["kind"], ops["thread"] = [ALLOC, ALLOC, END, FREE], [0, 1, 1, 0]
    ops["object"], ops["site"], ops["size"] = [0, 1, 0, 1], [1, 1, 0, 0], [8, 8, 0, 0]
    pooled = sw.Recording.from_ops(ops).pooled([1])
    assert np.concatenate(list(pooled.blocks(9)))["thread"].tolist() == [2, 3, 1, 3]
    assert pooled.ledger(at="end").live_objects == 1


def test_what_names_a_site() -> None:
    ops = random_ops(300, seed=3)
    recording = sw.Recording.from_ops(ops)
    site = next(one for one in recording.sites if one.id == SITES[0])
    by_object, by_id = (
        np.concatenate(list(recording.pooled([one]).blocks(500))) for one in (site, site.id)
    )
    assert (by_object == by_id).all()
    with pytest.raises(TypeError, match="site must be"):
        recording.pooled(["main"])
