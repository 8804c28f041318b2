# SPDX-License-Identifier: Apache-2.0
"""Allocations, and what of them is live at a moment, by call site, size class and thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import lib
from spanwise.recordings.live_sites import LiveObjects, sum_by
from spanwise.results.rows import Rows, as_rows
from spanwise.tables.table import SizeClassTable

_KEYS = ("site", "slot_bytes", "thread")
_COUNTS = ("allocs", "allocated_bytes", "live_objects", "requested_bytes", "waste_bytes")
GROUPS_DTYPE = np.dtype(
    [("site", "<u4"), ("slot_bytes", "<u8"), ("thread", "<u4")] + [(one, "<i8") for one in _COUNTS]
)
"""One group of `Recording.site_groups`."""

Key = tuple[int, ...]


def count_groups(
    blocks: Iterator[NDArray[np.void]], table: SizeClassTable, same: dict[int, int]
) -> dict[Key, list[int]]:
    """Allocations and their bytes, by the keys of GROUPS_DTYPE.

    Args:
        blocks: the operations.
        table: the size classes.
        same: the site that stands for each of those with the same frames.
    """
    sums: dict[Key, list[int]] = {}
    for block in blocks:
        rows = block[block["kind"] == lib.SW_OP_ALLOC]
        slots = slots_of(rows["size"], rows["align_log2"], table)
        keys = (rows["site"], slots, rows["thread"])
        ones = np.ones(len(rows), np.int64)
        for (site, *others), counts in _sums_by(keys, (ones, rows["size"].astype(np.int64))):
            total = sums.setdefault((same.get(site, site), *others), [0] * len(_COUNTS))
            total[0] += counts[0]
            total[1] += counts[1]
    return sums


def slots_of(
    sizes: NDArray[np.uint64], align_log2: NDArray[np.uint8], table: SizeClassTable
) -> NDArray[np.int64]:
    """Slot bytes of the class that serves each request; 0: whole pages.

    An aligned request takes the first class from its own on whose slots are all aligned, as
    `sw_heap_alloc_aligned` does.
    """
    slots = np.concatenate([np.asarray(table.classes["size_bytes"], np.int64), [0]])
    count = len(table)
    cls = np.searchsorted(slots[:count], sizes)
    for log2 in np.unique(align_log2).tolist():
        if log2 == 0:
            continue
        fits = slots[:count] % (1 << log2) == 0
        if 1 << log2 > table.page_bytes:
            fits[:] = False
        at_least = np.append(np.where(fits, np.arange(count), count), count)
        next_fit = np.minimum.accumulate(at_least[::-1])[::-1]
        mine = align_log2 == log2
        cls[mine] = next_fit[cls[mine]]
    found: NDArray[np.int64] = slots[cls]
    return found


def add_live(sums: dict[Key, list[int]], objects: LiveObjects) -> Rows:
    """Groups of allocations together with what lives; rows of GROUPS_DTYPE, by their keys."""
    live, requested, roundup, kept, _ = objects.counts
    keys = (objects.site, objects.slot_bytes, objects.thread)
    for key, counts in _sums_by(keys, (live, requested, roundup + kept)):
        total = sums.setdefault(key, [0] * len(_COUNTS))
        total[2:] = counts
    rows = [(*key, *total) for key, total in sorted(sums.items())]
    made = np.array(rows, GROUPS_DTYPE)
    made.flags.writeable = False
    return as_rows(made)


def _sums_by(
    keys: tuple[NDArray[Any], ...], columns: tuple[NDArray[np.int64], ...]
) -> Iterable[tuple[Key, list[int]]]:
    """The sums of the columns over the rows with equal keys."""
    place = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        values, dense = np.unique(key, return_inverse=True)
        # There are at most as many distinct keys as rows, so the product fits into 64 bits.
        place = np.unique(place * len(values) + dense, return_inverse=True)[1]
    first = np.unique(place, return_index=True)[1]
    sums = [sum_by(place, column, len(first)).tolist() for column in columns]
    named = zip(*(key[first].tolist() for key in keys), strict=True)
    return zip(named, map(list, zip(*sums, strict=True)), strict=True)
