# SPDX-License-Identifier: Apache-2.0
"""Sizes and counts in a heap profile of pprof.

Source: https://github.com/google/pprof/blob/main/proto/profile.proto. Go, gperftools and jemalloc's
jeprof write such profiles; their counts are estimated from samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from spanwise.errors import InvalidError, TraceFormatError

NOUN = "heap profile"
REMARK = "its counts are estimates from samples"

_SAMPLE_TYPE, _SAMPLE, _STRINGS = 1, 2, 6
_PAIRS = {"inuse": ("inuse_objects", "inuse_space"), "alloc": ("alloc_objects", "alloc_space")}
_ONLY = ("objects", "space")  # profiles that tell one pair only, of what lives


def is_one(content: bytes) -> bool:
    """Whether a file begins as a profile: with its first field, a type of samples."""
    return content[:1] == b"\x0a" and content[2:3] == b"\x08"


def sizes(content: bytes, name: str, value: str) -> list[tuple[int, int]]:
    """Sizes in bytes and counts; a size may be there several times.

    Raises:
        InvalidError: it is a profile of something else.
        TraceFormatError: it is cut or damaged.
    """
    profile = _Profile(name)
    for number, _, inside in _fields(content, name):
        profile.add(number, inside)
    return profile.rows(value)


@dataclass
class _Profile:
    """The parts of a profile that are needed, as they come."""

    name: str
    strings: list[str] = field(default_factory=list)
    types: list[tuple[int, int]] = field(default_factory=list)
    samples: list[bytes] = field(default_factory=list)

    def add(self, number: int, inside: int | bytes) -> None:
        """A field of the profile."""
        if not isinstance(inside, bytes):
            return
        if number == _STRINGS:
            self.strings.append(inside.decode("utf-8", "replace"))
        elif number == _SAMPLE_TYPE:
            found = _numbers_of(inside, self.name)
            self.types.append((found.get(1, 0), found.get(2, 0)))
        elif number == _SAMPLE:
            self.samples.append(inside)

    def rows(self, value: str) -> list[tuple[int, int]]:
        """Size and count of each sample."""
        names = [self._text(kind) for kind, _ in self.types]
        wanted = next((pair for pair in (_PAIRS[value], _ONLY) if set(pair) <= set(names)), None)
        if wanted is None or (wanted == _ONLY and value != "inuse"):
            has = ", ".join(filter(None, names)) or "no values"
            raise InvalidError(
                f"{self.name}: is no heap profile with {' and '.join(_PAIRS[value])}; it has {has}"
            )
        count_at, bytes_at = (names.index(one) for one in wanted)
        rows = []
        for sample in self.samples:
            values, size = self._sample(sample)
            if len(values) != len(names):
                raise TraceFormatError(
                    f"{self.name}: a sample has {len(values)} values, and {len(names)} are declared"
                )
            count, total = values[count_at], values[bytes_at]
            if min(count, total, size or 0) < 0:
                raise TraceFormatError(f"{self.name}: a sample has a negative count or size")
            if count:
                rows.append((size if size is not None else round(total / count), count))
        return rows

    def _text(self, index: int) -> str:
        if not 0 <= index < len(self.strings):
            raise TraceFormatError(f"{self.name}: string {index} is not in its table")
        return self.strings[index]

    def _sample(self, sample: bytes) -> tuple[list[int], int | None]:
        """Values, and the size of the sample's objects where a label tells it, as Go's does."""
        values: list[int] = []
        size = None
        for number, _, inside in _fields(sample, self.name):
            if number == 2:
                packed = isinstance(inside, bytes)
                values += _packed(inside, self.name) if packed else [_signed(inside)]
            elif number == 3 and isinstance(inside, bytes):
                label = _numbers_of(inside, self.name)
                if self._text(label.get(1, 0)) == "bytes" and 3 in label:
                    size = label[3]
        return values, size


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
