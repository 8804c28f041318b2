# SPDX-License-Identifier: Apache-2.0
"""What plain python3 holds: CPython's own allocator, by simulation (recordings/pymalloc.py)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from spanwise import _format
from spanwise._lib import lib
from spanwise.recordings.process_memory import ProcessMemory, glibc_overhead
from spanwise.recordings.pymalloc import (
    Model,
    PinningSite,
    Point,
    lasting,
    layout_of,
    outside_of,
    packed_bytes,
    pinned_by,
    replayed_to,
    series,
)
from spanwise.recordings.recording import Recording
from spanwise.results.jobs import Step
from spanwise.results.rows import Result

PLAIN = "plain python3"
_SITES, _SHARE = 3, 0.1
"""So many call sites are named, with at least this share of what arenas keep."""

Merge = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Maps call sites to one of those with equal names."""


@dataclass(frozen=True)
class PythonHeap(Result):
    """The arenas of CPython's own allocator, by simulation.

    Attributes:
        time_ns: the moment when they keep most without need; the most that lasts for a 32nd of the
            run.
        op: operations until then.
        until_ns: until when at least three quarters as much is kept.
        arena_bytes: of all arenas at that moment.
        resident_bytes: of the pages in them that were written.
        requested_bytes: by the live blocks in them, which are objects of up to 512 bytes.
        blocks: the number of these.
        sites: who keeps the arenas, most bytes first; () if little is kept.
        saved_bytes: resident bytes that would be free at the moment if the blocks of these sites
            were in arenas of their own.
        peak_resident_bytes: the most in arenas, over the whole run.
        peak_requested_bytes: by the blocks in them at that moment.
        peak_rss_bytes: of the process at the recorded peak, with arenas in place of malloc's chunks
            for the same blocks; 0: not known.
    """

    time_ns: int
    op: int
    until_ns: int
    arena_bytes: int
    resident_bytes: int
    requested_bytes: int
    blocks: int
    sites: tuple[PinningSite, ...]
    saved_bytes: int
    peak_resident_bytes: int
    peak_requested_bytes: int
    peak_rss_bytes: int

    @property
    def waste_bytes(self) -> int:
        """Resident bytes at the moment that were not requested."""
        return self.resident_bytes - self.requested_bytes

    def __str__(self) -> str:
        return (
            f"{_format.size(self.resident_bytes)} in arenas for"
            f" {_format.size(self.requested_bytes)} in {_format.plural(self.blocks, 'block')},"
            f" {_format.seconds(self.time_ns)} after the start"
        )

    __repr__ = __str__


def python_heap_of(recording: Recording, merge: Merge, noise: int, step: Step) -> PythonHeap | None:
    """Return the arenas of a recording made with PYTHONMALLOC=malloc; None for others.

    Args:
        recording: the recording.
        merge: maps its call sites.
        noise: bytes; if less is kept, nobody is named.
        step: called with operations done.
    """
    if recording.switched_off[0] != "CPython" or not recording.events:
        return None
    paths = [os.path.realpath(recording.executable), *(one.path for one in recording.modules)]
    layout, outside = layout_of(paths), outside_of(recording.site_frames)
    end_ns = recording.summary.duration_ns
    points = series(recording.source, Model(layout, outside), len(recording), end_ns, step)
    most = max(points, key=lambda point: (point.resident_bytes, point.requested_bytes))
    best, until_ns = lasting(points, end_ns)
    sites: tuple[PinningSite, ...] = ()
    saved = 0
    if best.waste_bytes >= noise:
        sites, saved = _pins(recording, partial(Model, layout, outside), best, merge, step)
    return PythonHeap(
        time_ns=best.time_ns,
        op=best.op,
        until_ns=until_ns,
        arena_bytes=best.arena_bytes,
        resident_bytes=best.resident_bytes,
        requested_bytes=best.requested_bytes,
        blocks=best.blocks,
        sites=sites,
        saved_bytes=saved,
        peak_resident_bytes=most.resident_bytes,
        peak_requested_bytes=most.requested_bytes,
        peak_rss_bytes=_peak_rss(recording, outside, points),
    )


def _pins(
    recording: Recording, made: Callable[..., Model], at: Point, merge: Merge, step: Step
) -> tuple[tuple[PinningSite, ...], int]:
    """Return who keeps the arenas, and what is saved if their blocks are in arenas of their own."""
    model = made()
    replayed_to(recording.source, model, at.op, step)
    blocks = model.blocks()
    place = merge(blocks["site"].astype(np.int64))
    found = pinned_by(blocks, place, at.resident_bytes)
    whole = sum(one.kept_bytes for one in found)
    sites = tuple(one for one in found[:_SITES] if one.kept_bytes >= _SHARE * whole)
    moved = blocks[np.isin(place, [one.site for one in sites])]
    without = made(np.sort(moved["op"]))
    replayed_to(recording.source, without, at.op, step)
    left = without.point().resident_bytes + packed_bytes(moved, model.layout)
    return sites, max(at.resident_bytes - left, 0)


def _peak_rss(recording: Recording, outside: NDArray[np.uint8], points: list[Point]) -> int:
    """Estimate the peak RSS: the recorded one, with arenas in place of chunks of malloc."""
    memory: ProcessMemory | None = recording.memory
    if memory is None or not memory.covers_peak or not memory.peak_requested_bytes:
        return 0
    latest = recording.latest(memory.peak_op)
    sites, sizes = latest.site[latest.live], latest.size[latest.live].astype(np.int64)
    known = np.append(outside, np.uint8(0))[np.minimum(sites, len(outside))]
    small = sizes[(known == 0) & (sizes > 0) & (sizes <= lib.SW_PYMALLOC_SMALL_MAX)]
    chunks = int((small + glibc_overhead(small)).sum())
    near = min(points, key=lambda point: abs(point.op - memory.peak_op))
    return max(memory.peak_rss_bytes - chunks + near.resident_bytes, 0)
