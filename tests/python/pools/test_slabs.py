# SPDX-License-Identifier: Apache-2.0
"""Tiered slabs in Python: tiers, fall-backs, bad use, ends in any order."""

from __future__ import annotations

import pytest
import spanwise as sw


def test_by_hand() -> None:
    with sw.Heap() as heap, sw.TieredSlabs(heap, capacity=2) as slabs:
        sizes = (0, 256, 257, 4096)
        blocks = [slabs.alloc(size, zero=True) for size in sizes]
        assert [block.usable_bytes for block in blocks] == [256, 256, 1024, 4096]
        assert [len(block) for block in blocks] == list(sizes)
        assert not blocks[3].view().any()
        blocks[3].view()[:] = 7
        assert heap.ledger().live_objects == 0
        assert slabs.tiers()["used_slots"].tolist() == [2, 1, 1]
        assert slabs.tiers()["requested_bytes"].tolist() == [256, 257, 4096]
        place = blocks[0].address
        blocks[0].free()
        assert slabs.alloc(1).address == place
        assert repr(slabs) == "<TieredSlabs of 256/1024/4096 B: 4 slots in use>"
        assert slabs.stats().held_bytes == 3 * 65536
        for block in blocks[1:]:
            block.free()
        assert slabs.trim() == 2 * 65536
    assert repr(slabs) == "<TieredSlabs, closed>"


def test_requests_without_a_slot_raise_alerts() -> None:
    alerts: list[tuple[str, int, int]] = []
    with sw.Heap() as heap:
        slabs = sw.TieredSlabs(
            heap, (64,), capacity=1, alert=lambda *all_: alerts.append(all_), alert_every=2
        )
        blocks = [slabs.alloc(size) for size in (64, 50, 50, 100, 100)]
        assert alerts == [("full", 50, 1), ("over-tier", 100, 3)]
        stats = slabs.stats()
        assert (stats.full, stats.over_tier, stats.own_objects) == (2, 2, 4)
        assert heap.ledger().live_objects == 4
        blocks[1].free()
        assert slabs.stats().own_objects == 3
        slabs.close()  # with what it has of the heap
        assert heap.ledger().live_objects == 0


def test_an_alert_that_raises_leaves_no_block() -> None:
    def refuse(reason: str, size: int, count: int) -> None:
        raise KeyError(reason)

    with sw.Heap() as heap, sw.TieredSlabs(heap, alert=refuse) as slabs:
        with pytest.raises(KeyError, match="over-tier"):
            slabs.alloc(5000)
        assert heap.ledger().live_objects == 0


def test_bad_use() -> None:
    with sw.Heap() as heap:
        slabs = sw.TieredSlabs(heap, capacity=4)
        block = slabs.alloc(100)
        view = block.view()[3:]
        with pytest.raises(sw.BlockBusyError, match="1 view of"):
            block.free()
        with pytest.raises(sw.BlockBusyError, match="1 view of blocks of the slabs is alive"):
            slabs.close()
        with pytest.raises(sw.BlockBusyError):
            heap.close()
        del view
        block.free()
        for _ in range(2):
            with pytest.raises(sw.BlockFreedError, match="is already free") as caught:
                block.free()
            assert caught.value.code == "DOUBLE_FREE"
        with pytest.raises(sw.BlockFreedError):
            block.view()
        late = slabs.alloc(1)
        slabs.close()
        for use in (late.free, late.view, slabs.stats, slabs.trim, lambda: slabs.alloc(1)):
            with pytest.raises(sw.StateError, match="the TieredSlabs is closed"):
                use()
        for tiers in ((), (0,), (24,), (64, 64), (64, 32), (2**21,), range(16, 160, 16)):
            with pytest.raises(sw.InvalidError):
                sw.TieredSlabs(heap, tiers)
        with pytest.raises(sw.InvalidError):
            sw.TieredSlabs(heap, capacity=0)
        with pytest.raises(sw.InvalidError):
            sw.TieredSlabs(heap, alert_every=0)
    with sw.Heap(dry=True) as dry, pytest.raises(sw.UnsupportedError):
        sw.TieredSlabs(dry)
