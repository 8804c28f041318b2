# SPDX-License-Identifier: Apache-2.0
"""What CPython's own allocator would hold for the small objects of a recording.

Recordings are made with PYTHONMALLOC=malloc, so that all objects are seen. Users run pymalloc,
which serves requests of up to 512 bytes from arenas and returns an arena only when it is empty. The
model in C replays it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanwise import _lib
from spanwise._lib import check, dtype_of, ffi, lib
from spanwise._owner import Owned
from spanwise.recordings.live_sites import distinct
from spanwise.recordings.sources import Batch, Source
from spanwise.results.jobs import Step

POINTS = 512
"""A series has a point at so many equal numbers of operations, and at as many steps of time."""
LASTS = 128
"""What lasts, lasts this part of the run,"""
STEADY = 15 / 16
"""and until the next point at least this part of the requested bytes stays."""
_VERSION = re.compile(r"(?:lib)?python3\.(\d+)[a-z]*(?:\.so[0-9.]*)?")
_EXTENSION = re.compile(r"\.(cpython-3\d+|abi3)[-\w]*\.so")
_PYTHON = re.compile(r"(lib)?python3?[0-9.]*[a-z]*(\.so[0-9.]*)?")


class Layout(NamedTuple):
    """Sizes of arenas and pools.

    Attributes:
        pools: usable pools of an arena. It has one less than fit if its address is not a multiple
            of pool_bytes; in 3 of 4 processes it is not.
    """

    arena_bytes: int
    pool_bytes: int
    pools: int


def layout_of(paths: Iterable[str]) -> Layout:
    """Return the layout of the CPython with these modules; that of 3.10 if it is not known."""
    names = (_VERSION.fullmatch(path.rpartition("/")[2]) for path in paths)
    if any(int(name[1]) < 10 for name in names if name):
        return Layout(1 << 18, 1 << 12, 64)
    return Layout(1 << 20, 1 << 14, 63)


def outside_of(frames: Mapping[int, tuple[str, ...]]) -> NDArray[np.uint8]:
    """Mark the call sites in libraries that call malloc themselves, which do not use pymalloc."""
    found = np.zeros(max(frames, default=0) + 1, np.uint8)
    for site, names in frames.items():
        if names and "+0x" in names[0]:
            name = names[0].rpartition("+0x")[0].rpartition("/")[2]
            found[site] = not (_PYTHON.fullmatch(name) or _EXTENSION.search(name))
    return found


class PinningSite(NamedTuple):
    """A call site whose blocks keep arenas.

    Attributes:
        site: its number; the lowest of sites with equal names.
        blocks: live there.
        requested_bytes: by these.
        kept_bytes: its share of what the arenas keep without need.
    """

    site: int
    blocks: int
    requested_bytes: int
    kept_bytes: int


class Point(NamedTuple):
    """What the arenas hold after an operation."""

    op: int
    time_ns: int
    arena_bytes: int
    resident_bytes: int
    requested_bytes: int
    blocks: int

    @property
    def waste_bytes(self) -> int:
        """Resident bytes that were not requested."""
        return self.resident_bytes - self.requested_bytes


class Model:
    """The arenas, while they are replayed.

    Operations whose numbers are in `aside`, ascending, place their objects elsewhere.
    """

    def __init__(
        self,
        layout: Layout,
        outside: NDArray[np.uint8],
        aside: NDArray[np.uint64] | None = None,
    ) -> None:
        self.layout = layout
        self._kept = outside, np.zeros(0, np.uint64) if aside is None else aside
        options = ffi.new("sw_pymalloc_options *")
        options.arena_bytes, options.pool_bytes, options.pools = layout
        options.outside, options.outside_count = _lib.pointer(outside, "uint8_t *"), len(outside)
        options.aside = _lib.pointer(self._kept[1], "uint64_t *")
        options.aside_count = len(self._kept[1])
        out = ffi.new("sw_pymalloc **")
        check(lib.sw_pymalloc_create(options, out))
        self._model = Owned(out[0], lib.sw_pymalloc_destroy)
        self._state = ffi.new("sw_pymalloc_state *")
        self.time_ns = 0

    def run(self, batch: Batch) -> None:
        """Replays operations."""
        if batch.count:
            check(lib.sw_pymalloc_run(self._model.c, batch.ops, batch.count))
            self.time_ns = int(batch.ops[batch.count - 1].time_ns)

    def point(self) -> Point:
        """Return what the arenas hold now."""
        lib.sw_pymalloc_get_state(self._model.c, self._state)
        now = self._state
        return Point(
            int(now.ops),
            self.time_ns,
            int(now.arena_bytes),
            int(now.resident_bytes),
            int(now.requested_bytes),
            int(now.blocks),
        )

    def blocks(self) -> NDArray[np.void]:
        """Return the live blocks, by object."""
        count = lib.sw_pymalloc_blocks(self._model.c, ffi.NULL, 0)
        rows = np.zeros(count, dtype_of("sw_pymalloc_block"))
        lib.sw_pymalloc_blocks(self._model.c, _lib.pointer(rows, "sw_pymalloc_block *"), count)
        return rows


def series(source: Source, model: Model, count: int, end_ns: int, step: Step) -> list[Point]:
    """Replay all operations; return points at equal numbers and times of them, and the end."""
    every, step_ns = max(-(-count // POINTS), 1), max(end_ns // POINTS, 1)
    points: list[Point] = []
    done = 0
    for batch in source.batches():
        cuts = _cuts(batch, done, every, step_ns, model.time_ns)
        for first, last in pairwise([0, *cuts, batch.count]):
            if first:
                points.append(model.point())
            model.run(batch.from_(first).first(last - first))
        done += batch.count
        step(batch.count)
    return [*points, model.point()]


def _cuts(batch: Batch, done: int, every: int, step_ns: int, before_ns: int) -> list[int]:
    """Return where to stop in a batch: after multiples of `every` operations and steps of time."""
    numbers = {*range(-done % every, batch.count, every)}
    if before_ns // step_ns != int(batch.ops[batch.count - 1].time_ns) // step_ns:
        steps = batch.array()["time_ns"] // np.uint64(step_ns)
        numbers.update(np.flatnonzero(np.diff(steps, prepend=steps[:1])).tolist())
    return sorted(numbers - {0})


def replayed_to(source: Source, model: Model, op: int, step: Step) -> None:
    """Replays the first `op` operations."""
    left = op
    for batch in source.batches():
        model.run(batch.first(min(left, batch.count)))
        step(min(left, batch.count))
        left -= min(left, batch.count)
        if left == 0:
            return


def lasting(points: Sequence[Point], end_ns: int) -> tuple[Point, int]:
    """Return the point of most waste that lasts, and until when.

    A point's waste holds until the next point. Of all intervals of 1 / LASTS of the run in which
    the program does not free most of its objects, take the one with the highest least waste, and
    the point with the least waste in it. Without any, take the point of most requested bytes.
    """
    times = [point.time_ns for point in points[1:]] + [max(end_ns, points[-1].time_ns)]
    stays = [b.requested_bytes >= STEADY * a.requested_bytes for a, b in pairwise(points)]
    stays.append(True)
    best: Point | None = None
    for first, start in enumerate(points):
        least = start
        for i in range(first, len(points)):
            least = min(least, points[i], key=lambda one: one.waste_bytes)
            if not stays[i] or (best is not None and least.waste_bytes <= best.waste_bytes):
                break
            if times[i] - start.time_ns >= times[-1] / LASTS:
                best = least
                break
    if best is None:
        best = max(points, key=lambda point: point.requested_bytes)
    after = points[points.index(best) :]
    less = (point.time_ns for point in after if 4 * point.waste_bytes < 3 * best.waste_bytes)
    return best, next(less, times[-1])


def pinned_by(
    blocks: NDArray[np.void], sites: NDArray[np.int64], resident_bytes: int
) -> list[PinningSite]:
    """Divide what arenas keep without need among the blocks in them; return sites, most first.

    Every arena is taken to have an equal part of the resident bytes. What its blocks did not
    request is divided evenly among them, because any of them keeps the arena.
    """
    seen, place = distinct(sites)
    arena = np.unique(blocks["arena"], return_inverse=True)[1]
    live = np.bincount(arena)
    free = resident_bytes / max(len(live), 1) - np.bincount(arena, blocks["size"])
    kept = np.bincount(place, (np.maximum(free, 0) / live)[arena], len(seen))
    counts = np.bincount(place, minlength=len(seen))
    requested = np.bincount(place, blocks["size"], len(seen))
    order = np.argsort(-kept, kind="stable")
    return [
        PinningSite(int(seen[i]), int(counts[i]), int(requested[i]), int(kept[i])) for i in order
    ]


def packed_bytes(blocks: NDArray[np.void], layout: Layout) -> int:
    """Return the resident bytes of full pools with these blocks."""
    slots, counts = np.unique(blocks["slot_bytes"], return_counts=True)
    fit = (layout.pool_bytes - lib.SW_PYMALLOC_HEADER_BYTES) // slots.astype(np.int64)
    full, left = np.divmod(counts, fit)
    part = np.where(left, -(-(left * slots + lib.SW_PYMALLOC_HEADER_BYTES) // 4096) * 4096, 0)
    return int((full * layout.pool_bytes + part).sum())
