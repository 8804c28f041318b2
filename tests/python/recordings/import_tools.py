# SPDX-License-Identifier: Apache-2.0
"""What `convert` makes of a file, what it refuses, and a writer of heap profiles in profile.proto.

The writer follows the format's definition, not a reader. The strings of a profile are "", the names
of its types, "bytes", the unit, and those of its stacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import spanwise as sw


def made(path: Path, content: str | bytes, **named: str) -> sw.Recording:
    """Write a file and convert it."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return sw.convert(path, **named)  # type: ignore[arg-type]


def refused(path: Path, content: str | bytes | None = None, **named: str) -> str:
    """Return the error, of one line, after checking that no recording is left."""
    out = path.parent / "out.swt"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises((sw.TraceFormatError, sw.InvalidError, sw.UnsupportedError)) as caught:
        sw.convert(path, out, **named)  # type: ignore[arg-type]
    assert not out.exists() and "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path.name}: ")
    return str(caught.value)


def rows(one: sw.Recording) -> list[tuple[int, ...]]:
    names = ("time_ns", "kind", "object", "size", "thread")
    return [tuple(int(row[name]) for name in names) for row in one.ops]


def sizes(one: sw.Recording) -> dict[int, int]:
    """The count of allocations by size."""
    found = one.histogram()
    return dict(zip(found["size_bytes"].tolist(), found["count"].tolist(), strict=True))


# --- profiles -------------------------------------------------------------------------------------


OBJECTS = ("inuse_objects", "inuse_space")


def number(value: int) -> bytes:
    """A varint; a negative number as its 64 bits."""
    value %= 1 << 64
    made = b""
    while value > 127:
        made += bytes([value & 127 | 128])
        value >>= 7
    return made + bytes([value])


def inside(field: int, content: bytes) -> bytes:
    """A field with bytes."""
    return number(field << 3 | 2) + number(len(content)) + content


def plain(field: int, value: int) -> bytes:
    """A field with a number."""
    return number(field << 3) + number(value)


def profile(
    *samples: bytes,
    types: tuple[str, ...] = OBJECTS,
    unit: str = "bytes",
    texts: Sequence[str] = (),
    parts: bytes = b"",
) -> bytes:
    """A heap profile.

    Args:
        samples: of `sample`.
        types: of its values.
        unit: of all of them.
        texts: further strings, of which the first is `first_text(types)`.
        parts: further fields: mappings, locations, functions.
    """
    names = ["", *types, "bytes", unit, *texts]
    declared = b"".join(
        inside(1, plain(1, 1 + i) + plain(2, len(types) + 2)) for i in range(len(types))
    )
    strings = b"".join(inside(6, name.encode()) for name in names)
    return declared + b"".join(inside(2, one) for one in samples) + strings + parts


def first_text(types: tuple[str, ...] = OBJECTS) -> int:
    """Return the index of the first further string."""
    return len(types) + 3


def sample(
    *values: int, label: int | None = None, packed: bool = True, stack: Sequence[int] = (7,)
) -> bytes:
    """Values of a sample of a profile with two types.

    Args:
        values: of each type.
        label: the size of its objects.
        packed: whether the values are one field.
        stack: locations, innermost first.
    """
    made = (
        inside(2, b"".join(map(number, values)))
        if packed
        else b"".join(plain(2, v) for v in values)
    )
    if label is not None:
        made += inside(3, plain(1, 3) + plain(3, label))
    return inside(1, b"".join(map(number, stack))) + made
