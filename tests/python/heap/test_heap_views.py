# SPDX-License-Identifier: Apache-2.0
"""Views of blocks: whom they keep, what they see."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spanwise as sw

VIEWS: dict[str, Callable[[sw.Block], Any]] = {
    "view": lambda block: block.view(),
    "asarray": np.asarray,
    "slice": lambda block: block.view()[10:20],
    "reshape": lambda block: block.view().reshape(10, 10).T,
    "other type": lambda block: block.view()[:96].view("<u4"),
    "memoryview of array": lambda block: memoryview(block.view()),  # type: ignore[arg-type]
    "from buffer": lambda block: np.frombuffer(memoryview(block.view()), np.uint8)[3:],  # type: ignore[arg-type]
    "element base": lambda block: np.lib.stride_tricks.as_strided(block.view(), (4,), (25,)),
}
if sys.version_info >= (3, 12):
    VIEWS["memoryview"] = memoryview  # type: ignore[assignment]
    VIEWS["slice of memoryview"] = lambda block: memoryview(block)[5:]


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_keeps_its_block(heap: sw.Heap, name: str) -> None:
    block = heap.alloc(100)
    shown = repr(block)
    view = VIEWS[name](block)
    with pytest.raises(BufferError) as caught:
        block.free()
    assert str(caught.value) == (
        f"1 view of {shown} is alive; release what view(), np.asarray() or memoryview() gave before"
        " freeing it"
    )
    with pytest.raises(BufferError) as caught:
        heap.close()
    assert str(caught.value) == (
        f"1 view of blocks of heap {heap.id} is alive; release what view(), np.asarray() or"
        " memoryview() gave before closing it"
    )
    assert not heap.closed
    del view
    gc.collect()
    block.free()


def test_views_see_the_same_bytes(heap: sw.Heap) -> None:
    block = heap.alloc(16, zero=True)
    first, second = block.view(), np.asarray(block)
    first[3] = 7
    assert second[3] == 7
    assert first.ctypes.data == second.ctypes.data == block.address
    assert first.dtype == np.uint8
    assert first.flags.writeable
    with pytest.raises(BufferError, match="2 views of <Block"):
        block.free()


def test_array_protocol(heap: sw.Heap) -> None:
    block = heap.alloc(4, zero=True)
    wide = np.asarray(block, dtype=np.float64)
    assert wide.dtype == np.float64
    copied = np.array(block)
    copied[:] = 1
    assert not block.view().any()
    block.free()  # copies do not hold it


def test_empty_view(heap: sw.Heap) -> None:
    block = heap.alloc(0)
    view = block.view()
    assert view.shape == (0,)
    del view
    block.free()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="blocks are buffers from Python 3.12 on")
def test_no_memoryview_before_312(heap: sw.Heap) -> None:
    with pytest.raises(TypeError):
        memoryview(heap.alloc(8))


def test_leaving_with_a_view_warns_and_puts_release_off() -> None:
    with pytest.warns(ResourceWarning) as caught, sw.Heap() as heap:
        view = heap.alloc(100).view()
        view[:] = 5
    assert len(caught) == 1
    assert str(caught[0].message) == (
        f"heap {heap.id} is closed with 1 live view; its memory goes with the last"
    )
    assert heap.closed
    assert (view == 5).all()
    view[:] = 6  # still ours
    del view
    gc.collect()


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
