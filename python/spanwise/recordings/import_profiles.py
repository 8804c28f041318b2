# SPDX-License-Identifier: Apache-2.0
"""Snapshots of heaps: pprof's profile.proto, profiles as text, jemalloc's statistics."""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from string import hexdigits
from typing import Any, NamedTuple

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

# --- profile.proto --------------------------------------------------------------------------------
#
# Source: https://github.com/google/pprof/blob/main/proto/profile.proto. Go and TCMalloc write such
# profiles, and `go tool pprof -proto` makes them of others. Counts and bytes are estimates from
# samples. The label "bytes" has the size of a sample's objects; bytes over that size is how many
# there are, because Go rounds the count of each sample down.

_PROFILE_NOUN = "heap profile"
_ESTIMATES = "its counts are estimates from samples"
_CHANGES = "it is the difference of two profiles, so it has only what changed between them"
_GROWTH = "if it is the difference of two profiles it has only what grew between them"

_SAMPLE_TYPE, _SAMPLE_FIELD, _MAPPING, _LOCATION, _FUNCTION, _STRING, _DURATION = (
    1,
    2,
    3,
    4,
    5,
    6,
    10,
)
_PAIRS = {"inuse": ("inuse_objects", "inuse_space"), "alloc": ("alloc_objects", "alloc_space")}
_ONLY = ("objects", "space")  # profiles with one pair only, of live objects

_UNITS = {
    unit: 1 << 10 * power
    for power, units in enumerate(
        (
            ("b", "byte"),
            ("kb", "kbyte", "kilobyte", "kib"),
            ("mb", "mbyte", "megabyte", "mib"),
            ("gb", "gbyte", "gigabyte", "gib"),
            ("tb", "tbyte", "terabyte", "tib"),
        )
    )
    for unit in units
}
"""Bytes of a unit, as pprof's internal/measurement has them; "" is bytes."""


def is_pprof(content: bytes) -> bool:
    """Whether a file begins as a profile: with its first field, a type of samples."""
    return content[:1] == b"\x0a" and content[2:3] == b"\x08"


def pprof_snapshot(content: bytes, name: str, value: str) -> Snapshot:
    """The samples of a profile.

    `value` is "inuse" or "alloc".

    Raises:
        InvalidError: it is a profile of something else, or the difference of two.
        TraceFormatError: it is cut or damaged.
    """
    profile = _ProtoProfile(name)
    for number, _, inside in _fields(content, name):
        profile.add(number, inside)
    return profile.snapshot(value)


class _Read(NamedTuple):
    """A sample: its values, the size of its objects where a label has it, and its locations."""

    values: list[int]
    size: int | None
    locations: list[int]


@dataclass
class _ProtoProfile:
    """The parts of a profile that are needed, as they come."""

    name: str
    strings: list[str] = field(default_factory=list)
    types: list[tuple[int, int]] = field(default_factory=list)
    samples: list[bytes] = field(default_factory=list)
    mappings: dict[int, dict[int, int]] = field(default_factory=dict)
    locations: dict[int, bytes] = field(default_factory=dict)
    functions: dict[int, dict[int, int]] = field(default_factory=dict)
    duration_ns: int = 0
    frames: dict[int, tuple[Frame, ...]] = field(default_factory=dict)  # by location

    def add(self, number: int, inside: int | bytes) -> None:
        """A field of the profile."""
        if not isinstance(inside, bytes):
            self.duration_ns = _signed(inside) if number == _DURATION else self.duration_ns
        elif number == _STRING:
            self.strings.append(inside.decode("utf-8", "replace"))
        elif number == _SAMPLE_FIELD:
            self.samples.append(inside)
        elif number in (_SAMPLE_TYPE, _MAPPING, _LOCATION, _FUNCTION):
            found = _numbers_of(inside, self.name)
            if number == _SAMPLE_TYPE:
                self.types.append((found.get(1, 0), found.get(2, 0)))
            elif number == _MAPPING:
                self.mappings[found.get(1, 0)] = found
            elif number == _LOCATION:
                self.locations[found.get(1, 0)] = inside
            else:
                self.functions[found.get(1, 0)] = found

    def snapshot(self, value: str) -> Snapshot:
        """The samples."""
        names = [self._text(kind) for kind, _ in self.types]
        wanted = next((pair for pair in (_PAIRS[value], _ONLY) if set(pair) <= set(names)), None)
        if wanted is None or (wanted == _ONLY and value != "inuse"):
            shown = ", ".join(n if n.isprintable() else repr(n) for n in names if n)[:200]
            has = shown or "no values"
            raise InvalidError(
                f"{self.name}: is no heap profile with {' and '.join(_PAIRS[value])}; it has {has}"
            )
        count_at, bytes_at = (names.index(one) for one in wanted)
        unit = self._unit(self.types[bytes_at][1], wanted[1])
        samples, falls = [], False
        for body in self.samples:
            read = self._sample(body)
            if len(read.values) != len(names):
                raise TraceFormatError(
                    f"{self.name}: a sample has {len(read.values)} values, and {len(names)} are"
                    " declared"
                )
            falls = falls or min(read.values) < 0
            count, total = read.values[count_at], read.values[bytes_at]
            if min(count, total) < 0:
                raise self._difference(value, names, min(count, total))
            if count or total:
                stack = tuple(f for at in read.locations for f in self._frames_of(at))
                samples.append(Sample(count, total * unit, read.size, stack))
        return Snapshot(samples, _PROFILE_NOUN, self._remarks(falls), self._modules())

    def _remarks(self, falls: bool) -> list[str]:
        """What must be known of the samples; `falls`: a value is negative."""
        if falls:
            return [_ESTIMATES, _CHANGES]
        if self.duration_ns <= 0:
            return [_ESTIMATES]
        lasts = _format.seconds(self.duration_ns)
        return [_ESTIMATES, f"it covers {lasts}, and {_GROWTH}"]

    def _difference(self, value: str, names: list[str], found: int) -> InvalidError:
        """The error of a profile that has negative values."""
        other = (
            ", or give --value alloc (value='alloc') for what was allocated between them"
            if value == "inuse" and set(_PAIRS["alloc"]) <= set(names)
            else ""
        )
        return InvalidError(
            f"{self.name}: is the difference of two profiles (a sample has {found}), not a heap;"
            f" convert one of the two{other}"
        )

    def _unit(self, place: int, what: str) -> int:
        """Bytes of a unit."""
        word = self._text(place).lower()
        found = _UNITS.get(word.removesuffix("s") or "b")
        if found is None:
            raise InvalidError(
                f"{self.name}: the unit of {what} is {word!r}, which is no number of bytes"
            )
        return found

    def _text(self, index: int) -> str:
        if not 0 <= index < len(self.strings):
            raise TraceFormatError(f"{self.name}: string {index} is not in its table")
        return self.strings[index]

    def _sample(self, sample: bytes) -> _Read:
        read = _Read([], None, [])
        for number, _, inside in _fields(sample, self.name):
            if number in (1, 2):
                packed = isinstance(inside, bytes)
                into = read.locations if number == 1 else read.values
                into += _packed(inside, self.name) if packed else [_signed(inside)]
            elif number == 3 and isinstance(inside, bytes):
                label = _numbers_of(inside, self.name)
                if self._text(label.get(1, 0)) == "bytes" and 3 in label:
                    size = label[3] * self._unit(label.get(4, 0), "the label bytes")
                    if size < 0:
                        raise TraceFormatError(f"{self.name}: objects of a sample have {size} B")
                    read = read._replace(size=size)
        return read

    # --- stacks ---

    def _frames_of(self, location: int) -> tuple[Frame, ...]:
        """Calls of a location, the innermost inlined one first; its return address if unnamed."""
        if location not in self.frames:
            self.frames[location] = self._read_location(location)
        return self.frames[location]

    def _read_location(self, location: int) -> tuple[Frame, ...]:
        body = self.locations.get(location, b"")
        calls = []
        for number, _, inside in _fields(body, self.name):
            if number == 4 and isinstance(inside, bytes):
                line = _numbers_of(inside, self.name)
                function = self.functions.get(line.get(1, 0), {})
                word = self._text(function.get(2, 0)) or self._text(function.get(3, 0))
                if word:
                    calls.append(Call(word, self._text(function.get(4, 0)), line.get(2, 0)))
        if calls:
            return tuple(calls)
        # The address is that of the call, or inside it (profile.proto, Location).
        address = _numbers_of(body, self.name).get(3, 0) % (1 << 64)
        return ((address + 1) % (1 << 64),) if address else ()

    def _modules(self) -> list[Module]:
        """The files that are mapped."""
        files = MappedFiles()
        for one in self.mappings.values():
            start, end, offset = (one.get(place, 0) % (1 << 64) for place in (2, 3, 4))
            build_id = self._text(one.get(6, 0))
            is_hex = len(build_id) % 2 == 0 and set(build_id) <= set(hexdigits)
            known = build_id if is_hex and len(build_id) <= 128 else ""
            files.add(start, end, offset, self._text(one.get(5, 0)), known)
        return files.modules


# --- wire format ----------------------------------------------------------------------------------


def _numbers_of(body: bytes, name: str) -> dict[int, int]:
    """The fields of a message that are numbers."""
    each = _fields(body, name)
    return {number: _signed(value) for number, kind, value in each if kind == 0}


def _packed(body: bytes | int, name: str) -> list[int]:
    assert isinstance(body, bytes)
    values, at = [], 0
    while at < len(body):
        value, at = _varint(body, at, name)
        values.append(_signed(value))
    return values


def _signed(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value - (1 << 64) if value >> 63 else value


def _fields(body: bytes, name: str) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, kind and content of each field of a message."""
    at = 0
    while at < len(body):
        start = at
        key, at = _varint(body, at, name)
        kind = key & 7
        if kind == 0:
            value, at = _varint(body, at, name)
            yield key >> 3, kind, value
            continue
        if kind == 2:
            length, at = _varint(body, at, name)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise TraceFormatError(f"{name}: byte {start}: no field of a profile begins there")
        if length > len(body) - at:
            raise TraceFormatError(f"{name}: byte {start}: a field is cut short")
        yield key >> 3, kind, body[at : at + length]
        at += length


def _varint(body: bytes, at: int, name: str) -> tuple[int, int]:
    value = shift = 0
    for place in range(at, min(at + 10, len(body))):
        value |= (body[place] & 0x7F) << shift
        shift += 7
        if body[place] < 0x80:
            return value & (1 << 64) - 1, place + 1
    raise TraceFormatError(f"{name}: byte {at}: a number is cut short")


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
# samples: an allocation of `size` bytes is sampled with the probability 1 - exp(-size / RATE). As
# in pprof and jeprof, the counts and bytes of a stack are divided by that probability for its mean
# size. The kinds "heapprofile" (every allocation) and "growth" are taken as they are.

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
"""Kinds of profiles: what the header's rate is divided by; 0: they are not sampled."""

_COUNT_ALLOCS = ("heap", "heapprofile")  # the others may have the same counts in brackets


def is_heap_text(content: bytes) -> bool:
    """Whether a file begins as such a profile."""
    line = content[:256].split(b"\n", 1)[0]
    return line.startswith((b"heap profile:", b"heap_v2/", _JAVA))


def heap_text_snapshot(content: bytes, name: str, value: str) -> Snapshot:
    """The samples of a profile.

    `value` is "inuse" or "alloc".

    Raises:
        InvalidError: it is no such profile, or of a kind that is not known.
        UnsupportedError: it is a profile of Java.
        TraceFormatError: it is cut or damaged; the message has the line.
    """
    lines = io.BytesIO(content)
    head = lines.readline()
    if head.startswith(_JAVA):
        raise UnsupportedError(
            f"{name}: is a heap profile of Java as text; make it a profile.proto:"
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
    """A profile as it is read.

    Attributes:
        value: "inuse" or "alloc".
        rate: mean bytes between samples; below 2: every allocation is counted.
        raw: counts and bytes of each stack as they are in the file.
        total: objects in use, by the first line.
        in_use: the same, by the stacks.
    """

    name: str
    value: str
    rate: int = 0
    kind: str = "heap_v2"
    total: int = 0
    in_use: int = 0
    raw: list[tuple[int, int, tuple[Frame, ...]]] = field(default_factory=list)
    files: MappedFiles = field(default_factory=MappedFiles)
    has_modules: bool = False

    def read_head(self, found: re.Match[bytes]) -> None:
        """The first line."""
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
                f"{self.name}: counts what is in use only, and in brackets once more; give no"
                " --value alloc"
            )

    def read_samples(self, lines: io.BytesIO) -> None:
        """A stack with its counts in each line; then Go's names of its calls."""
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
        """Puts names for the addresses of the last stack."""
        if named and self.raw:
            self.raw[-1] = (*self.raw[-1][:2], tuple(named))
        named.clear()

    def read_threaded(self, lines: io.BytesIO) -> None:
        """A line with a stack, then lines with its counts: of all threads, and of each."""
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
        """Lines that are not empty, with their numbers, up to the list of libraries."""
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
        what = "is no sample" if line.endswith(b"\n") else "is cut short"
        shown = line[:60].decode("utf-8", "replace").strip()
        return TraceFormatError(f"{self.name}: line {number} {what}: {shown!r}")

    # --- what was read ---

    def snapshot(self) -> Snapshot:
        """The samples, scaled."""
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
    """What samples of a stack stand for; sizes are the samples' own.

    Args:
        count: sampled objects.
        total: bytes of these.
        rate: mean bytes between samples; below 2: nothing to scale.
        stack: of the samples.
    """
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
    """Stacks without the frames of an allocator's own library, in which all of them end."""

    def __init__(self, modules: list[Module]) -> None:
        self._find = finder(one for one in modules if _ALLOCATOR.fullmatch(one.path))

    def below_allocator(self, stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """The stack from its innermost frame outside the allocator on."""
        for i, frame in enumerate(stack):
            if isinstance(frame, Call) or self._find(frame) is None:
                return stack[i:]
        return stack


def _named(found: re.Match[bytes]) -> Frame:
    """A call that Go names; where it does not, its return address."""
    if found[2] is None:
        return int(found[1], 16) + 1
    function, file = (found[i].decode("utf-8", "replace") for i in (2, 3))
    return Call(function, file, int(found[4]))


def _addresses(text: bytes) -> tuple[Frame, ...]:
    return tuple(address for one in text.split() if (address := int(one, 16)))


# --- statistics of jemalloc -----------------------------------------------------------------------
#
# Source: jemalloc 5, src/stats.c. `arenas` has the classes (bin, lextent); `stats.arenas` has what
# lives in each of them, of all arenas together ("merged") or of each.

_STATISTICS_NOUN = "dump of jemalloc's statistics"
_CLASSES = "sizes are its classes, not what was asked for, so round-up is counted from them"

_BEGIN = re.compile(rb'\{\s*"jemalloc"')


def is_jemalloc(content: bytes) -> bool:
    """Whether it is such JSON; what the program printed before it does not matter."""
    return _BEGIN.search(content) is not None


def jemalloc_snapshot(content: bytes, name: str, value: str) -> Snapshot:
    """Sizes of classes in bytes, and counts.

    Of large objects the JSON has what lives by class, and how many were allocated only in all. With
    the value "alloc" these are shared out over the classes as what lives is.

    Raises:
        InvalidError: it is other JSON, or has no statistics of arenas.
        TraceFormatError: it is cut or damaged.
    """
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
    """How many large objects were allocated: requests count those that a thread's cache served."""
    return max(int(arena["large"]["nmalloc"]), int(arena["large"].get("nrequests", 0)))


def _dead(living: Counter[int], allocated: int) -> tuple[list[tuple[int, int]], str]:
    """Large objects that were freed, by class, and what must be known of them."""
    dead = allocated - living.total()
    many = f"{_format.number(dead)} of its {_format.number(allocated)} large allocations"
    if not living.total():
        return [], f"{many} are left out, because the file does not have their sizes"
    found = largest_remainders(living, dead, living.total(), dead)
    return list(found.items()), f"{many} were freed, and are taken to have the sizes of the others"


def _each(arenas: dict[str, Any]) -> list[Any]:
    """The arenas that are numbered."""
    found = [one for number, one in arenas.items() if number.isdigit()]
    if not found:
        raise KeyError("stats.arenas")
    return found


def _parsed(content: bytes, name: str) -> tuple[dict[str, Any], list[str]]:
    """The last statistics in the file, and what must be known where there are several."""
    begins = [found.start() for found in _BEGIN.finditer(content)]
    if not begins:
        raise InvalidError(f"{name}: is no JSON of jemalloc's statistics")
    text = content[begins[-1] :].decode("utf-8", "replace")
    which = f"the last of {len(begins)} dumps in the file" if len(begins) > 1 else "it"
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        place = begins[-1] + error.pos
        raise TraceFormatError(f"{name}: byte {place}: {error.msg}; {which} may be cut") from None
    stats = found["jemalloc"]
    if not isinstance(stats, dict):
        raise InvalidError(f"{name}: is no JSON of jemalloc's statistics")
    return stats, [f"it is {which}"] if len(begins) > 1 else []
