# SPDX-License-Identifier: Apache-2.0
"""Read heap profiles in pprof's format profile.proto: sizes, counts and stacks.

Source: https://github.com/google/pprof/blob/main/proto/profile.proto. Go and TCMalloc write such
profiles, and `go tool pprof -proto` converts others to it. Counts and bytes are estimates from
samples. The label "bytes" has the size of a sample's objects; bytes / size is the number of
objects, because Go rounds the count of each sample down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from string import hexdigits
from typing import NamedTuple

from spanwise import _format
from spanwise.errors import InvalidError, TraceFormatError
from spanwise.recordings.profiles import Call, Frame, MappedFiles, Sample, Snapshot
from spanwise.recordings.sources import Module

_NOUN = "heap profile"
_ESTIMATES = "its counts are estimates from samples"
_CHANGES = "it is the difference of two profiles, so it has only what changed between them"
_GROWTH = "if it is the difference of two profiles it has only what grew between them"

_SAMPLE_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRING, _DURATION = 1, 2, 3, 4, 5, 6, 10
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
"""Bytes per unit, as in pprof's internal/measurement; "" is bytes."""


def is_pprof(content: bytes) -> bool:
    """Return whether a file begins like a profile, with a sample type as its first field."""
    return content[:1] == b"\x0a" and content[2:3] == b"\x08"


def pprof_snapshot(content: bytes, name: str, value: str) -> Snapshot:
    """Return the samples of a profile.

    `value` is "inuse" or "alloc".
    """
    profile = _Profile(name)
    for number, _, inside in _fields(content, name):
        profile.add(number, inside)
    return profile.snapshot(value)


class _Read(NamedTuple):
    """A sample: its values, the size of its objects if a label has it, and its locations."""

    values: list[int]
    size: int | None
    locations: list[int]


@dataclass
class _Profile:
    """The needed parts of a profile, in the order of the file."""

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
        """Add a field of the profile."""
        if not isinstance(inside, bytes):
            self.duration_ns = _signed(inside) if number == _DURATION else self.duration_ns
        elif number == _STRING:
            self.strings.append(inside.decode("utf-8", "replace"))
        elif number == _SAMPLE:
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
        """Return the samples."""
        names = [self._text(kind) for kind, _ in self.types]
        wanted = next((pair for pair in (_PAIRS[value], _ONLY) if set(pair) <= set(names)), None)
        if wanted is None or (wanted == _ONLY and value != "inuse"):
            shown = ", ".join(n if n.isprintable() else repr(n) for n in names if n)[:200]
            has = shown or "no values"
            raise InvalidError(
                f"{self.name}: is not a heap profile with {' and '.join(_PAIRS[value])}; it has"
                f" {has}"
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
        return Snapshot(samples, _NOUN, self._remarks(falls), self._modules())

    def _remarks(self, falls: bool) -> list[str]:
        """Return caveats about the samples; `falls`: a value is negative."""
        if falls:
            return [_ESTIMATES, _CHANGES]
        if self.duration_ns <= 0:
            return [_ESTIMATES]
        lasts = _format.seconds(self.duration_ns)
        return [_ESTIMATES, f"it covers {lasts}, and {_GROWTH}"]

    def _difference(self, value: str, names: list[str], found: int) -> InvalidError:
        """Return the error for a profile with negative values."""
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
        word = self._text(place).lower()
        found = _UNITS.get(word.removesuffix("s") or "b")
        if found is None:
            raise InvalidError(
                f"{self.name}: the unit of {what} is {word!r}, which is not a number of bytes"
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
        """Return a location's calls, innermost inlined one first, or else its return address."""
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
    """Yield number, wire type and content of each field of a message."""
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
