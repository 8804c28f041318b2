# SPDX-License-Identifier: Apache-2.0
"""Reads the parts of an ELF file that the dynamic loader uses."""

from __future__ import annotations

import struct
from pathlib import Path

PT_DYNAMIC, PT_TLS = 2, 7
DT_FLAGS_1, DF_1_NODELETE = 0x6FFFFFFB, 0x8


def program_headers(path: Path) -> dict[int, tuple[int, int, int]]:
    """Return file offset, bytes in the file and bytes in memory of each segment type."""
    image = path.read_bytes()
    assert image[:6] == b"\x7fELF\x02\x01", "a 64-bit little-endian object"
    (table,) = struct.unpack_from("<Q", image, 32)
    entry_bytes, count = struct.unpack_from("<HH", image, 54)
    headers = {}
    for i in range(count):
        kind, _, offset, _, _, in_file, in_memory, _ = struct.unpack_from(
            "<IIQQQQQQ", image, table + i * entry_bytes
        )
        headers[kind] = (offset, in_file, in_memory)
    return headers


def dynamic_tags(path: Path) -> dict[int, int]:
    offset, size, _ = program_headers(path)[PT_DYNAMIC]
    section = path.read_bytes()[offset : offset + size]
    return dict(struct.iter_unpack("<QQ", section))


def is_never_unloaded(path: Path) -> bool:
    """Return whether dlclose leaves the object mapped."""
    return bool(dynamic_tags(path)[DT_FLAGS_1] & DF_1_NODELETE)


def static_tls_bytes(path: Path) -> int:
    """Return the bytes of thread-local storage that each thread needs."""
    return program_headers(path).get(PT_TLS, (0, 0, 0))[2]
