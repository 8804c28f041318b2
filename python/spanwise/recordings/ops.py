# SPDX-License-Identifier: Apache-2.0
"""Check, sum and slice arrays of operations; find the last operation on each object.

Checks and sums sort the operations by object with a stable sort. The predecessor of an operation on
the same object is then the row before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import OPS_DTYPE, lib
from spanwise.errors import InvalidError

_FLAGS = lib.SW_OP_ZEROED | lib.SW_OP_SCAN
_KINDS = ("ALLOC", "FREE", "REALLOC")
_END = lib.SW_OP_THREAD_END


def check_ops(ops: NDArray[np.void]) -> None:
    """Checks that operations are a possible history."""
    rules = (
        (
            ops["kind"] > _END,
            "kind {kind} is unknown; use 0 (alloc), 1 (free), 2 (realloc) or 3 (end of a thread)",
        ),
        ((ops["flags"] & ~np.uint16(_FLAGS)) != 0, "flags {flags:#x} are unknown"),
        (ops["align_log2"] > 47, "alignment 2^{align_log2} is impossible"),
        (ops["size"] > np.uint64((1 << 63) - 1), "size {size} is too large"),
        ((ops["kind"] == 1) & (ops["size"] != 0), "a free has size {size}; it must be 0"),
        (ops["object"] >= max(len(ops), 1), "object {object} is not dense: fewer operations exist"),
        (ops["thread"] >= max(len(ops), 1), "thread {thread} is not dense: fewer operations exist"),
        (_has_more(ops), "an end of a thread has a time and a thread, nothing else"),
        (_falls(ops["time_ns"]), "time {time_ns} ns is before that of the operation before"),
    )
    for broken, message in rules:
        if broken.any():
            _refuse(ops, int(np.argmax(broken)), message)
    _check_lives(ops)
    _check_ends(ops)


def _has_more(ops: NDArray[np.void]) -> NDArray[np.bool_]:
    """Marks ends of threads with fields that an end cannot have."""
    names = ("size", "object", "site", "align_log2", "flags")
    more: NDArray[np.bool_] = np.zeros(len(ops), bool)
    for name in names:
        more |= (ops["kind"] == _END) & (ops[name] != 0)
    return more


def _falls(times: NDArray[np.uint64]) -> NDArray[np.bool_]:
    return np.concatenate([[False], times[1:] < times[:-1]]) if len(times) else np.zeros(0, bool)


def _refuse(ops: NDArray[np.void], index: int, message: str) -> None:
    row = {name: int(ops[index][name]) for name in ops.dtype.names or ()}
    raise InvalidError(f"operation {index}: {message.format(**row)}")


def _by_object(ops: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the order by object, and which rows in that order are the first of their object."""
    order = np.argsort(ops["object"], kind="stable")
    objects = ops["object"][order]
    first = np.ones(len(ops), bool)
    first[1:] = objects[1:] != objects[:-1]
    return order, first


def _check_ends(ops: NDArray[np.void]) -> None:
    ends = ops["kind"] == _END
    if not ends.any():
        return
    first = np.full(int(ops["thread"].max()) + 1, len(ops))
    np.minimum.at(first, ops["thread"][~ends], np.flatnonzero(~ends))
    early = np.flatnonzero(ends)
    early = early[first[ops["thread"][early]] > early]
    if len(early):
        _refuse(ops, int(early[0]), "thread {thread} ends, and made no operation before")


def _check_lives(ops: NDArray[np.void]) -> None:
    rows = np.flatnonzero(ops["kind"] != _END)
    order, first = _by_object(ops[rows])
    order = rows[order]
    kind = ops["kind"][order]
    live_before = np.zeros(len(rows), bool)
    live_before[1:] = (kind[:-1] != 1) & ~first[1:]
    wrong = order[(kind == 0) == live_before]
    if not len(wrong):
        return
    index = int(wrong.min())
    state = "is live already" if ops["kind"][index] == 0 else "is not live"
    _refuse(ops, index, f"{_KINDS[ops['kind'][index]]} of object {{object}}, which {state}")


def requested_after(ops: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return requested bytes and live objects after each operation, two arrays of shape (n,)."""
    rows = np.flatnonzero(ops["kind"] != _END)
    order, first = _by_object(ops[rows])
    order = rows[order]
    size = ops["size"][order].astype(np.int64)
    before = np.zeros(len(rows), np.int64)
    before[1:] = np.where(first[1:], 0, size[:-1])  # the size of a free is 0
    change = np.zeros(len(ops), np.int64)
    change[order] = size - before
    births = (ops["kind"] == 0).astype(np.int64) - (ops["kind"] == 1)
    return np.cumsum(change), np.cumsum(births)


def summarize_ops(ops: NDArray[np.void]) -> dict[str, Any]:
    """Return the totals of an array, with the names of sw_trace_summary."""
    kind, size = ops["kind"], ops["size"]
    alloc, realloc = kind == 0, kind == 2
    bytes_, objects = requested_after(ops)
    peak = int(bytes_.max(initial=0))
    some = len(ops) > 0
    return {
        "ops": len(ops),
        "allocs": int(alloc.sum()),
        "frees": int((kind == 1).sum()),
        "reallocs": int(realloc.sum()),
        "zeroed_allocs": int((alloc & ((ops["flags"] & lib.SW_OP_ZEROED) != 0)).sum()),
        "aligned_allocs": int((alloc & (ops["align_log2"] != 0)).sum()),
        "allocated_bytes": int(size[alloc].sum()),
        "reallocated_bytes": int(size[realloc].sum()),
        "peak_requested_bytes": peak,
        "peak_op": int(np.argmax(bytes_ == peak)) + 1 if peak else 0,
        "peak_live_objects": int(objects.max(initial=0)),
        "end_requested_bytes": int(bytes_[-1]) if some else 0,
        "end_live_objects": int(objects[-1]) if some else 0,
        "largest_bytes": int(size.max(initial=0)),
        "duration_ns": int(ops["time_ns"][-1]) if some else 0,
        "threads": len(np.unique(ops["thread"])),
        "sites": len(np.unique(ops["site"][ops["site"] != 0])),
        "thread_ends": int((kind == _END).sum()),
        **dict.fromkeys(_RECORDER_TOTALS, 0),
    }


_RECORDER_TOTALS = (
    "unknown_frees",
    "unknown_reallocs",
    "missed_frees",
    "calls",
    "dropped_calls",
    "drop_reason",
    "children_unrecorded",
    "children_recorded",
    "incomplete",
)


def grown(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the array with at least `count` elements, new ones 0; longer ones double."""
    more = count - len(array)
    if more <= 0:
        return array
    return np.concatenate([array, np.zeros(max(more, len(array)), array.dtype)])


@dataclass
class Latest:
    """The last operation on each object so far: size, site, thread and time, by object id."""

    size: NDArray[np.uint64]
    site: NDArray[np.uint32]
    thread: NDArray[np.uint32]
    time_ns: NDArray[np.uint64]
    live: NDArray[np.bool_]

    @classmethod
    def until(cls, blocks: Iterator[NDArray[np.void]], ops: int) -> Latest:
        """Return the last operations on objects among the first `ops` operations."""
        found = cls(
            np.zeros(0, np.uint64),
            np.zeros(0, np.uint32),
            np.zeros(0, np.uint32),
            np.zeros(0, np.uint64),
            np.zeros(0, bool),
        )
        for block in blocks:
            found.add(block[:ops])
            ops -= len(block)
            if ops <= 0:
                break
        return found

    def add(self, block: NDArray[np.void]) -> None:
        """Add consecutive operations."""
        rows = block[block["kind"] != lib.SW_OP_THREAD_END]
        if not len(rows):
            return
        count = int(rows["object"].max()) + 1
        self.size, self.site, self.thread, self.time_ns, self.live = (
            grown(one, count)
            for one in (self.size, self.site, self.thread, self.time_ns, self.live)
        )
        # If an index is repeated, numpy keeps the last value.
        self.size[rows["object"]] = rows["size"]
        self.site[rows["object"]] = rows["site"]
        self.thread[rows["object"]] = rows["thread"]
        self.time_ns[rows["object"]] = rows["time_ns"]
        self.live[rows["object"]] = rows["kind"] != lib.SW_OP_FREE


# --- slices ---------------------------------------------------------------------------------------

_ALLOC, _FREE, _THREAD_END = lib.SW_OP_ALLOC, lib.SW_OP_FREE, lib.SW_OP_THREAD_END
_REALLOC = lib.SW_OP_REALLOC


def slice_ops(ops: NDArray[np.void], first: int, last: int) -> NDArray[np.void]:
    """Return operations `first` to `last` - 1, preceded by allocations of the live objects.

    The allocations are in the order in which these objects were last allocated or resized. They
    have that operation's size, thread, site, alignment and flags, and the time of operation
    `first`. Objects and threads are renumbered if a number would not be smaller than the
    number of operations. The end of a thread that does nothing else in the slice is omitted.
    """
    part = np.array(ops[first:last], OPS_DTYPE)
    before = _live(ops[:first])
    before["kind"] = _ALLOC
    if len(part):
        before["time_ns"] = part["time_ns"][0]
    found = np.concatenate([before, part])
    found = found[_has_work(found)]
    for name in ("object", "thread"):
        if len(found) and found[name].max() >= len(found):
            events = found["kind"] != _THREAD_END if name == "object" else slice(None)
            found[name][events] = np.unique(found[name][events], return_inverse=True)[1]
    return found


def own_ops(ops: NDArray[np.void], first: int, last: int) -> NDArray[np.void]:
    """Return operations `first` to `last` - 1 on objects that are allocated among them.

    If an object that was live before is resized, that counts as its allocation. Frees of other
    objects that were live before are omitted. Objects and threads are renumbered.
    """
    part = np.array(ops[first:last], OPS_DTYPE)
    events = np.flatnonzero(part["kind"] != _THREAD_END)
    _, at = np.unique(part["object"][events], return_index=True)
    begins = events[at]
    resized = begins[part["kind"][begins] == _REALLOC]
    part["kind"][resized] = _ALLOC
    kept = np.ones(len(part), bool)
    kept[begins[part["kind"][begins] == _FREE]] = False
    found = part[kept]
    found = found[_has_work(found)]
    events = np.flatnonzero(found["kind"] != _THREAD_END)
    if len(found):
        found["object"][events] = np.unique(found["object"][events], return_inverse=True)[1]
        found["thread"] = np.unique(found["thread"], return_inverse=True)[1]
    return found


def _live(ops: NDArray[np.void]) -> NDArray[np.void]:
    """Return the last operation on each object that is live at the end, in order."""
    rows = np.flatnonzero(ops["kind"] != _THREAD_END)
    _, backwards = np.unique(ops["object"][rows][::-1], return_index=True)
    latest = np.sort(rows[len(rows) - 1 - backwards])
    return np.array(ops[latest[ops["kind"][latest] != _FREE]], OPS_DTYPE)


def _has_work(ops: NDArray[np.void]) -> NDArray[np.bool_]:
    """Mark all operations except ends of threads without an earlier operation."""
    ends = np.flatnonzero(ops["kind"] == _THREAD_END)
    kept = np.ones(len(ops), bool)
    if not len(ends):
        return kept
    threads, first = np.unique(ops["thread"][ops["kind"] != _THREAD_END], return_index=True)
    places = np.flatnonzero(ops["kind"] != _THREAD_END)[first]
    began = dict(zip(threads.tolist(), places.tolist(), strict=True))
    for end in ends.tolist():
        kept[end] = began.get(int(ops["thread"][end]), len(ops)) < end
    return kept
