# SPDX-License-Identifier: Apache-2.0
"""Convert heap profiles to whole objects with call stacks.

A sampled profile has fractions of objects: bytes that are not a multiple of the object's size.
Objects of one size are summed over all stacks and rounded; the stacks with the largest remainders
are rounded up. So the total differs from the file's by at most half an object per size.
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
        line: 0 if unknown.
    """

    function: str
    file: str
    line: int


Frame = Call | int
"""A named call, or a return address."""


class Sample(NamedTuple):
    """The counts of a profile at a call stack.

    Attributes:
        objects: their number; not used if size and bytes are known.
        total_bytes: of all of them.
        size: of each of them; None: unknown, so that they share the bytes evenly.
        stack: innermost frame first; () if unknown.
    """

    objects: int
    total_bytes: int
    size: int | None = None
    stack: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The content of a file about one moment.

    Attributes:
        noun: for the file.
        remarks: caveats for users of the recording, as parts of a sentence.
        modules: to look up return addresses of stacks.
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
    """Return the addresses of each stack, and the modules that contain them.

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
    """Collects the modules of a profile from its mappings.

    Attributes:
        modules: those that a recording can have.
    """

    def __init__(self) -> None:
        self.modules: list[Module] = []
        self._files: dict[str, ElfFile | None] = {}

    def add(self, start: int, end: int, offset: int, path: str, build_id: str = "") -> None:
        """Adds a mapping of a file.

        The bias of the module is read from the file. If that is missing, addresses are taken for
        file offsets, as in the text of most position-independent files.
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
