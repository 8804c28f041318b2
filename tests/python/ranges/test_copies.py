# SPDX-License-Identifier: Apache-2.0
"""What stands for memory is not copied: a copy of an owner ended the process at its next call."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import spanwise as sw


def _things() -> list[object]:
    """One of each class that stands for memory of C."""
    allocator, stack, heap = sw.ScalableAllocator(), sw.Stack(), sw.Heap()
    pushed = stack.push(100)
    return [
        sw.RangeAllocator(100),
        sw.BuddyAllocator(1 << 20),
        allocator,
        allocator.alloc(100),
        sw.MemoryAllocator(1 << 20),
        sw.Memory(b"abc"),
        sw.RecyclableMemory(None),
        sw.Reader(b"abc"),
        stack,
        pushed,
        stack.register(pushed, 5),
        sw.Pool(heap, 100),
        sw.TieredSlabs(heap),
        sw.Arena(),
        sw.ArenaTracker(),
    ]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_nothing_is_copied(copied: Callable[[object], object]) -> None:
    for thing in _things():
        name = type(thing).__name__
        with pytest.raises(TypeError, match=f"^{name} cannot be copied or pickled"):
            copied(thing)
