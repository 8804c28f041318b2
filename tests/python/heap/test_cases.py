# SPDX-License-Identifier: Apache-2.0
"""Allocation counts of well-known Go cases, to the byte, by running them on a real heap.

Each case uses the sizes of Go's layout (int and pointer 8 B, string 16 B). The counts are those of
`-benchmem`, B/op and allocs/op: bytes of the slots, and allocations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import spanwise as sw

INT = POINTER = 8
BOOK = 40  # two strings and an int


class Counter:
    """Allocates on a heap and counts."""

    def __init__(self, heap: sw.Heap) -> None:
        self.heap = heap
        self.blocks: list[sw.Block] = []

    def alloc(self, size: int) -> int:
        """Allocate a block, write all of it, and return the slot's bytes."""
        block = self.heap.alloc(size)
        block.view()[:] = 0xA5
        self.blocks.append(block)
        return block.usable_bytes

    @property
    def count(self) -> tuple[int, int]:
        """B/op and allocs/op."""
        return sum(block.usable_bytes for block in self.blocks), len(self.blocks)

    @property
    def wasted(self) -> int:
        """Slot bytes beyond what was requested."""
        return sum(block.usable_bytes - block.size_bytes for block in self.blocks)


@contextmanager
def counting() -> Iterator[Counter]:
    """A counter on a fresh heap with Go's table, whose ledger must agree with it."""
    with sw.Heap("go") as heap:
        counter = Counter(heap)
        yield counter
        ledger = heap.ledger()
        held = ledger.requested_bytes + ledger.roundup_bytes + ledger.large_rounding_bytes
        assert (held, ledger.live_objects) == counter.count
        assert ledger.roundup_bytes + ledger.large_rounding_bytes == counter.wasted
        heap.verify()


class Ints:
    """A slice of ints that grows like Go's append."""

    def __init__(self, counter: Counter, capacity: int = 0) -> None:
        self.counter = counter
        self.length = 0
        self.capacity = counter.alloc(capacity * INT) // INT if capacity else 0
        self.capacities = [self.capacity] if capacity else []

    def append(self, count: int) -> None:
        """Append `count` ints."""
        need = self.length + count
        if need > self.capacity:
            self.capacity = self.counter.alloc(self._grown(need) * INT) // INT
            self.capacities.append(self.capacity)
        self.length = need

    def _grown(self, need: int) -> int:
        old = self.capacity
        if need > 2 * old:
            return need
        if old < 256:
            return 2 * old
        while old < need:
            old += (old + 3 * 256) // 4
        return old


def test_array_of_five_ints() -> None:
    with counting() as counter:
        assert counter.alloc(5 * INT) == 48


def test_concat() -> None:
    """Two strings of 33 B and their sum: 3 allocs, 176 B, 44 wasted."""
    with counting() as counter:
        for size in (33, 33, 66):
            counter.alloc(size)
        assert counter.count == (176, 3)
        assert counter.wasted == 44


def test_append() -> None:
    """Joining slices of 2, 3, 4, 5 and 3 ints without knowing how many: capacities 2, 6, 12, 24."""
    with counting() as counter:
        joined = Ints(counter)
        for count in (2, 3, 4, 5, 3):
            joined.append(count)
        assert joined.capacities == [2, 6, 12, 24]
        assert counter.count == (352, 4)


def test_merge_that_knows_the_length() -> None:
    with counting() as counter:
        joined = Ints(counter, capacity=2 + 3 + 4 + 5 + 3)
        for count in (2, 3, 4, 5, 3):
            joined.append(count)
        assert counter.count == (144, 1)


def test_filter() -> None:
    """The even ones of 1024 ints: into a new slice of full capacity, and in place."""
    with counting() as counter:
        kept = Ints(counter, capacity=1024)
        for _ in range(512):
            kept.append(1)
        assert counter.count == (8192, 1)
    with counting() as counter:
        assert counter.count == (0, 0)


def one_block(counter: Counter, books: int) -> None:
    """A slice of pointers into one block of all books."""
    counter.alloc(books * POINTER)
    counter.alloc(books * BOOK)


def one_by_one(counter: Counter, books: int) -> None:
    """A slice of pointers to books of their own."""
    counter.alloc(books * POINTER)
    for _ in range(books):
        counter.alloc(BOOK)


def played(case: Callable[[Counter, int], None], books: int) -> tuple[int, int]:
    with counting() as counter:
        case(counter, books)
        return counter.count


@pytest.mark.parametrize(
    ("books", "block", "each"),
    [
        (100, (4992, 2), (5696, 101)),
        (819, (39552, 2), (46096, 820)),
        (820, (47744, 2), (46144, 821)),
        (853, (47872, 2), (47856, 854)),
        (854, (47872, 2), (47904, 855)),
    ],
)
def test_books(books: int, block: tuple[int, int], each: tuple[int, int]) -> None:
    assert played(one_block, books) == block
    assert played(one_by_one, books) == each


def test_one_block_of_books_loses_from_820_to_853() -> None:
    table = sw.SizeClassTable.go()
    losing = [n for n in range(700, 1000) if table.round_up(n * BOOK) > n * table.round_up(BOOK)]
    assert losing == list(range(820, 854))


def test_tiny_objects_share_blocks() -> None:
    """Two pointer-free objects of 8 B: one alloc each, 16 B in all."""
    with sw.Heap("go", tiny=True) as heap:
        first, second = heap.alloc(8), heap.alloc(8)
        assert abs(first.address - second.address) == 8
        assert first.usable_bytes == second.usable_bytes == 16
        with pytest.raises(sw.StateError, match="shares its slot with others"):
            first.free()
