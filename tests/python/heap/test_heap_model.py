# SPDX-License-Identifier: Apache-2.0
"""Heaps against models."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import spanwise as sw
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.python.helpers import assert_identity


class HeapMachine(RuleBasedStateMachine):
    """Random use of one heap against a dictionary of what it must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.heap = sw.Heap("go")
        self.blocks: dict[int, tuple[sw.Block, int]] = {}
        self.views: list[tuple[int, Any]] = []
        self.count = 0

    @rule(size=st.integers(0, 40000), zero=st.booleans(), scan=st.booleans())
    def alloc(self, size: int, zero: bool, scan: bool) -> None:
        """Allocates, and marks every byte."""
        block = self.heap.alloc(size, zero=zero, scan=scan)
        mark = self.count % 251
        block.view()[:] = mark
        self.blocks[self.count] = (block, mark)
        self.count += 1

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        """Frees what has no view; its bytes are as they were marked."""
        key = data.draw(st.sampled_from(sorted(self.blocks)))
        block, mark = self.blocks[key]
        assert (block.view() == mark).all()
        if any(owner == key for owner, _ in self.views):
            with pytest.raises(BufferError):
                block.free()
        else:
            block.free()
            del self.blocks[key]
            with pytest.raises(sw.BlockFreedError):
                block.free()

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        """Takes a view."""
        key = data.draw(st.sampled_from(sorted(self.blocks)))
        self.views.append((key, self.blocks[key][0].view()[:7]))

    @precondition(lambda self: self.views)
    @rule()
    def look_away(self) -> None:
        """Drops a view."""
        self.views.pop()

    @rule()
    def account(self) -> None:
        """The ledger agrees with the model."""
        self.heap.verify()
        ledger = self.heap.ledger()
        assert_identity(ledger)
        assert ledger.live_objects == len(self.blocks)
        assert ledger.requested_bytes == sum(block.size_bytes for block, _ in self.blocks.values())

    def teardown(self) -> None:
        """Closes."""
        self.views.clear()
        self.heap.close()


TestHeapMachine = HeapMachine.TestCase


@given(st.lists(st.tuples(st.integers(0, 3000), st.sampled_from([None, 8, 64, 4096])), max_size=50))
def test_blocks_do_not_overlap(requests: list[tuple[int, int | None]]) -> None:
    with sw.Heap("c16") as heap:
        blocks = [heap.alloc(size, align=align) for size, align in requests]
        ends = sorted((block.address, block.address + block.usable_bytes) for block in blocks)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
