# SPDX-License-Identifier: Apache-2.0
"""A part of a recording is made a possible history of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spanwise._lib import OPS_DTYPE, lib

_ALLOC, _FREE, _END = lib.SW_OP_ALLOC, lib.SW_OP_FREE, lib.SW_OP_THREAD_END
_REALLOC = lib.SW_OP_REALLOC


def slice_ops(ops: NDArray[np.void], first: int, last: int) -> NDArray[np.void]:
    """Operations `first` to `last` - 1, after an allocation of each object that is live then.

    The allocations come in the order in which these objects were last allocated or resized; they
    have that operation's size, thread, site, alignment and flags, and the time of operation
    `first`. Objects and threads are numbered anew where their numbers would be no smaller than the
    number of operations. The end of a thread that does nothing else in the slice is left out.
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
            events = found["kind"] != _END if name == "object" else slice(None)
            found[name][events] = np.unique(found[name][events], return_inverse=True)[1]
    return found


def own_ops(ops: NDArray[np.void], first: int, last: int) -> NDArray[np.void]:
    """Operations `first` to `last` - 1 on objects that are allocated among them.

    An object that was live before and is resized counts as allocated there; its free, and those of
    others that were live before, are left out. Objects and threads are numbered anew.
    """
    part = np.array(ops[first:last], OPS_DTYPE)
    events = np.flatnonzero(part["kind"] != _END)
    _, at = np.unique(part["object"][events], return_index=True)
    begins = events[at]
    resized = begins[part["kind"][begins] == _REALLOC]
    part["kind"][resized] = _ALLOC
    kept = np.ones(len(part), bool)
    kept[begins[part["kind"][begins] == _FREE]] = False
    found = part[kept]
    found = found[_has_work(found)]
    events = np.flatnonzero(found["kind"] != _END)
    if len(found):
        found["object"][events] = np.unique(found["object"][events], return_inverse=True)[1]
        found["thread"] = np.unique(found["thread"], return_inverse=True)[1]
    return found


def _live(ops: NDArray[np.void]) -> NDArray[np.void]:
    """The last operation on each object that is live at the end, in the order of the operations."""
    rows = np.flatnonzero(ops["kind"] != _END)
    _, backwards = np.unique(ops["object"][rows][::-1], return_index=True)
    latest = np.sort(rows[len(rows) - 1 - backwards])
    return np.array(ops[latest[ops["kind"][latest] != _FREE]], OPS_DTYPE)


def _has_work(ops: NDArray[np.void]) -> NDArray[np.bool_]:
    """Marks all operations but ends of threads without an earlier operation."""
    ends = np.flatnonzero(ops["kind"] == _END)
    kept = np.ones(len(ops), bool)
    if not len(ends):
        return kept
    threads, first = np.unique(ops["thread"][ops["kind"] != _END], return_index=True)
    places = np.flatnonzero(ops["kind"] != _END)[first]
    began = dict(zip(threads.tolist(), places.tolist(), strict=True))
    for end in ends.tolist():
        kept[end] = began.get(int(ops["thread"][end]), len(ops)) < end
    return kept
