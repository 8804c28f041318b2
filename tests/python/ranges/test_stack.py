# SPDX-License-Identifier: Apache-2.0
"""Stack allocators: growth, marks, and each bad use an exception."""

from __future__ import annotations

import gc

import pytest
import spanwise as sw
from spanwise.errors import (
    BlockBusyError,
    EscapeError,
    InvalidError,
    StackOverflowError,
    StateError,
)

KIB = 1 << 10


@pytest.mark.parametrize(("growth", "held"), [("copy", 16), ("chain", 14)])
def test_growth_by_doubling(growth: str, held: int) -> None:
    with sw.Stack(growth=growth) as stack:
        for index in range(9):
            stack.push(KIB).view()[:1] = bytes([index])
        stats = stack.stats()
        assert (stats.depth, stats.held_bytes) == (9 * KIB, held * KIB)
        assert stats.growths == (3 if growth == "copy" else 2)
        assert stats.copied_bytes == (14 * KIB if growth == "copy" else 0)
        assert repr(stack) == f"<Stack, {growth}: 9,216 of {held * KIB:,} B pushed>"


@pytest.mark.parametrize("growth", ["copy", "chain"])
def test_a_released_block_is_an_error(growth: str) -> None:
    stack = sw.Stack(growth=growth)
    kept = stack.push(16)
    with stack.frame() as mark:
        assert mark == 16
        gone = stack.push(16)
        with pytest.raises(EscapeError, match="depth 16, above mark 16"):
            stack.release(mark, result=gone)
        assert not gone.released
    assert gone.released
    with pytest.raises(StateError, match="released"):
        gone.view()
    with pytest.raises(StateError, match="cannot be a result"):
        stack.release(0, result=gone)
    with pytest.raises(StateError, match="it was released"):
        stack.release(32)
    stack.release(16, result=kept)
    stack.close()
    assert kept.released
    with pytest.raises(StateError, match="closed"):
        stack.push(1)


def test_views_hold_the_stack_where_it_is() -> None:
    stack = sw.Stack(first_bytes=32, limit_bytes=64)
    view = stack.push(16).view()
    stack.push(16)  # there is room for it
    with pytest.raises(BlockBusyError, match="moves"):
        stack.push(1)
    with pytest.raises(BlockBusyError, match="released"):
        stack.release(0)
    with pytest.raises(BlockBusyError, match="ends"):
        stack.close()
    part = view[3:5]
    del view
    gc.collect()
    with pytest.raises(BlockBusyError):
        stack.trim()
    part[:] = b"ab"
    del part
    stack.push(1)
    stack.verify()
    stack.close()


def test_the_limit_has_a_name() -> None:
    stack = sw.Stack(first_bytes=16, limit_bytes=1024)
    stack.push(1000)
    with pytest.raises(StackOverflowError, match="limit is 1024") as caught:
        stack.push(17)
    assert isinstance(caught.value, MemoryError)
    assert caught.value.code == "OVERFLOW"
    assert stack.depth == 1008


@pytest.mark.parametrize("size", [0, -1, 1 << 63])
def test_wrong_sizes(size: int) -> None:
    with pytest.raises(InvalidError):
        sw.Stack().push(size)


def test_wrong_arguments() -> None:
    for arguments in ({"growth": "jump"}, {"first_bytes": 8}, {"limit_bytes": 24}):
        with pytest.raises(InvalidError):
            sw.Stack(**arguments)
    stack = sw.Stack()
    stack.push(1)
    stack.push(32)
    for mark in (-1, 8, 32):
        with pytest.raises(InvalidError):
            stack.release(mark)
    assert stack.depth == 48
    with pytest.raises(TypeError):
        stack.push(1.0)  # type: ignore[arg-type]


# --- registered pointers --------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [False, True])
def test_a_registered_pointer_follows_the_stack(inside: bool) -> None:
    stack = sw.Stack(first_bytes=64)
    slots = stack.push(16)
    text = stack.push(5)
    text.view()[:] = b"hello"
    pointer = stack.register(text, 1, kept_in=slots if inside else None, kept_at=8 if inside else 0)
    moved = {text.address}
    for growths in range(1, 8):  # a full stack of 64, 128, 256, ... bytes moves with the next push
        stack.push(stack.stats().held_bytes)
        moved.add(text.address)
        assert pointer.address == text.address + 1
        assert bytes(pointer.view()) == b"ello"
        stats = stack.stats()
        assert (stats.growths, stats.relocated, stats.registered) == (growths, growths, 1)
        if inside:  # its bytes moved along
            assert int.from_bytes(slots.view()[8:], "little") == pointer.address
    assert len(moved) > 1
    pointer.unregister()
    assert stack.stats().registered == 0
    stack.push(stack.stats().held_bytes)
    assert stack.stats().relocated == 7
    with pytest.raises(StateError, match="already unregistered"):
        pointer.unregister()
    with pytest.raises(StateError, match="register another"):
        _ = pointer.address
    stack.verify()


def test_unchecked_a_stale_pointer_raises_when_it_is_used() -> None:
    stack = sw.Stack()
    with stack.frame():
        pointer = stack.register(stack.push(16))
    again = stack.push(16)  # where it points
    assert pointer.registered and pointer.address == again.address
    with pytest.raises(StateError, match="released"):
        pointer.view()
    stack.close()
    assert not pointer.registered
    with pytest.raises(StateError):
        pointer.unregister()


def test_a_view_through_a_pointer_holds_the_stack() -> None:
    stack = sw.Stack(first_bytes=16)
    block = stack.push(16)
    pointer = stack.register(block, 4)
    view = pointer.view()
    with pytest.raises(BlockBusyError):
        stack.push(16)
    view.release()
    del view
    gc.collect()
    stack.push(16)


def test_a_pointer_whose_bytes_were_overwritten_leads_nowhere() -> None:
    stack = sw.Stack(first_bytes=32)
    slots, block = stack.push(16), stack.push(16)
    pointer = stack.register(block, kept_in=slots)
    slots.view()[:8] = b"\x10" * 8
    with pytest.raises(StateError, match="overwritten"):
        pointer.view()
    stack.push(100)  # what is no pointer into the stack stays as it is
    assert bytes(slots.view()[:8]) == b"\x10" * 8
    stack.verify()


def test_wrong_registrations() -> None:
    stack, other = sw.Stack(), sw.Stack()
    block, foreign = stack.push(20), other.push(20)
    for wrong in (-1, 20):
        with pytest.raises(InvalidError):
            stack.register(block, wrong)
    for wrong in (-8, 4, 16):
        with pytest.raises(InvalidError):
            stack.register(block, kept_in=block, kept_at=wrong)
    with pytest.raises(InvalidError, match="another stack"):
        stack.register(foreign)
    with pytest.raises(InvalidError, match="another stack"):
        stack.register(block, kept_in=foreign)
    stack.release(0)
    with pytest.raises(StateError):
        stack.register(block)
    with pytest.raises(StateError):
        stack.register(stack.push(8), kept_in=block)
    assert stack.stats().registered == 0
