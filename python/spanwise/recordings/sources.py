# SPDX-License-Identifier: Apache-2.0
"""Sources of operations: a recording's file or an array, readable any number of times."""

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
        self.flags = int(lib.SW_TRACE_VALID_PREFIX) if valid_prefix else 0
        self._raw = _lib.c_path(path)

    def open(self) -> Owned:
        """Return a C reader, which is closed with its last reference."""
        out = ffi.new("sw_trace **")
        check(lib.sw_trace_open(self._raw, self.flags, out), self.path)
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
