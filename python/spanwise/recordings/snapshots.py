# SPDX-License-Identifier: Apache-2.0
"""Heap profiles and statistics as objects: whole objects whose bytes add up to the file's.

A profile that was sampled has fractions of objects: bytes that are no multiple of the object's
size. Objects of one size are counted over all stacks, and the fractions go to the stacks with the
largest remainders, so that the total differs from the file's by at most half an object per size.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

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
    """Counts of `most` objects in all.

    Args:
        counts: more objects than `most`, by size, or by size and stack.
        most: objects that are wanted.
    """
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
