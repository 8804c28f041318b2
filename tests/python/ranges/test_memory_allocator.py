# SPDX-License-Identifier: Apache-2.0
"""Memory allocators on every backing, and each bad use an exception."""

from __future__ import annotations

import random

import pytest
import spanwise as sw
from spanwise.ranges.scalable import BACKINGS


@pytest.mark.parametrize("backing", BACKINGS)
def test_every_backing_serves_the_same(backing: str) -> None:
    generator = random.Random(3)
    with sw.MemoryAllocator(1 << 16, backing=backing) as memory:
        live: list[tuple[sw.ScalableBlock, bytes]] = []
        for _ in range(600):
            if generator.random() < 0.6:
                text = generator.randbytes(generator.randrange(1, 900))
                try:
                    block = memory.alloc(len(text))
                except sw.LimitError:
                    continue
                block.view()[:] = text
                live.append((block, text))
            elif live:
                block, text = live.pop(generator.randrange(len(live)))
                assert bytes(block.view()) == text
                block.free()
            assert memory.stats().taken_bytes == sum(len(text) for _, text in live)
        assert all(bytes(block.view()) == text for block, text in live)
        memory.verify()
        for block, _ in live:
            block.free()


def test_it_is_full_and_empty_to_the_byte() -> None:
    memory = sw.MemoryAllocator(1000)
    blocks = [memory.alloc(250) for _ in range(4)]
    with pytest.raises(sw.LimitError):
        memory.alloc(1)
    blocks[1].shrink(200)
    assert memory.alloc(50).address == blocks[1].address + 200
    assert repr(memory) == "<MemoryAllocator: 950 of 1,000 B taken>"
    for block in blocks:
        block.free()
    memory.trim()
    assert memory.stats().held_bytes == 0
    assert memory.alloc(1000).size_bytes == 1000


@pytest.mark.parametrize(("size", "backing"), [(0, "system"), (1 << 41, "system"), (8, "tape")])
def test_wrong_arguments(size: int, backing: str) -> None:
    with pytest.raises(sw.InvalidError):
        sw.MemoryAllocator(size, backing=backing)
