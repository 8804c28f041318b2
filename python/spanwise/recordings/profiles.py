# SPDX-License-Identifier: Apache-2.0
"""Heap profiles as whole objects with call stacks.

A sampled profile has fractions of objects: bytes that are no multiple of the object's size. Objects
of one size are counted over all stacks, and fractions go to the stacks with the largest remainders.
The total then differs from the file's by at most half an object per size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from spanwise.recordings.elf import ElfError, ElfFile
from spanwise.recordings.names import FUNCTION_BASE, LINE_BITS, PYTHON_BASE
from spanwise.recordings.sources import Module

Key = TypeVar("Key", int, tuple[int, int])


class Call(NamedTuple):
    """A frame that the profile names.

    Attributes:
        line: 0 when it is not known.
    """

    function: str
    file: str
    line: int


Frame = Call | int
"""A named call, or a return address."""


class Sample(NamedTuple):
    """What a profile counts at a call stack.

    Attributes:
        objects: how many; not used when the size is known and there are bytes.
        total_bytes: of all of them.
        size: of each of them; None: not known, so that they share the bytes evenly.
        stack: innermost frame first; () when it is not known.
    """

    objects: int
    total_bytes: int
    size: int | None = None
    stack: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """What a file says of one moment.

    Attributes:
        noun: what the file is.
        remarks: what users of the recording must know, as parts of a sentence.
        modules: in which return addresses of stacks are looked up.
    """

    samples: Sequence[Sample]
    noun: str
    remarks: Sequence[str] = ()
    modules: Sequence[Module] = ()


@dataclass(frozen=True)
class Objects:
    """Whole objects.

    Attributes:
        counts: by size and by the number of their stack.
        stacks: by number; the first is ().
        file_bytes: the sum of the samples.
        uncounted_bytes: bytes of samples without a count; each such sample is one object.
    """

    counts: dict[tuple[int, int], int]
    stacks: list[tuple[Frame, ...]]
    file_bytes: int
    uncounted_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum of the objects."""
        return sum(size * count for (size, _), count in self.counts.items())


def objects_of(samples: Iterable[Sample]) -> Objects:
    """The objects of samples."""
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
    """Objects of one size by stack, of which all together have the nearest number of bytes."""
    total = (2 * sum(bytes_by_stack.values()) + size) // (2 * size)
    return largest_remainders(bytes_by_stack, 1, size, total)


def scaled(counts: Mapping[Key, int], most: int) -> dict[Key, int]:
    """Counts of `most` objects in all."""
    return largest_remainders(counts, most, sum(counts.values()), most)


def largest_remainders(
    shares: Mapping[Key, int], factor: int, divisor: int, total: int
) -> dict[Key, int]:
    """Each share * factor / divisor, rounded so that they add up to `total` (Hamilton's method)."""
    kept = {key: share * factor // divisor for key, share in shares.items()}
    order = sorted(shares, key=lambda key: (-(shares[key] * factor % divisor), key))
    for key in order[: total - sum(kept.values())]:
        kept[key] += 1
    return {key: count for key, count in kept.items() if count}


# --- stacks as call sites -------------------------------------------------------------------------
#
# A return address stays one. A call that the profile names becomes an address in a module that
# stands for its function: beyond all addresses of programs, as functions of Python are.

DEPTH_MAX = 128
"""Frames of a call site that a recording keeps, from the innermost on: SWT_SITE_DEPTH_MAX."""

_NAME_BYTES, _FILE_BYTES = 3000, 1000  # together below SWT_MODULE_PATH_MAX


def sites_of(
    stacks: Iterable[tuple[Frame, ...]], modules: Iterable[Module]
) -> tuple[list[tuple[int, ...]], list[Module]]:
    """Addresses of each stack, and the modules that these are in.

    Stacks begin with the innermost frame; return addresses are looked up in `modules`.
    """
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
    """The module of a function."""
    start = FUNCTION_BASE + (number << LINE_BITS)
    path = b"\n".join((_clean(function)[:_NAME_BYTES], _clean(file)[-_FILE_BYTES:]))
    return Module(start, start + (1 << LINE_BITS), start, path.decode("utf-8", "ignore"), "")


def _clean(text: str) -> bytes:
    """What may be part of a module's path, which has one line feed and no NUL."""
    return text.translate({0: "?", 10: " "}).encode("utf-8", "replace")


def finder(modules: Iterable[Module]) -> Callable[[int], Module | None]:
    """A function that finds the module of an address."""
    ordered = sorted(modules)
    starts = [module.start for module in ordered]

    def find(address: int) -> Module | None:
        place = bisect_right(starts, address) - 1
        return ordered[place] if place >= 0 and address < ordered[place].end else None

    return find


class MappedFiles:
    """Modules of a profile, by what was mapped where.

    Attributes:
        modules: those that a recording can have.
    """

    def __init__(self) -> None:
        self.modules: list[Module] = []
        self._files: dict[str, ElfFile | None] = {}

    def add(self, start: int, end: int, offset: int, path: str, build_id: str = "") -> None:
        """Adds what is mapped from a file's offset on.

        The bias of the module needs the file; if that is not here, addresses in it are taken to be
        offsets, as they are in the text of most position-independent files.
        """
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
