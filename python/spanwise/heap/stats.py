# SPDX-License-Identifier: Apache-2.0
"""A heap's counters and spans, and the resident bytes of its process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanwise import _lib
from spanwise._lib import ffi, lib
from spanwise.heap.handle import HeapHandle
from spanwise.results.rows import Rows, as_rows
from spanwise.results.values import Result


@dataclass(frozen=True)
class HeapStats(Result):
    """A heap's counters. Sizes are in bytes.

    Attributes:
        held_bytes: pages and metadata held.
        live_objects: objects allocated now.
        large_objects: those of them that are large, on pages of their own.
        requested_bytes: asked for by them (slot bytes if the heap is not tracked).
        spans: spans of slots.
        caches: thread caches.
        largest_hole_bytes: longest run of free held pages.
        free_runs: number of such runs.
        returned_bytes: given back to the system over the heap's life.
        retry_bytes: what the system refused to take back.
        lock_acquisitions: turns of the heap's lock over the heap's life.
        lock_waits: those of them that found the lock held by another thread.
        purge_calls: calls by which the system was asked to take pages back.
        commit_calls: calls by which it was asked to make more pages accessible.
    """

    held_bytes: int
    live_objects: int
    large_objects: int
    requested_bytes: int
    spans: int
    caches: int
    largest_hole_bytes: int
    free_runs: int
    returned_bytes: int
    retry_bytes: int
    lock_acquisitions: int
    lock_waits: int
    purge_calls: int
    commit_calls: int


def rss_bytes(handle: HeapHandle) -> int | None:
    """Resident bytes of this process; None for a dry heap and where the system does not tell."""
    if handle.dry:
        return None
    try:
        pages = Path("/proc/self/statm").read_bytes().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


SPANS_DTYPE = _lib.dtype_of("sw_span_info")
"""One span of `Heap.spans()`, as sw_span_info of include/spanwise/stats.h."""


def read_spans(c_heap: Any) -> Rows:
    """One row a span of a C heap, in heap order. The caller keeps the heap from going away."""
    room = int(lib.sw_heap_spans(c_heap, ffi.NULL, 0))
    while True:
        rows = np.zeros(room, SPANS_DTYPE)
        count = int(lib.sw_heap_spans(c_heap, _lib.pointer(rows, "sw_span_info *"), room))
        if count <= room:
            return as_rows(rows[:count])
        room = count  # other threads have made spans since the count
