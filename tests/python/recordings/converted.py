# SPDX-License-Identifier: Apache-2.0
"""What `convert` makes of a file, and what it refuses."""

from __future__ import annotations

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
