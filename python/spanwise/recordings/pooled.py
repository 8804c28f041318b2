# SPDX-License-Identifier: Apache-2.0
"""What a pool would save: the same operations, with some objects in separate caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import lib
from spanwise.recordings.sources import Batch, Source, grown

_POOLS_MAX = 64
"""Threads above that share pools."""

Choose = Callable[[NDArray[np.void], int], NDArray[np.bool_]]
"""Given operations and the number of those before them, say which of them allocate from a pool."""


class Pooled:
    """The operations of a source, with chosen objects in pools, one per thread.

    A pool is a further thread of the simulation: caches share no spans. What was allocated from a
    pool is freed into it, whichever thread frees it.
    """

    def __init__(self, source: Source, choose: Choose, threads: int) -> None:
        self._source = source
        self._choose = choose
        self._threads = threads

    def batches(self) -> Iterator[Batch]:
        """Yield the operations from the first to the last."""
        for ops in self._rewritten(batch.array().copy() for batch in self._source.batches()):
            yield Batch(_lib.pointer(ops, "const sw_op *"), len(ops))

    def blocks(self, rows: int) -> Iterator[NDArray[np.void]]:
        """Yield the same as arrays."""
        return self._rewritten(block.copy() for block in self._source.blocks(rows))

    def _rewritten(self, blocks: Iterator[NDArray[np.void]]) -> Iterator[NDArray[np.void]]:
        pool_of = np.zeros(0, np.uint32)  # by object id: the thread that is its pool; 0: none
        first = 0
        for ops in blocks:
            ends = ops["kind"] == lib.SW_OP_THREAD_END
            placed = (ops["kind"] != lib.SW_OP_FREE) & ~ends
            pool = np.where(
                self._choose(ops, first) & placed, self._threads + ops["thread"] % _POOLS_MAX, 0
            ).astype(np.uint32)
            pool_of = grown(pool_of, int(ops["object"].max(initial=0)) + 1)
            pool = _latest(ops["object"], placed, pool, pool_of)
            pool_of[ops["object"][placed]] = pool[placed]  # of repeated indices the last counts
            ops["thread"] = np.where((pool != 0) & ~ends, pool, ops["thread"])
            first += len(ops)
            yield ops


def _latest(
    objects: NDArray[np.uint32], placed: NDArray[np.bool_], pool: NDArray[Any], before: NDArray[Any]
) -> NDArray[Any]:
    """For each operation, return the pool of the last `placed` one on its object until then.

    Without one it is that of `before`, by object id.
    """
    order = np.argsort(objects, kind="stable")
    sorted_objects, rows = objects[order], np.arange(len(objects))
    last = np.maximum.accumulate(np.where(placed[order], rows, -1))
    known = (last >= 0) & (sorted_objects[last] == sorted_objects)
    found = np.empty_like(pool)
    found[order] = np.where(known, pool[order][last], before[sorted_objects])
    return found


def of_sites(sites: NDArray[Any]) -> Choose:
    """Choose what is allocated or resized at these call sites."""
    wanted = np.zeros(int(sites.max(initial=0)) + 2, bool)
    wanted[sites] = True

    def choose(ops: NDArray[np.void], _: int) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = wanted[np.minimum(ops["site"], len(wanted) - 1)]
        return found

    return choose


def live_after(blocks: Iterator[NDArray[np.void]], ops: int, choose: Choose) -> Choose:
    """Of what `choose` names, choose the objects that are live after the first `ops` operations."""
    last = np.zeros(0, np.int64)  # by object id: 1 + its last allocation's number; 0: not live
    first = 0
    for whole in blocks:
        block = whole[: max(ops - first, 0)]
        if not len(block):
            break
        rows = np.flatnonzero(block["kind"] != lib.SW_OP_THREAD_END)
        objects = block["object"][rows]
        last = grown(last, int(objects.max(initial=0)) + 1)
        chosen = (block["kind"][rows] != lib.SW_OP_FREE) & choose(block, first)[rows]
        last[objects] = np.where(chosen, 1 + first + rows, 0)
        first += len(block)
    numbers = np.sort(last[last != 0]) - 1

    def lives(ops: NDArray[np.void], before: int) -> NDArray[np.bool_]:
        found = np.zeros(len(ops), bool)
        from_, to = np.searchsorted(numbers, [before, before + len(ops)])
        found[numbers[from_:to] - before] = True
        return found

    return lives
