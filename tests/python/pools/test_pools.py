# SPDX-License-Identifier: Apache-2.0
"""Pools and tiered slabs: by hand, bad use, ends in any order."""

from __future__ import annotations

import gc

import pytest
import spanwise as sw


def test_by_hand() -> None:
    """At most two blocks are kept, and the last one put back is reused first."""
    with sw.Heap() as heap, sw.Pool(heap, 88, capacity=2) as pool:
        blocks = [pool.get() for _ in range(3)]
        places = [block.address for block in blocks]
        assert [block.size_bytes for block in blocks] == [88] * 3
        blocks[2].view()[:] = 7
        for block in blocks:
            pool.put(block)
        assert pool.stats() == sw.PoolStats(idle=2, gets=3, fresh=3, puts=3, dropped=1, aged=0)
        assert repr(pool) == "<Pool of 88 B: 2 idle, 3 made>"
        assert [pool.get().address for _ in range(2)] == [places[1], places[0]]
        assert pool.item_bytes == 88
    assert repr(pool) == "<Pool of 88 B, closed>"


def test_collections_age_a_pool() -> None:
    with sw.CollectedHeap() as collected, sw.Heap() as heap, sw.Pool(heap, 64, aged=True) as pool:
        pool.age_with(collected)
        pool.put(pool.get())
        collected.collect()
        assert pool.stats().idle == 1
        collected.collect()
        assert (pool.stats().idle, pool.stats().aged) == (0, 1)
        pool.put(pool.get())
        pool.age_with(None)
        for _ in range(3):
            collected.collect()
        assert pool.stats().idle == 1
        pool.age_with(collected)
        collected.close()
        pool.put(pool.get())
        with pytest.raises(sw.HeapClosedError):
            pool.age_with(collected)
        with pytest.raises(TypeError, match="CollectedHeap"):
            pool.age_with(heap)  # type: ignore[arg-type]
    with (
        sw.CollectedHeap() as collected,
        sw.Heap() as heap,
        sw.Pool(heap, 64) as pool,
        pytest.raises(sw.UnsupportedError, match="aged"),
    ):
        pool.age_with(collected)


def test_constructors_see_new_blocks_only() -> None:
    seen: list[int] = []

    def construct(block: sw.Block) -> None:
        if len(seen) == 2:
            raise KeyError("enough")
        seen.append(block.address)
        block.view()[:] = 5

    with sw.Heap() as heap, sw.Pool(heap, 64, construct=construct) as pool:
        block = pool.get()
        assert set(block.view()) == {5}
        pool.put(block)
        pool.get()
        pool.get()
        assert len(seen) == 2
        live = heap.ledger().live_objects
        with pytest.raises(KeyError):
            pool.get()
        assert heap.ledger().live_objects == live  # it is freed again


# --- bad use --------------------------------------------------------------------------------------


def test_a_block_is_put_once() -> None:
    with sw.Heap() as heap, sw.Pool(heap, 64) as pool:
        block = pool.get()
        pool.put(block)
        for _ in range(2):
            with pytest.raises(sw.BlockFreedError, match="was already put back") as caught:
                pool.put(block)
            assert caught.value.code == "DOUBLE_PUT"
        for use in (block.view, block.free):
            with pytest.raises(sw.BlockFreedError):
                use()
        other = pool.get()  # the same memory again: the old name stays dead
        with pytest.raises(sw.BlockFreedError):
            pool.put(block)
        other.free()
        with pytest.raises(sw.BlockFreedError):
            pool.put(other)
        assert (pool.stats().puts, pool.stats().idle) == (1, 0)


def test_what_a_pool_refuses() -> None:
    with sw.Heap() as heap, sw.Heap() as other, sw.Pool(heap, 64) as pool:
        for wrong, words in (
            (heap.alloc(65), "blocks of 64 bytes"),
            (other.alloc(64), "does not belong to the heap"),
        ):
            with pytest.raises(sw.InvalidError, match=words):
                pool.put(wrong)
            wrong.free()  # it is still the caller's
        pool.put(heap.alloc(64))  # as good as one of its own
        bad: tuple[tuple[type[Exception], dict[str, object]], ...] = (
            (sw.InvalidError, {"item_bytes": 0}),
            (sw.InvalidError, {"item_bytes": -1}),
            (sw.InvalidError, {"item_bytes": 1 << 63}),
            (TypeError, {"item_bytes": 1.5}),
            (sw.InvalidError, {"capacity": 0}),
            (sw.InvalidError, {"capacity": -5}),
            (sw.InvalidError, {"capacity": (1 << 32) + 1}),
            (sw.InvalidError, {"order": "filo"}),
            (sw.UnsupportedError, {"order": "fifo", "aged": True}),
            (sw.UnsupportedError, {"order": "fifo", "thread_slots": True}),
            (sw.UnsupportedError, {"zero": True, "construct": print}),
        )
        for kind, options in bad:
            with pytest.raises(kind):
                sw.Pool(heap, **{"item_bytes": 64, **options})  # type: ignore[arg-type]
    with sw.Heap(dry=True) as heap, pytest.raises(sw.UnsupportedError, match="dry"):
        sw.Pool(heap, 64)
    with sw.Heap(tiny=True) as heap:
        with pytest.raises(sw.UnsupportedError, match="share slots"):
            sw.Pool(heap, 15)
        sw.Pool(heap, 16).close()


def test_no_memory() -> None:
    options = sw.HeapOptions(limit_bytes=1 << 20)
    with sw.Heap(options=options) as heap, sw.Pool(heap, 1 << 16) as pool:
        kept = []
        with pytest.raises(sw.OutOfMemoryError):
            while True:
                kept.append(pool.get())
        pool.put(kept.pop())
        kept.append(pool.get())


# --- ends -----------------------------------------------------------------------------------------


def test_a_dropped_pool_frees_its_idle_blocks() -> None:
    with sw.Heap() as heap:
        pool = sw.Pool(heap, 64)
        kept = pool.get()
        pool.put(pool.get())
        assert heap.ledger().live_objects == 2
        del pool
        gc.collect()
        assert heap.ledger().live_objects == 1
        kept.free()


# --- tiered slabs ---------------------------------------------------------------------------------


def test_slabs_by_hand() -> None:
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


def test_bad_use_of_slabs() -> None:
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
