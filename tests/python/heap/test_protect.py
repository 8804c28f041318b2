# SPDX-License-Identifier: Apache-2.0
"""Heap(protect=...): what a heap with protections finds in Python."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from typing import Any

import pytest
import spanwise as sw

SETS = ("canary", "zero", "hold", "empty", "match", "sample", "random", "pages", "hardened")


def poke(block: sw.Block, offset: int, value: int) -> int:
    """Write a byte at an offset of a block, and return the byte before."""
    byte = ctypes.c_ubyte.from_address(block.address + offset)
    before = byte.value
    byte.value = value
    return before


@pytest.mark.parametrize("protect", [*SETS, "paranoid", "canary,zero", "default", ""])
def test_blocks_are_as_in_other_heaps(protect: str) -> None:
    with sw.Heap(protect=protect) as heap:
        for size in (0, 1, 33, 5000, 200_000):
            block = heap.alloc(size, zero=True)
            assert bytes(block.view()) == bytes(size)
            block.view()[:] = b"x" * size
            block.realloc(size + 100)
            assert bytes(block.view())[:size] == b"x" * size
            block.free(size + 100 if size else None)
        heap.verify()


def test_verify_finds_a_byte_after_a_block() -> None:
    with sw.Heap(protect="hardened") as heap:
        block = heap.alloc(40)
        before = poke(block, 40, 0)
        damage = r"object at 0x\w+ of 40 bytes: the bytes after it were written to"
        with pytest.raises(sw.errors.CorruptionError, match=damage):
            heap.verify()
        poke(block, 40, before)
        heap.verify()
        block.free()


def test_sizes_of_frees_are_exact() -> None:
    with sw.Heap(protect="match") as heap:
        block = heap.alloc(40)
        assert (block.size_bytes, block.usable_bytes) == (40, 40)
        with pytest.raises(sw.InvalidError, match="41 B belong to another class; give 40"):
            block.free(41)
        block.free(40)
        empty = heap.alloc(0)
        assert empty.usable_bytes == 0
        empty.free(0)


OVERFLOW = """
import ctypes, spanwise as sw
heap = sw.Heap(protect="canary")
block = heap.alloc(40)
ctypes.c_ubyte.from_address(block.address + 40).value = 0
block.free()
"""


def test_a_free_finds_it() -> None:
    command = [sys.executable, "-c", OVERFLOW]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGABRT
    assert done.stderr.startswith("spanwise: fatal: OVERFLOW op=free ptr=0x")


@pytest.mark.parametrize("flag", ["dry", "tiny"])
def test_not_for_heaps_without_slots_of_their_own(flag: str) -> None:
    with pytest.raises(sw.InvalidError, match="protect: not for "):
        sw.Heap(protect="hardened", dry=flag == "dry", tiny=flag == "tiny")


@pytest.mark.parametrize("protect", ["safe", "canary,", "Hardened"])
def test_names_are_checked(protect: str) -> None:
    with pytest.raises(sw.InvalidError, match=rf'protect "{protect}": use hardened, paranoid'):
        sw.Heap(protect=protect)


@pytest.mark.parametrize("protect", [1, b"canary", ("canary",)])
def test_their_type_is_checked(protect: Any) -> None:
    with pytest.raises(TypeError, match="protect must be a string or None"):
        sw.Heap(protect=protect)
