# SPDX-License-Identifier: Apache-2.0
"""Read snapshots of heaps: text heap profiles, and jemalloc's statistics."""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from spanwise import _format
from spanwise.errors import InvalidError, TraceFormatError, UnsupportedError
from spanwise.recordings.profiles import (
    Call,
    Frame,
    MappedFiles,
    Sample,
    Snapshot,
    finder,
    largest_remainders,
)
from spanwise.recordings.sources import Module

# --- profiles as text -----------------------------------------------------------------------------
#
# Sources: jemalloc, src/prof_data.c (prof_dump_header, prof_dump_gctx) and bin/jeprof.in
# (AdjustSamples); gperftools, src/heap-profile-table.cc; Go, src/runtime/pprof/pprof.go
# (writeHeapInternal); and their reader, google/pprof, profile/legacy_profile.go (parseHeap).
#
#     heap profile: N: BYTES [ALLOCS: BYTES] @ KIND/RATE     heap_v2/RATE
#     N: BYTES [ALLOCS: BYTES] @ 0xADDRESS ...               @ 0xADDRESS ...
#     #   0xADDRESS   FUNCTION+0xOFFSET   FILE:LINE            t*: N: BYTES [ALLOCS: BYTES]
#                                                              tTHREAD: N: BYTES [ALLOCS: BYTES]
#     MAPPED_LIBRARIES:                                      MAPPED_LIBRARIES:
#     lines of /proc/PID/maps                                lines of /proc/PID/maps
#
# Counts of the kinds "heap" (Go, whose header has twice the rate) and "heap_v2" are those of
# samples: an allocation of `size` bytes is sampled with probability 1 - exp(-size / RATE). As in
# pprof and jeprof, the counts and bytes of a stack are divided by that probability for its mean
# size. The kinds "heapprofile" (every allocation) and "growth" are not scaled.

_COUNTS = rb"(\d{1,18}): *(\d{1,18}) *\[ *(\d{1,18}): *(\d{1,18}) *\]"
_STACK = rb"@((?: 0x[0-9a-f]{1,16})*)"
_HEAD = re.compile(rb"heap profile: *" + _COUNTS + rb" *@ *([a-z_0-9]*?)(?:/(\d{1,18}))?\s*")
_SAMPLE = re.compile(rb"\s*" + _COUNTS + rb" " + _STACK + rb"\s*")
_THREADED_HEAD = re.compile(rb"heap_v2/(\d{1,18})\s*")
_THREADED_STACK = re.compile(rb"\s*" + _STACK + rb"\s*")
_THREADED_COUNTS = re.compile(rb"\s*t(\*|\d+): *" + _COUNTS + rb".*", re.DOTALL)
_NAMED = re.compile(rb"#\t0x([0-9a-f]{1,16})(?:\t+(.+)\+0x[0-9a-f]+\t+(.+):(\d{1,9}))?\s*")
_LIBRARIES = (b"MAPPED_LIBRARIES:", b"--- Memory map: ---")
_MAPPED = re.compile(
    rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) +\S{4} +([0-9a-f]{1,16}) +\S+ +\d+ +(/.*?)\s*"
)
_JAVA = b"--- heapz 1 ---"
_ALLOCATOR = re.compile(r".*/lib(jemalloc|tcmalloc)[^/]*")

_KINDS = {"heap": 2, "heap_v2": 1, "heapz_v2": 1, "heapprofile": 0, "growth": 0, "growthz": 0}
"""Kinds of profiles, with the divisor of the header's rate; 0: not sampled."""

_COUNT_ALLOCS = ("heap", "heapprofile")  # the others may repeat the same counts in brackets


def is_heap_text(content: bytes) -> bool:
    """Return whether a file begins like a text profile."""
    line = content[:256].split(b"\n", 1)[0]
    return line.startswith((b"heap profile:", b"heap_v2/", _JAVA))


def heap_text_snapshot(content: bytes, name: str, value: str) -> Snapshot:
    """Return the samples of a profile."""
    lines = io.BytesIO(content)
    head = lines.readline()
    if head.startswith(_JAVA):
        raise UnsupportedError(
            f"{name}: is a Java heap profile as text; convert it to profile.proto:"
            f" go tool pprof -proto -output=heap.pb.gz {name}"
        )
    profile = _TextProfile(name, value)
    if found := _THREADED_HEAD.fullmatch(head):
        profile.rate = int(found[1])
        profile.read_threaded(lines)
    elif found := _HEAD.fullmatch(head):
        profile.read_head(found)
        profile.read_samples(lines)
    else:
        raise InvalidError(f"{name}: line 1 is not that of a heap profile as text")
    return profile.snapshot()


@dataclass
class _TextProfile:
    """A profile that is being read.

    Attributes:
        raw: counts and bytes of each stack as in the file.
    """

    name: str
    value: str  # "inuse" or "alloc"
    rate: int = 0  # mean bytes between samples; below 2: every allocation is counted
    kind: str = "heap_v2"
    total: int = 0  # objects in use by the first line
    in_use: int = 0  # objects in use by the stacks
    raw: list[tuple[int, int, tuple[Frame, ...]]] = field(default_factory=list)
    files: MappedFiles = field(default_factory=MappedFiles)
    has_modules: bool = False

    def read_head(self, found: re.Match[bytes]) -> None:
        """Read the first line."""
        self.kind, rate = found[5].decode(), int(found[6] or 0)
        if self.kind not in _KINDS:
            raise InvalidError(
                f"{self.name}: is a heap profile of the kind {self.kind!r}; known are"
                f" {', '.join(_KINDS)}"
            )
        self.rate = rate // _KINDS[self.kind] if _KINDS[self.kind] else 0
        in_use, allocated = ((int(found[i]), int(found[i + 1])) for i in (1, 3))
        self.total = in_use[0]
        if self.value == "alloc" and self.kind not in _COUNT_ALLOCS and allocated == in_use:
            raise InvalidError(
                f"{self.name}: counts only what is in use, also in brackets; omit --value alloc"
            )

    def read_samples(self, lines: io.BytesIO) -> None:
        """Read lines with counts and stack, each perhaps followed by Go's names of the calls."""
        named: list[Frame] = []
        for number, line in self._lines(lines):
            if symbol := _NAMED.fullmatch(line):
                named.append(_named(symbol))
            elif not line.startswith(b"#"):
                self._name_last(named)
                found = _SAMPLE.fullmatch(line)
                if found is None or not line.endswith(b"\n"):
                    raise self._wrong(number, line)
                self.in_use += int(found[1])
                self._put(found, 1, _addresses(found[5]))
        self._name_last(named)

    def _name_last(self, named: list[Frame]) -> None:
        """Replaces the addresses of the last stack by names."""
        if named and self.raw:
            self.raw[-1] = (*self.raw[-1][:2], tuple(named))
        named.clear()

    def read_threaded(self, lines: io.BytesIO) -> None:
        """Read lines with a stack, followed by lines with counts: of all threads, and of each."""
        stack: tuple[Frame, ...] | None = None  # None: in the header
        counted = True
        for number, line in self._lines(lines):
            found = _THREADED_COUNTS.fullmatch(line)
            begins = _THREADED_STACK.fullmatch(line)
            if (found is None and begins is None) or not line.endswith(b"\n"):
                raise self._wrong(number, line)
            if begins is not None:
                if not counted:
                    raise self._wrong(number, line)
                stack, counted = _addresses(begins[1]), False
            elif found is not None and found[1] == b"*" and stack is not None:
                self._put(found, 2, stack)
                counted = True
        if not counted:
            raise TraceFormatError(f"{self.name}: is cut short: its last stack has no counts")

    def _lines(self, lines: io.BytesIO) -> Iterator[tuple[int, bytes]]:
        """Yield non-empty lines with their numbers, up to the list of libraries."""
        for number, line in enumerate(lines, 2):
            if line.startswith(_LIBRARIES):
                self.has_modules = True
                self._read_modules(lines)
            elif line.strip():
                yield number, line

    def _read_modules(self, lines: io.BytesIO) -> None:
        for line in lines:
            if found := _MAPPED.fullmatch(line):
                start, end, offset = (int(found[i], 16) for i in (1, 2, 3))
                self.files.add(start, end, offset, found[4].decode("utf-8", "replace"))

    def _put(self, found: re.Match[bytes], group: int, stack: tuple[Frame, ...]) -> None:
        first = group + 2 if self.value == "alloc" else group
        count, total = int(found[first]), int(found[first + 1])
        self.raw.append((count, total, stack))

    def _wrong(self, number: int, line: bytes) -> TraceFormatError:
        what = "is not a sample" if line.endswith(b"\n") else "is cut short"
        shown = line[:60].decode("utf-8", "replace").strip()
        return TraceFormatError(f"{self.name}: line {number} {what}: {shown!r}")

    # --- what was read ---

    def snapshot(self) -> Snapshot:
        """Return the scaled samples."""
        remarks = list(self._remarks())
        frames = _Frames(self.files.modules)
        samples = [
            one
            for count, total, stack in self.raw
            for one in scale(count, total, self.rate, frames.below_allocator(stack))
        ]
        return Snapshot(samples, "heap profile", remarks, self.files.modules)

    def _remarks(self) -> Iterator[str]:
        if self.rate > 1:
            yield (
                f"its counts are estimates from samples, one per {_format.number(self.rate)} B on"
                " average, scaled as pprof does"
            )
        if self.kind.startswith("growth"):
            yield "its objects are regions that the allocator took from the system"
        if self.in_use < self.total:
            if not self.has_modules:
                raise TraceFormatError(
                    f"{self.name}: is cut: its first line counts {self.total} objects in use,"
                    f" and its stacks {self.in_use}"
                )
            yield (
                f"its stacks have {_format.number(self.in_use)} of the"
                f" {_format.number(self.total)} objects that its first line counts"
            )
        if self.kind == "heap_v2" and not self.has_modules:
            yield "it has no list of libraries, so it may be cut"


def scale(count: int, total: int, rate: int, stack: tuple[Frame, ...]) -> Iterator[Sample]:
    """Yield the scaled samples of a stack; their sizes are not scaled."""
    if rate < 2 or not count or not total:
        if count or total:
            yield Sample(count, total, None, stack)
        return
    scaled = int(total / -math.expm1(-total / count / rate))
    size, longer = divmod(total, count)
    above = scaled * longer * (size + 1) // total
    for one, part in ((size, scaled - above), (size + 1, above)):
        if part:
            yield Sample(max(1, round(part / max(one, 1))), part, one or None, stack)


class _Frames:
    """Removes the innermost frames of stacks, which are in the allocator's own library."""

    def __init__(self, modules: list[Module]) -> None:
        self._find = finder(one for one in modules if _ALLOCATOR.fullmatch(one.path))

    def below_allocator(self, stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """Return the stack from its innermost frame outside the allocator on."""
        for i, frame in enumerate(stack):
            if isinstance(frame, Call) or self._find(frame) is None:
                return stack[i:]
        return stack


def _named(found: re.Match[bytes]) -> Frame:
    """Return a call that Go names, or else its return address."""
    if found[2] is None:
        return int(found[1], 16) + 1
    function, file = (found[i].decode("utf-8", "replace") for i in (2, 3))
    return Call(function, file, int(found[4]))


def _addresses(text: bytes) -> tuple[Frame, ...]:
    return tuple(address for one in text.split() if (address := int(one, 16)))


# --- statistics of jemalloc -----------------------------------------------------------------------
#
# Source: jemalloc 5, src/stats.c. `arenas` has the classes (bin, lextent); `stats.arenas` has the
# live objects of each class, for all arenas together ("merged") or for each.

_STATISTICS_NOUN = "dump of jemalloc's statistics"
_CLASSES = "sizes are its classes, not requested sizes, so round-up is counted from them"

_BEGIN = re.compile(rb'\{\s*"jemalloc"')


def is_jemalloc(content: bytes) -> bool:
    """Return whether it is such JSON; earlier output of the program does not matter."""
    return _BEGIN.search(content) is not None


def jemalloc_snapshot(content: bytes, name: str, value: str) -> Snapshot:
    """Return the objects of each class as samples."""
    stats, remarks = _parsed(content, name)
    try:
        small = [int(one["size"]) for one in stats["arenas"]["bin"]]
        large = [int(one["size"]) for one in stats["arenas"]["lextent"]]
        arenas = stats["stats.arenas"]
        chosen = [arenas["merged"]] if "merged" in arenas else _each(arenas)
        rows: list[tuple[int, int]] = []
        living: Counter[int] = Counter()
        for arena in chosen:
            counts = "curregs" if value == "inuse" else "nrequests"
            rows += zip(small, (int(one[counts]) for one in arena["bins"]), strict=True)
            for size, one in zip(large, arena["lextents"], strict=True):
                living[size] += int(one["curlextents"])
        allocated = sum(map(_large, chosen)) if value == "alloc" else living.total()
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidError(
            f"{name}: lacks jemalloc 5's bins and large extents ({error!r});"
            ' print it with the options "J" and nothing that leaves arenas or bins out'
        ) from None
    rows += living.items()
    if any(size <= 0 or count < 0 for size, count in rows):
        raise TraceFormatError(f"{name}: a class has a size or a count that is impossible")
    if allocated > living.total():
        dead, more = _dead(living, allocated)
        rows += dead
        remarks.append(more)
    samples = [Sample(count, size * count, size) for size, count in rows if count]
    return Snapshot(samples, _STATISTICS_NOUN, [_CLASSES, *remarks])


def _large(arena: dict[str, Any]) -> int:
    """Return the number of allocated large objects; requests include those served by a tcache."""
    return max(int(arena["large"]["nmalloc"]), int(arena["large"].get("nrequests", 0)))


def _dead(living: Counter[int], allocated: int) -> tuple[list[tuple[int, int]], str]:
    """Return freed large objects by class, and a caveat about them."""
    dead = allocated - living.total()
    many = f"{_format.number(dead)} of its {_format.number(allocated)} large allocations"
    if not living.total():
        return [], f"{many} are left out, because the file does not have their sizes"
    found = largest_remainders(living, dead, living.total(), dead)
    return list(found.items()), f"{many} were freed, and are taken to have the sizes of the others"


def _each(arenas: dict[str, Any]) -> list[Any]:
    found = [one for number, one in arenas.items() if number.isdigit()]
    if not found:
        raise KeyError("stats.arenas")
    return found


def _parsed(content: bytes, name: str) -> tuple[dict[str, Any], list[str]]:
    """Return the last statistics in the file, and a caveat if there are several."""
    begins = [found.start() for found in _BEGIN.finditer(content)]
    if not begins:
        raise InvalidError(f"{name}: is not JSON of jemalloc's statistics")
    text = content[begins[-1] :].decode("utf-8", "replace")
    which = f"the last of {len(begins)} dumps in the file" if len(begins) > 1 else "it"
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        place = begins[-1] + error.pos
        raise TraceFormatError(f"{name}: byte {place}: {error.msg}; {which} may be cut") from None
    stats = found["jemalloc"]
    if not isinstance(stats, dict):
        raise InvalidError(f"{name}: is not JSON of jemalloc's statistics")
    return stats, [f"it is {which}"] if len(begins) > 1 else []
