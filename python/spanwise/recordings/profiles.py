# SPDX-License-Identifier: Apache-2.0
"""Heap profiles: whole objects with call stacks, and pprof's format profile.proto."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from string import hexdigits
from typing import NamedTuple, TypeVar

from spanwise import _format
from spanwise.errors import InvalidError, TraceFormatError
from spanwise.recordings.elf import ElfError, ElfFile
from spanwise.recordings.names import FUNCTION_BASE, LINE_BITS, PYTHON_BASE
from spanwise.recordings.sources import Module

Key = TypeVar("Key", int, tuple[int, int])


class Call(NamedTuple):
    """A frame that the profile names."""

    function: str
    file: str
    line: int  # 0 if unknown


Frame = Call | int
"""A named call, or a return address."""


class Sample(NamedTuple):
    """The counts of a profile at a call stack."""

    objects: int  # their number; not used if size and bytes are known
    total_bytes: int  # of all of them
    size: int | None = None  # of each of them; None: unknown, so that they share the bytes evenly
    stack: tuple[Frame, ...] = ()  # innermost frame first; () if unknown


@dataclass(frozen=True)
class Snapshot:
    """The content of a file about one moment."""

    samples: Sequence[Sample]
    noun: str  # for the file
    remarks: Sequence[str] = ()  # caveats for users of the recording, as parts of a sentence
    modules: Sequence[Module] = ()  # to look up return addresses of stacks


@dataclass(frozen=True)
class Objects:
    """Whole objects."""

    counts: dict[tuple[int, int], int]  # by size and by the number of their stack
    stacks: list[tuple[Frame, ...]]  # by number; the first is ()
    file_bytes: int  # the sum of the samples
    uncounted_bytes: int  # bytes of samples without a count; each such sample is one object

    @property
    def total_bytes(self) -> int:
        """The total size of the objects."""
        return sum(size * count for (size, _), count in self.counts.items())


def objects_of(samples: Iterable[Sample]) -> Objects:
    """Return the objects of samples."""
    numbers: dict[tuple[Frame, ...], int] = {(): 0}
    counts: Counter[tuple[int, int]] = Counter()
    shares: defaultdict[int, Counter[int]] = defaultdict(Counter)  # bytes by size and stack
    file_bytes = uncounted_bytes = 0
    for objects, total_bytes, size, stack in samples:
        number = numbers.setdefault(stack, len(numbers))
        file_bytes += total_bytes
        if size and total_bytes:
            shares[size][number] += total_bytes
            continue
        if not objects:
            uncounted_bytes += total_bytes
        count = objects or min(total_bytes, 1)
        if count:
            each, longer = divmod(total_bytes, count)
            counts[each, number] += count - longer
            counts[each + 1, number] += longer
    for size, by_stack in shares.items():
        for number, count in shared_out(by_stack, size).items():
            counts[size, number] += count
    kept = {key: count for key, count in counts.items() if count}
    return Objects(kept, list(numbers), file_bytes, uncounted_bytes)


def shared_out(bytes_by_stack: Mapping[int, int], size: int) -> dict[int, int]:
    """Return objects of one size by stack, with the total rounded to the nearest object."""
    total = (2 * sum(bytes_by_stack.values()) + size) // (2 * size)
    return largest_remainders(bytes_by_stack, 1, size, total)


def scaled(counts: Mapping[Key, int], most: int) -> dict[Key, int]:
    """Scale counts to a total of `most` objects."""
    return largest_remainders(counts, most, sum(counts.values()), most)


def largest_remainders(
    shares: Mapping[Key, int], factor: int, divisor: int, total: int
) -> dict[Key, int]:
    """Round share * factor / divisor so that the sum is `total` (Hamilton's method)."""
    kept = {key: share * factor // divisor for key, share in shares.items()}
    order = sorted(shares, key=lambda key: (-(shares[key] * factor % divisor), key))
    for key in order[: total - sum(kept.values())]:
        kept[key] += 1
    return {key: count for key, count in kept.items() if count}


# --- stacks as call sites -------------------------------------------------------------------------
#
# A return address is unchanged. A call that the profile names becomes an address in a module that
# represents its function, beyond all addresses of programs, like Python functions.

DEPTH_MAX = 128
"""SWT_SITE_DEPTH_MAX, the number of innermost frames of a call site that a recording keeps."""

_NAME_BYTES, _FILE_BYTES = 3000, 1000  # together below SWT_MODULE_PATH_MAX


def sites_of(
    stacks: Iterable[tuple[Frame, ...]], modules: Iterable[Module]
) -> tuple[list[tuple[int, ...]], list[Module]]:
    """Return the addresses of each stack, and the modules that contain them."""
    functions: dict[tuple[str, str], int] = {}
    used: dict[Module, None] = {}
    find = finder(modules)

    def address_of(frame: Frame) -> int:
        if not isinstance(frame, Call) and frame < PYTHON_BASE:
            module = find(frame)
            used.update({module: None} if module else {})
            return frame
        call = frame if isinstance(frame, Call) else Call(f"{frame:#x}", "", 0)
        number = functions.setdefault((call.function, call.file), len(functions))
        line = call.line if 0 < call.line < 1 << LINE_BITS else 0
        return FUNCTION_BASE + (number << LINE_BITS) + line

    known: dict[Frame, int] = {}
    sites = []
    for stack in stacks:
        for frame in stack[:DEPTH_MAX]:
            if frame not in known:
                known[frame] = address_of(frame)
        sites.append(tuple(known[frame] for frame in stack[:DEPTH_MAX]))
    named = [_module(*names, number) for names, number in functions.items()]
    return sites, [*used, *named]


def _module(function: str, file: str, number: int) -> Module:
    start = FUNCTION_BASE + (number << LINE_BITS)
    path = b"\n".join((_clean(function)[:_NAME_BYTES], _clean(file)[-_FILE_BYTES:]))
    return Module(start, start + (1 << LINE_BITS), start, path.decode("utf-8", "ignore"), "")


def _clean(text: str) -> bytes:
    """Clean a part of a module's path, which has one line feed and no NUL."""
    return text.translate({0: "?", 10: " "}).encode("utf-8", "replace")


def finder(modules: Iterable[Module]) -> Callable[[int], Module | None]:
    """Return a function that finds the module of an address."""
    ordered = sorted(modules)
    starts = [module.start for module in ordered]

    def find(address: int) -> Module | None:
        place = bisect_right(starts, address) - 1
        return ordered[place] if place >= 0 and address < ordered[place].end else None

    return find


class MappedFiles:
    """Collects the modules of a profile from its mappings."""

    def __init__(self) -> None:
        self.modules: list[Module] = []  # those that a recording can have
        self._files: dict[str, ElfFile | None] = {}

    def add(self, start: int, end: int, offset: int, path: str, build_id: str = "") -> None:
        """Adds a mapping of a file."""
        if start >= end or not path.startswith("/") or not path.isprintable():
            return
        if path not in self._files:
            self._files[path] = None
            with suppress(ElfError, OSError):
                self._files[path] = ElfFile(path)
        address = None
        if (file := self._files[path]) is not None:
            with suppress(ElfError):
                address = file.address_of(offset)
        bias = (start - (offset if address is None else address)) % (1 << 64)
        self.modules.append(Module(start, end, bias, path, build_id))


# --- pprof ----------------------------------------------------------------------------------------

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
    """Return the samples of a profile."""
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
