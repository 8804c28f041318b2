# SPDX-License-Identifier: Apache-2.0
"""A memory allocator: bytes of one size, of a chosen backing, with a range over them."""

from __future__ import annotations

from typing import SupportsIndex

from spanwise import _lib
from spanwise.ranges.scalable import ScalableAllocator


class MemoryAllocator(ScalableAllocator):
    """Bytes of a size that is chosen once; blocks of any size are cut from them.

    It is a scalable allocator of one child, which the first block takes.

    Example:
        with MemoryAllocator(1 << 20, backing="huge") as memory:
            block = memory.alloc(100)
            block.view()[:5] = b"hello"
            block.free()
    """

    def __init__(self, size: SupportsIndex, *, backing: str = "system") -> None:
        """Makes an allocator; its bytes are taken by the first block.

        Args:
            size: bytes that it has, 1 to 2^40.
            backing: one of BACKINGS.

        Raises:
            InvalidError: one of them is not within these limits.
        """
        _lib.as_index(size, "size")
        super().__init__(
            first_bytes=size, child_limit_bytes=size, limit_bytes=size, backing=backing
        )
