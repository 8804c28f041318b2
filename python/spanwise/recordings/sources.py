# SPDX-License-Identifier: Apache-2.0
"""Operations: sources of them (a recording's file, an array), checks, sums and slices of arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import OPS_DTYPE, check, ffi, lib
from spanwise._owner import Owned
from spanwise.errors import InvalidError

ARRAY_BATCH = 1 << 19
"""Operations of an array per C call, about ten milliseconds of work."""


@dataclass(frozen=True)
class Batch:
    """Consecutive operations in C memory, valid until the next batch."""

    ops: Any  # const sw_op *
    count: int

    def from_(self, start: int) -> Batch:
        """Return the batch without its first `start` operations."""
        return Batch(self.ops + start, self.count - start)

    def first(self, count: int) -> Batch:
        """Return the batch's first `count` operations."""
        return Batch(self.ops, count)

    def array(self) -> NDArray[np.void]:
        """Return a structured array that shares the batch's memory and its lifetime."""
        raw = ffi.buffer(self.ops, self.count * OPS_DTYPE.itemsize)
        return np.frombuffer(raw, OPS_DTYPE)


class Source(Protocol):
    """Operations that can be iterated any number of times."""

    def batches(self) -> Iterator[Batch]:
        """Return the operations from the first to the last."""
        ...

    def blocks(self, rows: int) -> Iterator[NDArray[np.void]]:
        """Yield the operations as arrays of at most `rows` rows, which the caller may keep."""
        ...


class ArraySource:
    """Operations in an array of OPS_DTYPE."""

    def __init__(self, ops: NDArray[np.void]) -> None:
        self.ops = ops

    def batches(self) -> Iterator[Batch]:
        """Yield the operations from the first to the last."""
        start = _lib.pointer(self.ops, "const sw_op *")
        for first in range(0, len(self.ops), ARRAY_BATCH):
            yield Batch(start + first, min(ARRAY_BATCH, len(self.ops) - first))

    def blocks(self, rows: int) -> Iterator[NDArray[np.void]]:
        """Yield views of the array of at most `rows` rows."""
        for first in range(0, len(self.ops), rows):
            yield self.ops[first : first + rows]


class FileSource:
    """Operations in a `.swt` file. Each pass opens the file, so passes may run concurrently."""

    def __init__(self, path: str | os.PathLike[str], valid_prefix: bool) -> None:
        self.path = os.fspath(path)
        self.valid_prefix = valid_prefix
        self._flags = int(lib.SW_TRACE_SAMPLED)  # Python has a reader of its own for samples
        self._flags |= int(lib.SW_TRACE_VALID_PREFIX) if valid_prefix else 0
        self._raw = _lib.c_path(path)

    def open(self) -> Owned:
        """Return a C reader, which is closed with its last reference."""
        out = ffi.new("sw_trace **")
        check(lib.sw_trace_open(self._raw, self._flags, out), self.path)
        return Owned(out[0], lib.sw_trace_close)

    def batches(self) -> Iterator[Batch]:
        """Yield the operations from the first to the last."""
        trace = self.open()
        ops, count = ffi.new("const sw_op **"), ffi.new("size_t *")
        while True:
            check(lib.sw_trace_next(trace.c, ops, count), self.path)
            if count[0] == 0:
                return
            yield Batch(ops[0], int(count[0]))

    def blocks(self, rows: int) -> Iterator[NDArray[np.void]]:
        """Yield arrays of at most `rows` rows; operations are decoded into their memory."""
        trace = self.open()
        count = ffi.new("size_t *")
        while True:
            block = np.empty(rows, OPS_DTYPE)
            status = lib.sw_trace_read(trace.c, _lib.pointer(block, "sw_op *"), rows, count)
            check(status, self.path)
            if count[0]:
                yield block[: count[0]]
            if count[0] < rows:
                return


class OneThread:
    """The same operations, all in one thread."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def batches(self) -> Iterator[Batch]:
        """Yield the operations without ends of threads."""
        for batch in self._source.batches():
            rows = batch.array()
            ops = rows[rows["kind"] != lib.SW_OP_THREAD_END]
            ops["thread"] = 0
            yield Batch(_lib.pointer(ops, "const sw_op *"), len(ops))

    def blocks(self, rows: int) -> Iterator[NDArray[np.void]]:
        """Yield the same as arrays."""
        for block in self._source.blocks(rows):
            ops = block[block["kind"] != lib.SW_OP_THREAD_END]
            ops["thread"] = 0
            yield ops


class Module(NamedTuple):
    """A mapped range of a module of the recorded program."""

    start: int
    end: int
    bias: int
    path: str
    build_id: str


def read_info(trace: Owned) -> dict[str, int]:
    """Return the file header."""
    info = ffi.new("sw_trace_info *")
    lib.sw_trace_get_info(trace.c, info)
    return {name: int(value) for name, value in _lib.struct_dict(info).items()}


def read_summary(trace: Owned, path: str | None = None) -> dict[str, int]:
    """Return the totals of the recording."""
    summary = ffi.new("sw_trace_summary *")
    check(lib.sw_trace_get_summary(trace.c, summary), path)
    return {name: int(value) for name, value in _lib.struct_dict(summary).items()}


def read_meta(trace: Owned) -> list[tuple[str, str]]:
    """Return the metadata as pairs of strings, in the order of the file."""
    key, value = ffi.new("const char **"), ffi.new("const char **")
    pairs = []
    for i in range(lib.sw_trace_meta_count(trace.c)):
        lib.sw_trace_meta_at(trace.c, i, key, value)
        pairs.append((_lib.text(key[0]), _lib.text(value[0])))
    return pairs


def sample_bytes_of(meta: Sequence[tuple[str, str]]) -> int:
    """Return the mean bytes between sample points; 0: all objects are recorded."""
    return next((int(value) for key, value in meta if key == "sample_bytes"), 0)


def read_modules(trace: Owned) -> list[Module]:
    """Return the modules in the order of the file."""
    out = ffi.new("sw_trace_module *")
    modules = []
    for i in range(lib.sw_trace_module_count(trace.c)):
        lib.sw_trace_module_at(trace.c, i, out)
        count = out.build_id_bytes if out.build_id != ffi.NULL else 0
        build_id = bytes(ffi.buffer(out.build_id, count)).hex() if count else ""
        modules.append(
            Module(int(out.start), int(out.end), int(out.bias), _lib.text(out.path), build_id)
        )
    return modules


def read_sites(trace: Owned) -> dict[int, tuple[int, ...]]:
    """Return the return addresses of call sites by id, innermost caller first."""
    addresses = ffi.new("const uint64_t **")
    sites = {}
    for place in range(lib.sw_trace_site_count(trace.c)):
        site = int(lib.sw_trace_site_at(trace.c, place, addresses))
        depth = lib.sw_trace_site(trace.c, site, addresses)
        sites[site] = tuple(int(addresses[0][i]) for i in range(depth))
    return sites


def write_ops(
    path: str | os.PathLike[str],
    blocks: Iterator[NDArray[np.void]],
    meta: Sequence[tuple[str, str]] = (),
    sites: Sequence[tuple[int, ...]] = (),
    modules: Sequence[Module] = (),
) -> None:
    """Writes an ordered recording atomically."""
    out = ffi.new("sw_trace_writer **")
    check(lib.sw_trace_create(_lib.c_path(path), out), path)
    try:
        for key, value in meta:
            check(lib.sw_trace_set_meta(out[0], os.fsencode(key), os.fsencode(value)))
        for site, frames in enumerate(sites, 1):
            addresses = ffi.new("uint64_t[]", frames)
            check(lib.sw_trace_add_site(out[0], site, addresses, len(frames)), path)
        for module in modules:
            _add_module(out[0], module, path)
        for block in blocks:
            rows = np.ascontiguousarray(block)
            status = lib.sw_trace_append(out[0], _lib.pointer(rows, "const sw_op *"), len(rows))
            check(status, path)
    except BaseException:
        lib.sw_trace_abort(out[0])
        raise
    check(lib.sw_trace_commit(out[0], ffi.NULL), path)


def _add_module(writer: Any, module: Module, path: str | os.PathLike[str]) -> None:
    name = ffi.new("char[]", os.fsencode(module.path))
    raw_id = bytes.fromhex(module.build_id)
    build_id = ffi.from_buffer("uint8_t[]", raw_id)
    row = ffi.new("sw_trace_module *")
    row.start, row.end, row.bias, row.path = module.start, module.end, module.bias, name
    row.build_id, row.build_id_bytes = build_id, len(raw_id)
    check(lib.sw_trace_add_module(writer, row), path)


# --- arrays of operations -------------------------------------------------------------------------

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
        ends = block["kind"] == lib.SW_OP_THREAD_END
        rows = block[~ends] if ends.any() else block
        if not len(rows):
            return
        objects = rows["object"].astype(np.int64)  # numpy would convert it for each column
        count = int(objects.max()) + 1
        self.size, self.site, self.thread, self.time_ns, self.live = (
            grown(one, count)
            for one in (self.size, self.site, self.thread, self.time_ns, self.live)
        )
        # If an index is repeated, numpy keeps the last value.
        self.size[objects] = rows["size"]
        self.site[objects] = rows["site"]
        self.thread[objects] = rows["thread"]
        self.time_ns[objects] = rows["time_ns"]
        self.live[objects] = rows["kind"] != lib.SW_OP_FREE


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
