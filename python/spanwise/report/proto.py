# SPDX-License-Identifier: Apache-2.0
"""Protocol buffers' wire format, as far as profile.proto needs it.

Source: https://protobuf.dev/programming-guides/encoding. A field is a number and a kind of value: a
variable-length number (0), or bytes with their length (2), which are texts, messages and packed
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

_NUMBER, _BYTES = 0, 2


def varint(value: int) -> bytes:
    """A number, 7 bits a byte, lowest first; a negative one as its complement in 64 bits."""
    left = value & (1 << 64) - 1
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def number(field: int, value: int) -> bytes:
    """A field that is a number; 0 is the default and is left out."""
    return b"" if value == 0 else varint(field << 3 | _NUMBER) + varint(value)


def content(field: int, value: bytes) -> bytes:
    """A field that is a text or a message."""
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def packed(field: int, values: Iterable[int]) -> bytes:
    """A field of many numbers."""
    return content(field, b"".join(map(varint, values)))
