# SPDX-License-Identifier: Apache-2.0
"""Follow a raw recording, and its open blocks, while the program runs.

    areas (src/trace/area.h) ---new events of each thread's open block---+
    raw .swt --new blocks--> RAW: events that were not seen in an area --+--> `read`
                             META, SITES, MODULES --> the C reader ---------> `call_sites`

The program is not stopped. Areas are read before the file: a block that is written in between is
found there, and its events that were seen before are skipped. So each event is read exactly once.
Events of different threads may arrive late, in any order; their stamps order them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spanwise import errors
from spanwise.recordings.finish import salvage
from spanwise.recordings.names import FrameNames, build_ids_of
from spanwise.recordings.sources import FileSource, read_modules, read_sites

EVENTS_DTYPE = np.dtype(
    [("address", "u8"), ("stamp", "u8"), ("size", "u8"), ("site", "u4"), ("is_alloc", "?")]
)
"""An allocation or a free. Stamps order the events of all threads."""

_FILE_HEADER_BYTES = 64
_BLOCK = struct.Struct("<4sBBHIIIIQQQ")
_META, _CLOCK, _RAW, _SITES, _MODULES, _END = range(1, 7)
_READ_MAX = 1 << 24
"""Bytes of a recording that are read at once."""

_AREA = np.dtype(
    [
        *(("magic", "u8"), ("area_bytes", "u4"), ("kind", "u4"), ("base_stamp", "u8")),
        *(("thread", "u4"), ("used", "u4"), ("rest", "u4", 8)),
    ]
)
_AREA_MAGIC, _AREA_THREAD = 0x3141455241545753, 2
_AREA_BYTES_MAX = 1 << 20
_EVENT = np.dtype(
    [("word", "u8"), ("size", "u8"), ("ticks", "u8"), ("stamp", "u4"), ("site", "u4")]
)
_EVENTS_MAX = 4096
_EVENTS_AT_ONCE = 256
_TRIES = 3

_FREE, _REALLOC_OLD, _THREAD_END = 2, 3, 5
_HAS_SIZE = np.array([True, True, False, False, True, False, False, False])


@dataclass(frozen=True)
class CallSites:
    """Call sites that are known so far.

    Attributes:
        frames: of each site, as in History.site_frames.
        build_ids: of the modules, by path.
        unresolved: sites with an address in no module that the recorder has written so far.
    """

    frames: Mapping[int, tuple[str, ...]]
    build_ids: Mapping[str, str]
    unresolved: frozenset[int]


class Follower:
    """Reads what a program has appended to its raw recording since the last time.

    Attributes:
        images: how often the recording was begun; above 1 after exec.
        until: a stamp; all events up to it were read, if their threads had published them.
    """

    def __init__(self, raw: Path, areas: Path) -> None:
        self.images = 0
        self._raw = raw
        self._areas = areas / f"{raw.name}.areas"
        self._file: tuple[int, int] | None = None
        self._begin()

    def _begin(self) -> None:
        self._at = _FILE_HEADER_BYTES
        self._notes = b""  # the file header, and the blocks that are not events
        self._sites: dict[int, tuple[str, ...]] = {}
        self._unresolved: frozenset[int] = frozenset()
        self.until = 0
        self._build_ids: dict[str, str] = {}
        self._seen: dict[tuple[int, int], int] = {}  # events of open blocks, by thread and stamp
        self._written: dict[int, int] = {}  # the last block of a thread in the file, by its stamp

    def read(self) -> NDArray[np.void]:
        """Return the new events, rows of EVENTS_DTYPE in no order.

        There are none before the recording begins.

        Raises:
            TraceFormatError: the recording is damaged.
        """
        try:
            with self._raw.open("rb", buffering=0) as file:
                now = os.fstat(file.fileno())
                if (now.st_dev, now.st_ino) != self._file:
                    self._file = now.st_dev, now.st_ino
                    self.images += 1
                    self._begin()
                found = self._read_twice(file.fileno())
                after = self._raw.stat()
        except FileNotFoundError:
            return np.empty(0, EVENTS_DTYPE)
        if (
            after.st_dev,
            after.st_ino,
        ) != self._file:  # exec: the areas may be those of the new one
            return np.empty(0, EVENTS_DTYPE)
        return np.concatenate(found) if found else np.empty(0, EVENTS_DTYPE)

    def _read_twice(self, file: int) -> list[NDArray[np.void]]:
        """Return the new events.

        Threads are read one after the other, so of the last one there are later events than of the
        first one. When all are read again, nothing is missing before the last event of the first
        time.
        """
        found = [*self._open_events(), *self._written_events(file)]
        self.until = max([self.until, *(int(each["stamp"].max()) for each in found)])
        return [*found, *self._open_events(), *self._written_events(file)]

    # --- the file ---

    def _written_events(self, file: int) -> Iterator[NDArray[np.void]]:
        """Yield the new events of the file's whole blocks."""
        if not self._notes:
            self._notes = os.pread(file, _FILE_HEADER_BYTES, 0)
            if len(self._notes) < _FILE_HEADER_BYTES:
                self._notes = b""
                return
        while True:
            data = os.pread(file, _READ_MAX, self._at)
            used = yield from self._blocks(data)
            self._at += used
            if used == 0 or len(data) < _READ_MAX:
                return

    def _blocks(self, data: bytes) -> Generator[NDArray[np.void], None, int]:
        """Yield the events of whole blocks; return their bytes.

        A program that calls exec writes CLOCK and END, and replaces them if exec fails. So the
        bytes end before a CLOCK block that is the last, or that END follows.
        """
        at = done = 0
        while len(data) - at >= _BLOCK.size:
            magic, kind, codec, _, stored, _, count, thread, first, _, _ = _BLOCK.unpack_from(
                data, at
            )
            if magic != b"SWTB" or codec != 0:
                raise errors.TraceFormatError(f"{self._raw.name}: byte {self._at + at}: no block")
            end = at + _BLOCK.size + stored
            if end > len(data) or kind == _END:
                break
            if kind == _RAW:
                payload = np.frombuffer(data, np.uint8, stored, at + _BLOCK.size)
                seen = self._seen.pop((thread, first), 0)
                self._written[thread] = first
                if seen < count:
                    yield decode_raw(payload, count, first)[seen:]
            elif kind != _CLOCK:
                self._notes += data[at:end]
            at = end
            if kind != _CLOCK:
                done = at
        return done

    # --- areas ---

    def _open_events(self) -> Iterator[NDArray[np.void]]:
        """Yield the events of the threads' open blocks that were not read before."""
        try:
            file = os.open(self._areas, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # the program has ended, or has no areas
        try:
            heads = self._heads(file)
            for at, head in heads:
                yield from self._new_events(file, at, head)
        finally:
            os.close(file)
        threads = {int(head["thread"]) for _, head in heads}
        self._written = {one: self._written[one] for one in threads & self._written.keys()}

    def _heads(self, file: int) -> list[tuple[int, np.void]]:
        """Return the offsets and heads of the threads' areas."""
        first = _head_at(file, 0)
        if first is None or not _AREA.itemsize < first["area_bytes"] <= _AREA_BYTES_MAX:
            return []
        step = int(first["area_bytes"])
        places = range(step, os.fstat(file).st_size, step)
        each = [(at, _head_at(file, at)) for at in places]
        return [(at, one) for at, one in each if one is not None and one["kind"] == _AREA_THREAD]

    def _new_events(self, file: int, at: int, head: np.void) -> Iterator[NDArray[np.void]]:
        """Yield the new events of an area, unless the thread begins another block meanwhile."""
        thread, base = int(head["thread"]), int(head["base_stamp"])
        if self._written.get(thread) == base:
            return  # the block is in the file, and not emptied yet
        seen = self._seen.get((thread, base), 0)
        count = _count_events(file, at, seen)
        # An event is complete once its word is seen, so its other fields are read afterwards.
        events = _events_at(file, at, seen, count)
        again = _head_at(file, at)
        if again is None or again["base_stamp"] != base or again["thread"] != thread:
            return
        if count == 0 or not events["word"].all():  # the block was written and emptied meanwhile
            return
        self._seen[thread, base] = seen + count
        kind = (events["word"] >> np.uint64(48) & np.uint64(0xFF)).astype(np.uint8)
        address = events["word"] & np.uint64((1 << 48) - 1)
        yield _rows(kind, address, base + events["stamp"].astype(np.uint64), events)

    # --- call sites ---

    @property
    def notes_bytes(self) -> int:
        """Bytes of the file's blocks that are not events; more: there may be new modules."""
        return len(self._notes)

    def call_sites(self) -> CallSites:
        """Return the call sites of all events that were read, and perhaps more."""
        folder = self._raw.parent / "follow"
        folder.mkdir(exist_ok=True)
        look = folder / self._raw.name
        look.write_bytes(self._notes)
        (folder / f"{look.name}.areas").write_bytes(self._pending_sites())
        salvage(look, folder)
        trace = FileSource(look, valid_prefix=True).open()
        modules = read_modules(trace)
        names = FrameNames(modules)
        for site, addresses in read_sites(trace).items():
            if site not in self._sites or site in self._unresolved:
                self._sites[site] = tuple(map(names.name, addresses))
        self._unresolved = frozenset(
            site
            for site, frames in self._sites.items()
            if any(frame.startswith("0x") for frame in frames)
        )
        self._build_ids = dict(build_ids_of(modules))
        return CallSites(dict(self._sites), self._build_ids, self._unresolved)

    def _pending_sites(self) -> bytes:
        """Return the area of the call sites that are not in the file yet."""
        try:
            with self._areas.open("rb", buffering=0) as file:
                for _ in range(_TRIES):
                    before = _head_at(file.fileno(), 0)
                    if before is None or before["area_bytes"] > _AREA_BYTES_MAX:
                        return b""
                    first = os.pread(file.fileno(), 4, _AREA.itemsize)
                    data = bytearray(os.pread(file.fileno(), int(before["area_bytes"]), 0))
                    after = _head_at(file.fileno(), 0)
                    same = os.pread(file.fileno(), 4, _AREA.itemsize) == first
                    if same and after is not None and after["used"] >= before["used"]:
                        data[: _AREA.itemsize] = before.tobytes()
                        return bytes(data)
        except FileNotFoundError:
            pass
        return b""


# --- areas ----------------------------------------------------------------------------------------


def _head_at(file: int, at: int) -> np.void | None:
    """Return the head of an area that is ready."""
    data = os.pread(file, _AREA.itemsize, at)
    if len(data) < _AREA.itemsize:
        return None
    head: np.void = np.frombuffer(data, _AREA)[0]
    return head if head["magic"] == _AREA_MAGIC else None


def _events_at(file: int, area: int, first: int, count: int) -> NDArray[np.void]:
    data = os.pread(file, count * _EVENT.itemsize, area + _AREA.itemsize + first * _EVENT.itemsize)
    return np.frombuffer(data, _EVENT, len(data) // _EVENT.itemsize)


def _count_events(file: int, area: int, first: int) -> int:
    """Return the events from `first` on: they end before one whose word is 0."""
    count = 0
    while first + count < _EVENTS_MAX:
        wanted = min(_EVENTS_AT_ONCE, _EVENTS_MAX - first - count)
        words = _events_at(file, area, first + count, wanted)["word"]
        empty = np.flatnonzero(words == 0)
        if len(empty) or len(words) < wanted:
            return count + (int(empty[0]) if len(empty) else len(words))
        count += wanted
    return count


# --- RAW blocks -----------------------------------------------------------------------------------


def decode_raw(payload: NDArray[np.uint8], count: int, first: int) -> NDArray[np.void]:
    """Return a row for each event of a RAW block (docs/design/trace.md); ends of threads are frees.

    Raises:
        TraceFormatError: its columns do not have the lengths that its tags require.
    """
    head = 36
    flags, shift = int(payload[0]), int(payload[2])
    lengths = payload[16:head].view("<u4").astype(int).tolist()
    tags = payload[head : head + count]
    starts = np.cumsum([head + count, *lengths]).tolist()
    if flags & 1 or starts[-1] != len(payload):
        raise errors.TraceFormatError("a block of events is malformed")
    address, size, _, stamp, site = (_varints(payload[a:b]) for a, b in pairwise(starts))
    kind = (tags & 7).astype(np.uint8)
    has_size = _HAS_SIZE[kind]
    numbers = np.cumsum(has_size.astype(int) + (tags >> 3))
    if len(address) != count or len(size) != numbers[-1]:
        raise errors.TraceFormatError("a block of events is malformed")
    steps = (address >> np.uint64(1)) ^ (np.uint64(0) - (address & np.uint64(1)))
    rows = np.zeros(count, _EVENT)
    rows["size"][has_size] = size[numbers[has_size] - 1]
    rows["site"] = site if flags & 4 else 0
    stamps = np.cumsum(stamp) if flags & 2 else np.arange(count, dtype=np.uint64)
    return _rows(kind, np.cumsum(steps) << np.uint64(shift), np.uint64(first) + stamps, rows)


def _varints(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    ends = np.flatnonzero(data < 0x80)
    if len(ends) == 0:
        return np.empty(0, np.uint64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    data = data[: ends[-1] + 1]
    place = np.arange(len(data)) - np.repeat(starts, ends - starts + 1)
    parts = (data & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    found: NDArray[np.uint64] = np.add.reduceat(parts, starts)
    return found


def _rows(
    kind: NDArray[np.uint8],
    address: NDArray[np.uint64],
    stamp: NDArray[np.uint64],
    rest: NDArray[np.void],
) -> NDArray[np.void]:
    """Return rows of EVENTS_DTYPE; the end of a thread is a free of address 0, which has no object.

    A reallocation is a free and an allocation, as the recorder samples it.
    """
    rows = np.empty(len(kind), EVENTS_DTYPE)
    rows["address"] = np.where(kind == _THREAD_END, np.uint64(0), address)
    rows["stamp"] = stamp
    rows["size"] = rest["size"]
    rows["site"] = rest["site"]
    rows["is_alloc"] = _HAS_SIZE[kind & 7]
    return rows
