# SPDX-License-Identifier: Apache-2.0
"""The share of a process's resident memory that came from malloc, and so is recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spanwise import _format
from spanwise.results.rows import Result

_WARN_BELOW = 0.5
"""All commands that read a recording warn if its recorded share is below this."""
_WARN_BYTES = 8 << 20
"""Fewer unrecorded bytes cause no warning, unless they belong to a known runtime."""

_PARTS = ("peak", "ns", "malloc", "mapped", "data", "file", "recorder", "end_malloc")
_RETAINED = ("kept_ns", "kept_op", "kept_malloc", "kept_requested", "kept_pages")
_LASTS = ("kept_from", "kept_until")


@dataclass(frozen=True)
class RetainedMemory(Result):
    """The most that the program's malloc kept resident without need.

    It is the most of malloc_bytes - requested_bytes in the pauses of the program (no recorded call
    for 100 ms; the 32 longest, and that before its end), and at 32 evenly spaced moments. A pause
    shorter than a second and a 16th of the run does not count if more than an eighth of the
    requested bytes is freed soon after it. Of the evenly spaced moments the second most counts, so
    it lasts for about a sixteenth of the run; one at which the program frees its objects does not
    count: more than a 64th of the requested bytes is freed until the next one. Among moments with
    at least nine tenths of the most, the longest is taken.

    Attributes:
        time_ns: the moment, since the start of the recording; of a pause, its start.
        op: operations until then.
        malloc_bytes: resident; at the evenly spaced moments, from the RSS and the other parts at
            the peak.
        requested_bytes: by live objects.
        pages_bytes: of the pages of 4 KiB that live objects are in, resident or not. malloc_trim
            returns about malloc_bytes - pages_bytes.
        from_ns: when the state began, of the moments above: in all until until_ns at least three
            quarters as much was kept.
        until_ns: when it ended; both are 0 in recordings of earlier versions.
    """

    time_ns: int
    op: int
    malloc_bytes: int
    requested_bytes: int
    pages_bytes: int
    from_ns: int = 0
    until_ns: int = 0

    def __str__(self) -> str:
        return (
            f"{_format.size(self.malloc_bytes)} resident for {_format.size(self.requested_bytes)}"
            f" requested, {_format.seconds(self.time_ns)} after the start"
        )

    __repr__ = __str__


@dataclass(frozen=True)
class ProcessMemory(Result):
    """Resident bytes of a recorded process at its peak, by origin.

    The recorder reads /proc/self/smaps whenever the RSS has grown by a sixteenth, and divides the
    anonymous bytes of each mapping by the pages in which malloc returned objects
    (docs/design/recorder.md). What the RSS grew from the last reading to the peak, at most 6 %, is
    divided between malloc and mmap calls as they were at the reading.

    Attributes:
        peak_rss_bytes: peak RSS from the kernel (VmHWM), without the recorder's memory.
        time_ns: time of reading the parts, since the start of the recording.
        malloc_bytes: pages in which malloc returned objects, including freed ones that are still
            resident.
        mapped_bytes: other anonymous mappings: mmap calls of the program, stacks of threads.
        data_bytes: private pages of files (static data), and the main stack.
        file_bytes: pages shared with files or other processes: code, mapped files.
        recorder_bytes: the recorder's own memory; in none of the others.
        end_malloc_bytes: malloc_bytes at the last reading: at the end, unless it was killed.
        untouched_bytes: of objects, in pages that were not resident at the reading, because they
            were never written; 0 if not known.
        retained: the most that malloc kept without need; None: nothing, or not known, because the
            program was killed or the recording is not in order.
        peak_requested_bytes: requested bytes at the peak RSS: the most while the RSS was within 1 %
            of it; 0: not known.
        peak_op: operations until then.
        series: resident bytes of malloc over time, as pairs (time in ns, bytes): the RSS without
            the other parts, which are taken to be as at the peak; at most 512, () if it was killed.
    """

    peak_rss_bytes: int
    time_ns: int
    malloc_bytes: int
    mapped_bytes: int
    data_bytes: int
    file_bytes: int
    recorder_bytes: int
    end_malloc_bytes: int
    untouched_bytes: int = 0
    retained: RetainedMemory | None = None
    peak_requested_bytes: int = 0
    peak_op: int = 0
    series: tuple[tuple[int, int], ...] = ()

    @property
    def private_bytes(self) -> int:
        """Anonymous bytes of the process: malloc_bytes, mapped_bytes and data_bytes."""
        return self.malloc_bytes + self.mapped_bytes + self.data_bytes

    @property
    def covers_peak(self) -> bool:
        """Whether the parts were read near the peak: they are at least 0.9 of peak_rss_bytes."""
        return self.private_bytes + self.file_bytes >= 0.9 * self.peak_rss_bytes

    @property
    def recorded_share(self) -> float:
        """The share of the private bytes that came from malloc, 0 to 1."""
        return self.malloc_bytes / self.private_bytes if self.private_bytes else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes and the share as a dict for JSON."""
        return {**asdict(self), "recorded_share": self.recorded_share}

    def text_rows(self) -> list[tuple[str, str]]:
        """Return the parts as text: what, and bytes."""
        parts = (
            ("peak RSS of the process", self.peak_rss_bytes),
            ("private memory from malloc, recorded", self.malloc_bytes),
            ("private memory from mmap calls, not recorded", self.mapped_bytes),
            ("static data and main stack", self.data_bytes),
            ("shared with files: code, mapped files", self.file_bytes),
        )
        return [(what, _format.size(count)) for what, count in parts]

    def __str__(self) -> str:
        if not self.covers_peak:
            seen = _format.size(self.private_bytes + self.file_bytes)
            return (
                f"peak RSS {_format.size(self.peak_rss_bytes)}, of which {seen} was seen by the"
                " recorder: the rest was mapped and unmapped between two of its readings"
            )
        return (
            f"peak RSS {_format.size(self.peak_rss_bytes)} without the recorder;"
            f" {_format.share(self.malloc_bytes, self.private_bytes)} of the private memory"
            f" ({_format.size(self.malloc_bytes)} of {_format.size(self.private_bytes)})"
            " came from malloc and is recorded"
        )

    __repr__ = __str__


def read_memory(meta: Iterable[tuple[str, str]]) -> ProcessMemory | None:
    """Return the memory from a recording's metadata; None if the recorder could not read it."""
    pairs = tuple(meta)
    found = {
        key[4:]: int(value)
        for key, value in pairs
        if key.startswith("rss_") and value.isdecimal() and len(value) <= 20
    }
    if any(name not in found for name in _PARTS):
        return None
    peak, *parts, recorder, end_malloc = (found[name] for name in _PARTS)
    kept = None
    if all(name in found for name in _RETAINED):
        kept = RetainedMemory(*(found.get(name, 0) for name in (*_RETAINED, *_LASTS)))
    time_ns, malloc, mapped, data, file = parts
    memory = ProcessMemory(
        max(peak - recorder, 0),
        time_ns,
        malloc,
        mapped,
        data,
        file,
        recorder,
        end_malloc,
        found.get("untouched", 0),
        kept,
        found.get("peak_requested", 0),
        found.get("peak_op", 0),
    )
    return _at_the_peak(memory, _points(dict(pairs).get("rss_series", "")))


def _at_the_peak(memory: ProcessMemory, points: Sequence[tuple[int, int]]) -> ProcessMemory:
    """Divide the growth of the RSS since the last reading between malloc and mmap calls."""
    if not points:
        return memory
    fixed = memory.data_bytes + memory.file_bytes + memory.recorder_bytes
    changing = memory.malloc_bytes + memory.mapped_bytes
    most = max(size for _, size in points) - fixed
    if memory.covers_peak and most > changing > 0:
        malloc = memory.malloc_bytes * most // changing
        memory = replace(memory, malloc_bytes=malloc, mapped_bytes=most - malloc)
    others = fixed + memory.mapped_bytes
    return replace(memory, series=tuple((ns, max(size - others, 0)) for ns, size in points))


def _points(text: str) -> list[tuple[int, int]]:
    """Read "ns:bytes", separated by spaces. []: damaged."""
    if not re.fullmatch(r"(\d{1,19}:\d{1,19}( |$)){1,512}", text):
        return []
    pairs = (one.split(":") for one in text.split())
    return [(int(ns), int(size)) for ns, size in pairs]


def glibc_overhead(sizes: ArrayLike) -> NDArray[np.int64]:
    """Return the bytes that glibc's malloc adds to a request of each size.

    A chunk is a multiple of 16 bytes, at least 32, with a header of 8. From the default
    M_MMAP_THRESHOLD of 128 KiB on it is mapped: whole pages of 4 KiB, with a header of 16.
    """
    size = np.asarray(sizes).astype(np.int64)
    chunk = np.maximum((size + 8 + 15) // 16 * 16, 32)
    mapped = (size + 16 + 4095) // 4096 * 4096
    found: NDArray[np.int64] = np.where(chunk < 128 << 10, chunk, mapped) - size
    return found


def missing_memory(memory: ProcessMemory, program: str, runtime: tuple[str, str]) -> str:
    """Say where unrecorded memory is and what to do, if it is the larger part; else return ""."""
    name, advice = runtime
    worth_it = bool(name) or memory.private_bytes - memory.malloc_bytes >= _WARN_BYTES
    if memory.recorded_share >= _WARN_BELOW or not (memory.covers_peak and worth_it):
        return ""
    owner = f"{name}'s own heap" if name else "its own mmap calls"
    return (
        f"only {_format.size(memory.malloc_bytes)} of the {_format.size(memory.private_bytes)}"
        f" private memory of {program} came from malloc and was recorded;"
        f" {_format.size(memory.mapped_bytes)} came from {owner}{f': {advice}' if advice else ''}"
    )
