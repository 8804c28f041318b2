# SPDX-License-Identifier: Apache-2.0
"""Heaps: allocation, misuse, accounts, maps, views, threads. test_runs.py: workloads."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import spanwise as sw

from tests.python.helpers import (
    ALLOC,
    assert_identity,
    in_threads,
    make_ops,
    random_ops,
)

# --- allocation -----------------------------------------------------------------------------------


def test_a_block_has_what_was_asked_for(heap: sw.Heap) -> None:
    block = heap.alloc(100)
    assert (block.size_bytes, len(block), block.usable_bytes, block.freed) == (100, 100, 112, False)
    assert block.address % 8 == 0
    assert repr(block) == (f"<Block of heap {heap.id}: 100 B, 112 usable, at {block.address:#x}>")
    block.free()
    assert block.freed
    assert heap.stats().live_objects == 0
    heap.verify()


@pytest.mark.parametrize("size", [0, 1, 24, 500, 40000, 3 << 20])
def test_zeroed_blocks_read_as_zero_after_reuse(heap: sw.Heap, size: int) -> None:
    for _ in range(3):
        block = heap.alloc(size, zero=True)
        assert not block.view().any()
        block.view()[:] = 0xFF
        block.free()


@pytest.mark.parametrize("align", [1, 2, 8, 16, 64, 4096, 8192, 65536, 1 << 20])
@pytest.mark.parametrize("size", [0, 1, 100, 5000, 100_000])
def test_alignment(heap: sw.Heap, size: int, align: int) -> None:
    block = heap.alloc(size, align=align)
    assert block.address % align == 0
    assert block.usable_bytes >= size
    block.free()


def test_sizes_that_raise(heap: sw.Heap) -> None:
    class Raises:
        def __index__(self) -> int:
            raise KeyError("from __index__")

    with pytest.raises(KeyError, match="from __index__"):
        heap.alloc(Raises())
    for align, said in (
        (24, "alignment 24 is not a power of two"),
        (0, "align 0: give 1 or more"),
        (-1, "align -1 is negative; give 1 or more"),
        (1 << 62, f"heap {heap.id}: 8 bytes: out of memory, with align={1 << 62}"),
    ):
        with pytest.raises((sw.InvalidError, sw.OutOfMemoryError), match=f"^{said}$"):
            heap.alloc(8, align=align)
    assert heap.stats().live_objects == 0


def test_scanned_blocks_live_in_spans_of_their_own(heap: sw.Heap) -> None:
    heap.alloc(64)
    heap.alloc(64, scan=True)
    spans = heap.spans()
    assert sorted(spans["scan"].tolist()) == [0, 1]
    assert spans["live"].tolist() == [1, 1]


def test_limit() -> None:
    with sw.Heap("go", options=sw.HeapOptions(limit_bytes=1 << 20)) as heap:
        with pytest.raises(sw.LimitError) as caught:
            heap.alloc(2 << 20)
        assert str(caught.value) == f"heap {heap.id}: {2 << 20} bytes: limit reached"
        blocks = []
        with pytest.raises(MemoryError):
            while True:
                blocks.append(heap.alloc(1000))
        assert heap.held_bytes <= 1 << 20
        heap.verify()
        for block in blocks:
            block.free()
        assert heap.alloc(1000).usable_bytes == 1024


def test_tiny_objects_share_blocks() -> None:
    """Two pointer-free objects of 8 B: one alloc each, 16 B in all."""
    with sw.Heap("go", tiny=True) as heap:
        first, second = heap.alloc(8), heap.alloc(8)
        assert abs(first.address - second.address) == 8
        assert first.usable_bytes == second.usable_bytes == 16
        with pytest.raises(sw.StateError, match="shares its slot with others"):
            first.free()


# --- resizing, sized free, caches -----------------------------------------------------------------


def test_realloc_keeps_the_bytes(heap: sw.Heap) -> None:
    """100 B take a slot of 112, 113 B one of 128; shrinking to 0 B leaves a slot of 16."""
    block = heap.alloc(100)
    block.view()[:] = np.arange(100)
    first = block.address
    block.realloc(112)
    assert (block.address, block.size_bytes, block.usable_bytes) == (first, 112, 112)
    block.realloc(113, zero=True)
    assert (block.address != first, block.usable_bytes) == (True, 128)
    assert block.view()[:100].tolist() == list(range(100))
    assert not block.view()[112:].any()
    block.realloc(0)
    assert (block.size_bytes, block.freed) == (0, False)
    assert heap.stats().live_objects == 1
    block.free()
    with pytest.raises(sw.BlockFreedError):
        block.realloc(1)
    heap.verify()


def test_realloc_that_fails_changes_nothing(heap: sw.Heap) -> None:
    block = heap.alloc(100)
    view = block.view()
    with pytest.raises(sw.BlockBusyError, match=r"at \w+> is alive; before resizing it delete"):
        block.realloc(200)
    del view
    with pytest.raises(sw.OutOfMemoryError):
        block.realloc(1 << 60)
    assert (block.size_bytes, block.freed) == (100, False)
    block.free()


def test_a_block_is_freed_with_its_heap() -> None:
    with sw.Heap() as heap:
        block, freed = heap.alloc(100), heap.alloc(100)
        freed.free()
        assert (block.freed, freed.freed) == (False, True)
    assert block.freed and repr(block).endswith(f" at {block.address:#x}, freed>")
    for use in (block.view, block.free):
        with pytest.raises(sw.HeapClosedError, match="is closed"):
            use()


def test_what_keeps_a_heap_open_is_named() -> None:
    heap = sw.Heap()
    cache, pool, block = heap.open_cache(), sw.Pool(heap, 88), heap.alloc(10)
    view = block.view()
    with pytest.raises(sw.BlockBusyError) as caught:
        heap.close()
    assert str(caught.value) == (
        f"2 pools, slabs or caches allocate blocks of heap {heap.id} and 1 view of blocks of heap"
        f" {heap.id} is alive; before closing it close the pools, slabs and caches and delete the"
        " arrays and memoryviews of it"
    )
    del view
    cache.close()
    with pytest.raises(sw.BlockBusyError, match="1 pool, slabs or cache allocates blocks of heap"):
        heap.close()
    pool.close()
    heap.close()


@pytest.mark.parametrize("size", [0, 1, 100, 112, 5000, 32768, 32769, 100_000])
def test_sized_free(heap: sw.Heap, size: int) -> None:
    heap.alloc(size).free(size)
    block = heap.alloc(size)
    with pytest.raises(sw.InvalidError, match="belong to another class") as caught:
        block.free(size + 8192)
    assert caught.value.code == "SIZE_MISMATCH"
    block.free()
    for align in (16, 64, 4096, 16384, 1 << 16):  # its class may be larger than that of its size
        aligned = heap.alloc(size, align=align)
        with pytest.raises(sw.InvalidError, match=f"belong to another class; give {size}"):
            aligned.free(aligned.usable_bytes + 1)
        aligned.free(size)
    assert heap.stats().live_objects == 0
    heap.verify()


def test_explicit_caches(heap: sw.Heap) -> None:
    other_heap = sw.Heap()
    with heap.open_cache() as one, heap.open_cache() as two:
        blocks = [one.alloc(64) for _ in range(1000)]
        assert one.alloc(100, align=4096).address % 4096 == 0
        assert not one.alloc(500, zero=True).view().any()
        caches = set(heap.spans()["cache"].tolist())
        for block in blocks:
            two.free(block)
        with pytest.raises(sw.BlockFreedError):
            one.free(blocks[0])
        kept = two.alloc(10)
        assert len(caches | set(heap.spans()["cache"].tolist()) - {0}) >= 2
        two.realloc(kept, 1000)
        assert kept.size_bytes == 1000
        one.trim()
        with pytest.raises(sw.InvalidError, match="another heap"):
            one.free(other_heap.alloc(1))
        with pytest.raises(sw.BlockBusyError):
            heap.close()
    for closed in (lambda: one.alloc(1), lambda: one.free(kept), one.trim):
        with pytest.raises(sw.StateError):
            closed()
    kept.free()
    heap.verify()


# --- misuse ---------------------------------------------------------------------------------------


def test_double_free(heap: sw.Heap) -> None:
    block = heap.alloc(33)
    shown = repr(block)
    block.free()
    with pytest.raises(sw.BlockFreedError) as caught:
        block.free()
    assert str(caught.value) == f"{shown[:-1]}, freed> is already free"
    assert caught.value.code == "DOUBLE_FREE"
    with pytest.raises(sw.BlockFreedError, match=r" is free$"):
        block.view()


def test_closed_heap() -> None:
    heap = sw.Heap("go")
    block = heap.alloc(8)
    number = heap.id
    heap.close()
    heap.close()
    assert heap.closed
    calls: list[Callable[[], object]] = [
        lambda: heap.alloc(8),
        block.free,
        block.view,
        heap.ledger,
        heap.stats,
        heap.verify,
        heap.spans,
        heap.trim,
        heap.drain,
        lambda: heap.run(make_ops((ALLOC, 0, 8))),
        lambda: heap.set_time(1),
        lambda: heap.held_bytes,
        heap.__enter__,
    ]
    for call in calls:
        with pytest.raises(sw.HeapClosedError) as caught:
            call()
        assert str(caught.value) == f"heap {number} is closed"
    assert repr(heap) == f"<Heap {number}: table go, tracked, closed>"
    assert heap.explain(33).rounded_bytes == 48
    assert heap.table == sw.SizeClassTable.go()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("placement", "best", "placement 'best': must be one of lifo, address, fullest, lasting"),
        ("limit_bytes", 0, "limit_bytes 0 leaves no room; give bytes, or None for no limit"),
        ("limit_bytes", -1, "limit_bytes -1 is negative; give 0 or more"),
        ("limit_bytes", 1.5, "limit_bytes must be an integer, not float"),
        ("decay_ms", -1, "decay_ms -1 is not a time; give 0 or more"),
        ("decay_ms", math.nan, "decay_ms nan is not a time; give 0 or more"),
        ("decay_ms", "1", "decay_ms must be a number, not str"),
        ("batch_spans", 65536, "batch_spans 65536 is too large; give at most 65535"),
    ],
)
def test_bad_options(name: str, value: Any, message: str) -> None:
    with pytest.raises(TypeError if "must be a" in message else ValueError) as caught:
        sw.HeapOptions(**{name: value})
    assert str(caught.value) == message


# --- accounts -------------------------------------------------------------------------------------


def test_ledger_of_a_live_heap(heap: sw.Heap) -> None:
    blocks = [heap.alloc(size) for size in range(0, 70000, 97)]
    for block in blocks[::3]:
        block.free()
    ledger = heap.ledger()
    assert_identity(ledger)
    live = [block for block in blocks if not block.freed]
    assert ledger.live_objects == len(live) == heap.stats().live_objects
    assert ledger.requested_bytes == sum(block.size_bytes for block in live)
    rounded = ledger.roundup_bytes + ledger.large_rounding_bytes
    assert rounded == sum(block.usable_bytes - block.size_bytes for block in live)
    assert ledger.rss_bytes is not None
    assert ledger.rss_bytes > 0
    assert heap.held_bytes == ledger.held_bytes
    spans = heap.spans()
    assert int(spans["live"].sum()) == len(live)
    assert int(spans["bytes"].sum()) == int(ledger.classes["span_bytes"].sum())
    heap.verify()


def test_trim_gives_pages_back() -> None:
    with sw.Heap(options=sw.HeapOptions(decay_ms=math.inf)) as heap:
        heap.alloc(1 << 20).free()  # its cache keeps it
        assert heap.ledger().cached_bytes >= 1 << 20
        assert heap.ledger().free_page_bytes < 1 << 20  # the kept span is not among them
        assert heap.trim() >= 1 << 20
        assert heap.ledger().free_page_bytes == 0
        assert heap.ledger().cached_bytes < 1 << 20
        heap.verify()


def test_manual_clock_gives_pages_back() -> None:
    with sw.Heap(manual_clock=True, options=sw.HeapOptions(decay_ms=10)) as heap:
        heap.alloc(1 << 20).free()  # its cache keeps it
        assert heap.ledger().cached_bytes >= 1 << 20
        for tick in range(1, 5):
            heap.set_time(tick * 0.02)
        assert heap.ledger().free_page_bytes == 0
        assert heap.ledger().cached_bytes < 1 << 20
    for bad in (-1, math.inf, math.nan, "1"):
        with sw.Heap(manual_clock=True) as heap, pytest.raises(ValueError, match="give seconds"):
            heap.set_time(bad)  # type: ignore[arg-type]
    with sw.Heap() as heap, pytest.raises(sw.InvalidError, match="the clock is the system's"):
        heap.set_time(1)


# --- maps -----------------------------------------------------------------------------------------


OPS = random_ops(9, 4000)
RECORDING = sw.Recording.from_ops(OPS, name="mine")


def sums(one: sw.HeapMap) -> dict[str, int]:
    """Return the terms of a ledger, computed from the tiles."""
    tiles = np.asarray(one.array)
    slots, large, free = (tiles[tiles["kind"] == kind] for kind in range(3))
    cached = tiles[(tiles["flags"] & 1) != 0]
    return {
        "requested_bytes": int(tiles["requested_bytes"].sum()),
        "roundup_bytes": int(slots["roundup_bytes"].sum()),
        "tail_bytes": int(tiles["tail_bytes"].sum()),
        "free_slot_bytes": int(slots[(slots["flags"] & 1) == 0]["free_bytes"].sum()),
        "cached_bytes": int(cached["free_bytes"].sum()),
        "large_rounding_bytes": int(large["roundup_bytes"].sum()),
        "free_page_bytes": int(free["bytes"].sum()),
        "held_bytes": int(tiles["bytes"].sum()) + one.ledger.metadata_bytes,
        "live_objects": int(tiles["live"].sum()),
        "spans": len(slots),
    }


def check(one: sw.HeapMap) -> None:
    found = sums(one)
    assert found == {name: getattr(one.ledger, name) for name in found}
    assert (np.diff(one.array["offset"].astype(np.int64)) > 0).all()


@pytest.mark.parametrize("table", ["go", "c16", "pow2"])
@pytest.mark.parametrize("at", ["peak", "peak-resident", "end"])
def test_a_recording_has_a_map_at_each_moment(table: str, at: str) -> None:
    one = RECORDING.map(table, at)
    check(one)
    of_map, expected = one.ledger, RECORDING.ledger(table, at)
    assert replace(of_map, stats=None) == replace(expected, stats=None)
    touched = int(one.array["touched_bytes"].sum())
    assert expected.resident is not None
    assert touched + expected.resident.metadata_bytes == expected.resident_bytes


def test_slots_by_hand() -> None:
    """Class 48 of Go's table: three objects, the second is freed; then a large one."""
    with sw.Heap("go", dry=True) as heap:
        blocks = [heap.alloc(n) for n in (33, 34, 35)]
        heap.alloc(100_000)
        blocks[1].free()
        one = heap.map()
        (small,) = np.flatnonzero(one.array["cls"])
        slots = one.slots(int(small))
        assert len(slots) == 8192 // 48
        assert slots["live"][:4].tolist() == [True, False, True, False]
        assert slots["requested_bytes"][:4].tolist() == [33, 0, 35, 0]
        assert np.diff(slots["offset"]).tolist() == [48] * (len(slots) - 1)
        (large,) = np.flatnonzero(one.array["kind"] == 1)
        assert one.slots(int(large)).to_dicts()[0]["requested_bytes"] == 100_000
        with pytest.raises(sw.InvalidError, match="tile 99: the map has"):
            one.slots(99)


def test_what_has_no_map() -> None:
    nothing = sw.Recording.from_ops(OPS[:0], name="nothing")
    assert len(nothing.map("go")) == 0 and nothing.maps("go") == []
    with sw.Heap("go", dry=True) as heap, pytest.raises(sw.StateError):
        heap.map(resident=True)
    with pytest.raises(sw.InvalidError, match="without slots"):
        RECORDING.maps("go", samples=1)[0].slots(0)
    both = sw.RecordingSet([RECORDING, RECORDING])
    with pytest.raises(sw.InvalidError, match="one recording"):
        both.map("go")
    assert len(sw.RecordingSet([RECORDING]).map("go")) == len(RECORDING.map("go"))
    with pytest.raises(sw.InvalidError, match="after its end"):
        RECORDING.map("go", 1e6)


def test_blocks_keep_their_heap() -> None:
    block = sw.Heap().alloc(100)
    gc.collect()
    block.view()[:] = 1
    assert block.view().sum() == 100
    block.free()


def test_too_many_heaps() -> None:
    heaps = []
    with pytest.raises(sw.LimitError, match="heaps live already"):
        while True:
            heaps.append(sw.Heap())


# --- heap views -----------------------------------------------------------------------------------


def test_array_protocol(heap: sw.Heap) -> None:
    block = heap.alloc(4, zero=True)
    wide = np.asarray(block, dtype=np.float64)
    assert wide.dtype == np.float64
    copied = np.array(block)
    copied[:] = 1
    assert not block.view().any()
    block.free()  # copies do not hold it


def test_views_take_bytes(heap: sw.Heap) -> None:
    """As a bytearray does, for all bytes or some; other lengths and types are refused."""
    block = heap.alloc(8, zero=True)
    view = block.view()
    view[:5] = b"hello"
    view[5] = b"!"
    view[[6, 7]] = b"ab"
    assert view.tobytes() == b"hello!ab"
    view.reshape(2, 4)[:, :2] = b"WXYZ"
    assert bytes(view) == b"WXllYZab" and not isinstance(view + 1, type(view))
    view[:2], view[2:] = bytearray(b"ok"), 7
    assert bytes(view[:3]) == b"ok\x07" and view.max() == ord("o")
    for value in (b"a", b"seven b"):
        with pytest.raises(ValueError, match="bytes cannot be assigned to 8 elements"):
            view[:] = value
    view += 1
    assert np.shares_memory(view, block.view()) and bytes(view[:2]) == b"pl"
    with sw.Arena() as arena:
        memory = arena.alloc(3)
        memory[:] = b"abc"
        assert memory.tolist() == [97, 98, 99]
        del memory


def test_leaving_never_masks_the_bodys_exception() -> None:
    for action in ("always", "error"):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter(action, ResourceWarning)
            with pytest.raises(KeyError, match="body"), sw.Heap() as heap:
                view = heap.alloc(8).view()
                raise KeyError("body")
            assert heap.closed
            assert len(view) == 8


def test_dry_blocks_have_no_memory() -> None:
    with sw.Heap(dry=True) as heap:
        block = heap.alloc(100)
        assert block.address > 0
        with pytest.raises(sw.UnsupportedError, match="has no memory: its heap is dry"):
            block.view()
        block.free()


# --- threads --------------------------------------------------------------------------------------


def test_threads_free_each_others_blocks() -> None:
    with sw.Heap("go") as heap:
        baskets: list[list[sw.Block]] = [[] for _ in range(4)]

        def fill(number: int) -> None:
            for i in range(2000):
                block = heap.alloc(i * 7 % 3000)
                block.view()[:] = number
                baskets[(number + i) % 4].append(block)

        def empty(number: int) -> None:
            for block in baskets[number]:
                assert not len(block) or np.ptp(block.view()) == 0
                block.free()

        in_threads(fill, 4)
        assert heap.stats().live_objects == 8000
        in_threads(empty, 4)
        assert heap.ledger().requested_bytes == 0
        heap.verify()
